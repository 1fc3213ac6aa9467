"""What a request asks of links: its text, its share of the score of nodes, parts of cards, and its refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.verdict.sentences import reject_text
from ullage.model.alignment import LinkDemand
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.links import links_by_group
from ullage.model.node import Node
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.topology import CardPicker, Cpu, Device, Kubelet, Link, Path, Topology, Zone, ZonePolicy

GIB = 2**30


def a_node(name: str, *groups: str, nvlinks: int = 2, kubelet: Kubelet | None = None, cards: int = 4) -> Node:
    """A node with some cards in one zone; those of a group, such as `01`, are linked."""
    gpus = tuple(Gpu(f"{name}{at}", at, vram_bytes=40 * GIB, zones=(0,)) for at in range(cards))
    links = links_by_group(([f"{name}{at}" for at in group] for group in groups), Path.UNKNOWN, nvlinks)
    cpus = tuple(Cpu(at, 0, 0, at) for at in range(16))
    return Node(name, 16_000, 2**36, gpus, topology=Topology((Zone(0),), (), cpus, links=links, kubelet=kubelet))


def books_of(*nodes: Node) -> FleetAllocator:
    found = FleetAllocator(Fleet(list(nodes)))
    found.set_ready()
    return found


def place(books: FleetAllocator, text: str, uid: str = "u", strategy: str | None = None) -> Allocation | Refusal:
    return books.alloc(Request(uid, ResourceRequirement.from_string(text), strategy=strategy), 0.0)


def test_the_text_of_a_request_has_its_demand():
    for demand in LinkDemand:
        asked = ResourceRequirement.from_string(f"gpu=2, LINKS={demand}")
        assert asked.alignment.links is demand
        assert ResourceRequirement.from_string(str(asked)) == asked
        assert f"links={demand}" in str(asked)
    assert ResourceRequirement.from_string("gpu=2").alignment.links is None
    for wrong in ("gpu=2,links=fast", "cpu=1,links=best", "gpu=0,cpu=1,links=island"):
        with pytest.raises(InvalidRequest, match="links"):
            ResourceRequirement.from_string(wrong)


@pytest.mark.parametrize("order", [1, -1])
def test_between_equal_nodes_links_decide_and_zones_come_first(order: int):
    nodes = [a_node("a"), a_node("b", "01", nvlinks=1), a_node("c", "01", nvlinks=6)][::order]
    assert place(books_of(*nodes), "gpu=2").node == "c"
    assert place(books_of(*nodes), "gpu=1").node == "a"
    apart = a_node("d", "0123", nvlinks=18)
    gpus = tuple(Gpu(f"d{at}", at, zones=(at % 2,)) for at in range(4))
    links = tuple(link for link in apart.topology.links if {link.a, link.b} in ({"d0", "d1"}, {"d2", "d3"}))
    wide = Node("d", 16_000, 2**36, gpus, topology=Topology((Zone(0), Zone(1)), links=links))
    assert place(books_of(wide, a_node("e")), "gpu=2").node == "e"


def test_for_the_best_connected_cards_links_count_more_than_load():
    def books() -> FleetAllocator:
        found = books_of(a_node("a"), a_node("b", "01"))
        assert place(found, "gpu=1,gpu_uuid=a3", "used").node == "a"
        return found

    assert place(books(), "gpu=2", strategy="compact-first").node == "a"
    assert place(books(), "gpu=2,links=best", strategy="compact-first").gpus == ("b0", "b1")


@pytest.mark.parametrize("picks", list(CardPicker))
def test_a_device_plugin_that_picks_by_itself_is_predicted(picks: CardPicker):
    kubelet = Kubelet(ZonePolicy.BEST_EFFORT, picks=picks)
    books = books_of(a_node("a", "02", "13", kubelet=kubelet))
    expected = {CardPicker.LOWEST: {"a0", "a1"}, CardPicker.PARTITION: {"a0", "a2"}, CardPicker.NAMED: {"a0", "a2"}}
    assert set(place(books, "gpu=2").gpus) == expected[picks]
    alone = books_of(a_node("a", "01", "12", kubelet=kubelet))
    assert place(alone, "gpu=1").gpus == (("a3",) if picks is CardPicker.NAMED else ("a0",))


# --- parts of cards ---


def test_parts_of_several_cards_are_of_the_best_connected_ones():
    books = books_of(a_node("a", "02", "13"))
    first = place(books, "gpu=2,vram=10g,links=best", "one")
    assert set(first.gpus) in ({"a0", "a2"}, {"a1", "a3"})
    alone = books_of(a_node("a", "01", "02", "12"))
    assert place(alone, "gpu=1,vram=10g,links=best").gpus == ("a3",)


@pytest.mark.parametrize(("strategy", "cards"), [("compact-first", 1), ("low-load-first", 4)])
def test_where_all_cards_are_equally_connected_the_strategy_picks_parts(strategy: str, cards: int):
    books = books_of(a_node("a", "0123"))
    found = [place(books, "gpu=1,vram=10g,links=best", f"u{at}", strategy).gpus for at in range(4)]
    assert len(set(found)) == cards
    several = {place(books, "gpu=2,vram=10g,links=best", f"v{at}", strategy).gpus for at in range(2)}
    assert len(several) == (1 if cards == 1 else 2)


def test_cards_that_have_no_room_do_not_count_as_others():
    """With 0 full, 1 has no link to a card with room, and is connected worst."""
    books = books_of(a_node("a", "01", "23"))
    assert place(books, "gpu=1,gpu_uuid=a0", "full").gpus == ("a0",)
    assert place(books, "gpu=1,vram=10g,links=best").gpus == ("a1",)


# --- one island ---


def test_an_island_that_is_in_use_is_waited_for_and_one_that_is_not_there_is_not():
    books = books_of(a_node("a", "01", "23"))
    assert place(books, "gpu=1,gpu_uuid=a0", "one").gpus == ("a0",)
    assert place(books, "gpu=1,gpu_uuid=a2", "two").gpus == ("a2",)
    refused = place(books, "gpu=2,links=island")
    assert (refused.code, refused.curable) == (Code.NOT_LINKED, True)
    assert books.dealloc("one", 1.0) is not None
    assert place(books, "gpu=2,links=island").gpus == ("a0", "a1")
    never = place(books_of(a_node("a", "01", "23")), "gpu=3,links=island")
    assert (never.code, never.curable) == (Code.NOT_LINKED, False)


def test_parts_are_of_one_island_too():
    books = books_of(a_node("a", "12"))
    for number in range(4):
        assert set(place(books, "gpu=2,vram=10g,links=island", f"u{number}").gpus) == {"a1", "a2"}
    assert place(books, "gpu=2,vram=10g,links=island", "more").code is Code.NOT_LINKED
    assert set(place(books, "gpu=2,vram=10g", "any").gpus) == {"a0", "a3"}


# --- a device behind the same switch ---


def with_nics(*pairs: str, kubelet: Kubelet | None = None, links: bool = True, cards: int = 4) -> Node:
    """Cards in two zones in turn, and an adapter per pair: `0-2` is card 0 and adapter 2 behind one switch."""
    gpus = tuple(Gpu(f"g{at}", at, vram_bytes=40 * GIB, zones=(at % 2,)) for at in range(cards))
    numbers = [pair.split("-") for pair in pairs]
    nics = tuple(Device("nic", at, f"e{at}", zones=(int(card) % 2,)) for at, (card, _) in enumerate(numbers))
    near = [Link(f"g{card}", f"e{at}", Path.PIX) for at, (card, _) in enumerate(numbers)]
    far = [Link(f"g{card}", f"e{at}", Path.PXB) for at in range(len(nics)) for card in range(cards)]
    known = {(link.a, link.b) for link in near}
    every = [*near, *(link for link in far if (link.a, link.b) not in known)]
    topology = Topology((Zone(0), Zone(1)), devices=nics, links=tuple(every) if links else (), kubelet=kubelet)
    return Node("n", 16_000, 2**36, gpus, topology=topology)


def test_each_card_is_behind_a_switch_with_a_device_of_its_pair():
    node = with_nics("1-0", "3-0", "2-0")
    assert set(place(books_of(node), "gpu=2,gpu~nic=switch").gpus) == {"g1", "g3"}
    assert place(books_of(node), "gpu=1,gpu~nic=switch").gpus in (("g1",), ("g2",), ("g3",))
    assert set(place(books_of(node), "gpu=3,gpu~nic=switch").gpus) == {"g1", "g2", "g3"}
    assert set(place(books_of(node), "gpu=4,gpu~nic=required").gpus) == {"g0", "g1", "g2", "g3"}
    parts = books_of(node)
    assert {place(parts, "gpu=1,vram=20g,gpu~nic=switch", f"u{at}").gpus for at in range(6)} == {
        ("g1",),
        ("g2",),
        ("g3",),
    }
    assert place(parts, "gpu=1,vram=20g,gpu~nic=switch", "more").code is Code.OFF_SWITCH


def test_a_refusal_names_the_device_and_the_cards_behind_its_switches():
    refused = place(books_of(with_nics("1-0", "2-0")), "gpu=3,gpu~nic=switch")
    assert (refused.code, refused.curable) == (Code.OFF_SWITCH, False)
    assert reject_text(refused.rejections[0]) == (
        "its cards would not be behind one PCIe switch with a device that it pairs them with: "
        "it needs 3 cards behind a switch with nic, n has 2"
    )
    used = books_of(with_nics("1-0", "2-0"))
    assert place(used, "gpu=1,gpu_uuid=g1", "one").gpus == ("g1",)
    waits = place(used, "gpu=2,gpu~nic=switch")
    assert (waits.code, waits.curable, waits.rejections[0].had) == (Code.OFF_SWITCH, True, 1)
    unknown = place(books_of(with_nics("1-0", "2-0", links=False)), "gpu=1,gpu~nic=switch")
    assert (unknown.code, unknown.rejections[0].had) == (Code.OFF_SWITCH, 0)
    other = place(books_of(with_nics("1-0", "2-0")), "gpu=1,gpu~fpga=switch")
    assert (other.code, other.rejections[0].resource) == (Code.OFF_SWITCH, "fpga")


def test_names_that_no_device_has_do_not_pass_for_others():
    """Each name gets a number; those of the adapters come first."""
    books = books_of(with_nics("1-0", "2-0"))
    for number in range(140):
        found = place(books, f"gpu=1,gpu~x{number}=switch")
        assert (found.code, found.rejections[0].had) == (Code.OFF_SWITCH, 0)
    assert place(books, "gpu=1,gpu~nic=switch").gpus in (("g1",), ("g2",))


@pytest.mark.parametrize("picks", list(CardPicker))
def test_where_a_plugin_picks_every_free_card_must_be_behind_such_a_switch(picks: CardPicker):
    kubelet = Kubelet(ZonePolicy.RESTRICTED, picks=picks)
    node = with_nics("1-0", "3-0", kubelet=kubelet)
    found = place(books_of(node), "gpu=1,gpu~nic=switch")
    if picks is CardPicker.NAMED:
        assert found.gpus in (("g1",), ("g3",))
    else:
        assert found.code is Code.OFF_SWITCH
        assert reject_text(found.rejections[0]).endswith("n has 2, and its device plugin chooses by itself")
    all_near = with_nics("0-0", "1-0", "2-0", "3-0", kubelet=kubelet)
    assert len(place(books_of(all_near), "gpu=1,gpu~nic=switch").gpus) == 1


def test_nodes_that_differ_only_in_their_switches_are_told_apart():
    first = with_nics("1-0", "3-0")
    uuids = {f"g{at}": f"h{at}" for at in range(4)}
    second = with_nics("0-0", "2-0")
    cards = tuple(Gpu(uuids[gpu.uuid], gpu.index, vram_bytes=gpu.vram_bytes, zones=gpu.zones) for gpu in second.gpus)
    links = tuple(Link(uuids[link.a], link.b, link.path) for link in second.topology.links)
    other = Node("m", 16_000, 2**36, cards, topology=replace(second.topology, links=links))
    books = books_of(first, other)
    found = {place(books, "gpu=2,gpu~nic=switch", f"u{at}").gpus for at in range(2)}
    assert {frozenset(cards) for cards in found} == {frozenset({"g1", "g3"}), frozenset({"h0", "h2"})}
