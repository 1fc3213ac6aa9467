"""Hints and their merge: the listed cases, and the product of all hint lists written out as an oracle."""

from __future__ import annotations

import itertools
import random

import pytest
from tests.core.zone_hints import Hint, Merged, device_hints, merge_hints
from tests.core.zone_oracle import product_merge

from ullage.core.topology.rules import WidthRule
from ullage.model.error import InvalidRequest
from ullage.model.topology import ZonePolicy

pytestmark = pytest.mark.timeout(900)

BEST, RESTRICTED, SINGLE = ZonePolicy.BEST_EFFORT, ZonePolicy.RESTRICTED, ZonePolicy.SINGLE_ZONE


def hint(text: str) -> Hint:
    """`{0,1}P` or `nil n`, as the reference of the kubelet's cases writes them."""
    zones = None if text.startswith("nil") else tuple(int(zone) for zone in text[1 : text.index("}")].split(","))
    return Hint(zones, text.endswith("P"))


def hints(text: str | None) -> list[Hint] | None:
    return None if text is None else [hint(one) for one in text.split()]


C = "{0}P {1}P {0,1}n"


@pytest.mark.parametrize(
    ("zones", "lists", "best", "restricted", "single"),
    [
        pytest.param(2, (C, "{0}P {0,1}n"), "{0}P", True, "{0}P", id="1"),
        pytest.param(2, ("{1}P {0,1}n", "{1}P {0,1}n"), "{1}P", True, "{1}P", id="2"),
        pytest.param(2, (C, "{0}P {1}P {0,1}n"), "{0}P", True, "{0}P", id="3"),
        pytest.param(2, ("{0}P {0,1}n", "{1}P {0,1}n"), "{0}n", False, None, id="4"),
        pytest.param(2, (C, "{0,1}P"), "{0,1}n", False, None, id="5"),
        pytest.param(2, ("{0,1}P", "{0,1}P"), "{0,1}P", True, None, id="6"),
        pytest.param(2, ("{0}P", "{1}P"), "{0,1}n", False, None, id="7"),
        pytest.param(2, (C, None), "{0}P", True, "{0}P", id="8"),
        pytest.param(2, (None,), "{0,1}P", True, "nilP", id="9"),
        pytest.param(2, (), "{0,1}P", True, "nilP", id="9, no provider at all"),
        pytest.param(2, ("{0,1}n",), "{0,1}n", False, None, id="10"),
        pytest.param(2, ("{0}P", "{0}n"), "{0}n", False, None, id="11"),
        pytest.param(1, ("{0}P", "{0}P"), "{0}P", True, "nilP", id="12"),
        pytest.param(2, (C, C, "{1}P {0,1}n"), "{1}P", True, "{1}P", id="13"),
        pytest.param(4, ("{0,1,2,3}n {0,1}n", "{2,3}n"), "{2,3}n", False, None, id="14"),
        pytest.param(4, ("{0,2}P {2,3}P",), "{0,2}P", True, None, id="15, by value"),
        pytest.param(4, ("{2}P {3}P {2,3}n", "{0}P {2}P"), "{2}P", True, "{2}P", id="16"),
    ],
)
def test_the_merge(zones, lists, best, restricted, single):
    reported = [hints(text) for text in lists]
    ids = range(zones)
    assert merge_hints(ids, reported, BEST) == Merged(hint(best), True)
    assert merge_hints(ids, reported, RESTRICTED) == Merged(hint(best), restricted)
    found = merge_hints(ids, reported, SINGLE)
    assert found == (Merged(Hint(None, False), False) if single is None else Merged(hint(single), True))
    assert merge_hints(ids, reported, ZonePolicy.NONE).admitted


NEAR = [[10, 11, 12, 12], [11, 10, 12, 12], [12, 12, 10, 11], [12, 12, 11, 10]]


def test_closest_zones_first_where_asked():
    reported = [hints("{0,2}P {2,3}P")]
    assert merge_hints(range(4), reported, BEST, NEAR) == Merged(hint("{2,3}P"), True)
    assert merge_hints(range(4), reported, RESTRICTED, NEAR).admitted


