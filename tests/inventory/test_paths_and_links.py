"""Rules of paths and links, on any tree of bridges and any links of cards."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ullage.inventory.nvlink import NvLinkEnd, count_links
from ullage.inventory.path import find_path
from ullage.inventory.pci import PciDevice
from ullage.model.topology import Path

BRIDGES = st.lists(st.integers(0, 1), max_size=4)
ZONES = st.sampled_from([(), (0,), (1,), (0, 1)])


@st.composite
def places(draw):
    """A device in a binary tree of bridges below one of two host bridges."""
    top = draw(st.integers(0, 1))
    turns = draw(BRIDGES)
    names = [f"pci0000:{top:02x}"]
    names += [
        f"0000:{top}{depth}:{int(''.join(map(str, turns[:depth])), 2):02x}.0" for depth in range(1, len(turns) + 1)
    ]
    address = f"0000:{draw(st.integers(16, 255)):02x}:{draw(st.integers(0, 1)):02x}.0"
    return PciDevice(address, 0x10DE, 1, 0x030200, tuple(names)), draw(ZONES)


def crossed(a, b):
    """Bridges of each side below the last one that both share, and whether that is a host bridge; None: none is."""
    ways = [
        (x, y) for x in range(len(a.parents)) for y in range(len(b.parents)) if a.parents[: x + 1] == b.parents[: y + 1]
    ]
    if not ways:
        return None
    x, y = max(ways)
    return len(a.parents) - 1 - x, len(b.parents) - 1 - y, x == 0


@given(places(), places(), st.booleans())
def test_a_path_is_named_by_its_crossings_and_is_symmetric(one, other, one_zone):
    path = find_path(one, other, one_zone=one_zone)
    assert find_path(other, one, one_zone=one_zone) is path
    way = crossed(one[0], other[0])
    if way is None:
        near = one_zone or bool(set(one[1]) & set(other[1]))
        assert path is (Path.NODE if near else Path.SYS if one[1] and other[1] else Path.UNKNOWN)
    elif one[0].slot == other[0].slot:
        assert path is Path.BOARD
    elif way[2]:
        assert path is Path.PHB
    else:
        assert path is {0: Path.BOARD, 1: Path.PIX}.get(max(way[:2]), Path.PXB)


CARDS = {f"0000:{n:02x}:00.0": f"GPU-{n}" for n in range(5)}
ENDS = st.builds(
    NvLinkEnd,
    st.sampled_from([*CARDS.values(), "GPU-of-another-node"]),
    st.sampled_from([*CARDS, "0000:fa:00.0", "0000:77:00.0", None]),
    st.booleans(),
)


@given(st.lists(ENDS, max_size=60), st.randoms(use_true_random=False))
def test_links_are_the_fewer_of_both_ends_and_do_not_depend_on_an_order(ends, random):
    counts, notes = count_links(ends, CARDS, ["0000:fa:00.0"])
    shuffled = random.sample(ends, len(ends))
    assert count_links(shuffled, CARDS, ["0000:fa:00.0"]) == (counts, notes)
    switched = Counter(end.card for end in ends if end.switch or end.remote == "0000:fa:00.0")
    direct = Counter((end.card, CARDS[end.remote]) for end in ends if not end.switch and end.remote in CARDS)
    uuids = list(CARDS.values())
    for place, a in enumerate(uuids):
        for b in uuids[place + 1 :]:
            links = min(direct[a, b], direct[b, a]) + min(switched[a], switched[b])
            assert counts.get((a, b), 0) == links
            assert any(f"{a} has" in note and f"to {b}," in note for note in notes) == (direct[a, b] != direct[b, a])