B = [(0,)] * 4 + [(1,)] * 4
Q = [(card // 2,) for card in range(8)]


def reported(found: list[Hint] | None) -> str | None:
    return None if found is None else " ".join(map(str, found))


@pytest.mark.parametrize(
    ("zones", "cards", "free", "asked", "expected"),
    [
        pytest.param(2, B, range(8), 4, "{0}P {1}P {0,1}n", id="23"),
        pytest.param(2, B, (1, 2, 4, 5, 6, 7), 4, "{1}P {0,1}n", id="24"),
        pytest.param(2, B, range(8), 5, "{0,1}P", id="25"),
        pytest.param(2, B, range(8), 8, "{0,1}P", id="26"),
        pytest.param(2, B, range(8), 9, "", id="27"),
        pytest.param(2, [(0,), (0,), (1,), (1,)], (0, 2), 2, "{0,1}n", id="29"),
        pytest.param(2, B, range(4, 8), 4, "{1}P {0,1}n", id="30"),
        pytest.param(2, [()] * 4, range(4), 2, None, id="no device has a zone"),
        pytest.param(2, [*B, ()], range(9), 9, "", id="a device without a zone counts in no mask"),
        pytest.param(2, [(0, 1)] * 2, range(2), 2, "{0}P {1}P {0,1}n", id="devices in two zones count in either"),
        pytest.param(3, B, range(8), 4, "{0}P {1}P {0,1}n {0,2}n {1,2}n {0,1,2}n", id="a zone without devices"),
    ],
)
def test_hints_by_the_kubelets_rule(zones, cards, free, asked, expected):
    assert reported(device_hints(range(zones), cards, [cards[card] for card in free], asked)) == expected


def test_hints_of_four_zones():
    wide = [device_hints(range(4), Q, Q, asked) or [] for asked in (2, 3, 4, 6, 8)]
    preferred = [[len(one.zones or ()) for one in found if one.preferred] for found in wide]
    assert preferred == [[1] * 4, [2] * 6, [2] * 6, [3] * 4, [4]]


def test_width_by_what_is_free_prefers_what_the_kubelet_does_not():
    two = [(0,), (0,), (1,), (1,)]
    assert reported(device_hints(range(2), two, [(0,), (1,)], 2, WidthRule.CURRENT_BEST)) == "{0,1}P"


def test_cards_of_a_finished_init_container_must_touch_the_mask():
    found = device_hints(range(2), B, B[4:], 4, reused_in=B[:4])
    assert reported(found) == "{0}P {0,1}n"
    assert reported(device_hints(range(2), B, [], 1, reused_in=[(0,), (1,)])) == "{0,1}n"


def test_zone_ids_may_have_gaps():
    assert reported(device_hints((0, 3, 7), [(3,)] * 2, [(3,)] * 2, 2)) == "{3}P {0,3}n {3,7}n {0,3,7}n"
    assert merge_hints((0, 3, 7), [hints("{3}P {0,3}n")], SINGLE) == Merged(hint("{3}P"), True)


def test_too_many_zones_are_refused_not_enumerated():
    with pytest.raises(InvalidRequest) as refused:
        device_hints(range(17), [(0,)], [(0,)], 1)
    assert refused.value.code == "zones-too-many"
    with pytest.raises(InvalidRequest):
        merge_hints(range(17), [], RESTRICTED)
    assert merge_hints(range(17), [], ZonePolicy.NONE).admitted


@pytest.mark.parametrize("asked", [0, -1, 2**31, 2**70])
def test_amounts_out_of_range_are_refused(asked):
    with pytest.raises(InvalidRequest) as refused:
        device_hints(range(2), B, B, asked)
    assert refused.value.code == "amount-out-of-range"


# --- against every choice of one hint per resource ---


def some_hints(chance: random.Random, zones: int) -> list[Hint] | None:
    """A list as providers give it, or a nonsensical one: the merge must hold for any."""
    kind = chance.random()
    if kind < 0.1:
        return None
    if kind < 0.15:
        return []
    masks = [mask for size in range(1, zones + 1) for mask in itertools.combinations(range(zones), size)]
    if kind < 0.6:
        places = [tuple(chance.sample(range(zones), chance.choice((1, 1, 1, 2)) if zones > 1 else 1)) for _ in range(8)]
        free = [place for place in places if chance.random() < 0.7]
        return device_hints(range(zones), places, free, chance.randint(1, 5), chance.choice(list(WidthRule)))
    found = [Hint(mask, chance.random() < 0.4) for mask in chance.sample(masks, min(len(masks), chance.randint(1, 5)))]
    if chance.random() < 0.15:
        found.append(Hint(None, chance.random() < 0.5))
    return found


@pytest.mark.long
@pytest.mark.parametrize("zones", range(1, 9))
def test_the_merge_is_what_the_product_of_all_hints_gives(zones):
    chance = random.Random(zones)
    for _ in range(60):
        lists = [some_hints(chance, zones) for _ in range(chance.randint(0, 3 if zones < 5 else 2))]
        far = [[10 if a == b else 11 + (a ^ b) % 3 for b in range(zones)] for a in range(zones)]
        for policy in (BEST, RESTRICTED, SINGLE):
            for distances in ([], far):
                expected = product_merge(range(zones), lists, policy, distances)
                assert merge_hints(range(zones), lists, policy, distances) == expected, (lists, policy)


def test_the_order_of_resources_and_hints_does_not_matter():
    chance = random.Random(7)
    for _ in range(50):
        lists = [some_hints(chance, 4) for _ in range(3)]
        shuffled = [None if one is None else chance.sample(one, len(one)) for one in chance.sample(lists, 3)]
        assert merge_hints(range(4), lists, RESTRICTED) == merge_hints(range(4), shuffled, RESTRICTED)


@pytest.mark.long
def test_sixteen_zones_end():
    chance = random.Random(3)
    places = [(zone,) for zone in range(16)] * 2
    found = device_hints(range(16), places, [place for place in places if chance.random() < 0.5], 9)
    assert found
    assert merge_hints(range(16), [found, found[::-1]], RESTRICTED).admitted
    lists = [[Hint((zone,), True) for zone in range(8)], [Hint((8, 9), True), Hint(tuple(range(16)), False)]]
    assert not merge_hints(range(16), lists, RESTRICTED).admitted
