"""What joins the cards of a node: weights, islands, zones and switches."""

from __future__ import annotations

import pytest
from tests.core.test_linked_cards import SWITCHED, TWO_FOURS, bridged, dgx_1, machine, within

from ullage.core.kernel.nearest import ISLAND, SWITCH, ZONE, ZONES
from ullage.core.topology.links import layout_of, links_over, weight_of
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.topology import Link, Path, Topology


def layout(node):
    return layout_of(node.gpus, node.topology.links)


@pytest.mark.parametrize(
    ("path", "nvlinks", "weight"),
    [
        (Path.BOARD, 0, 60),
        (Path.PIX, 0, 50),
        (Path.PXB, 0, 40),
        (Path.PHB, 0, 30),
        (Path.NODE, 0, 20),
        (Path.SYS, 0, 10),
        (Path.UNKNOWN, 0, 0),
        (Path.SYS, 18, 1810),
        (Path.UNKNOWN, 1, 100),
    ],
)
def test_nvlinks_are_added_to_what_the_path_is_worth(path, nvlinks, weight):
    assert weight_of(Link("a", "b", path, nvlinks)) == weight


def test_weights_are_a_matrix_in_the_order_of_the_cards():
    weights = layout(bridged()).weights
    assert weights.tolist() == [[0, 20, 10, 200], [20, 0, 200, 10], [10, 200, 0, 20], [200, 10, 20, 0]]
    assert layout(dgx_1()).weights[0].tolist() == [0, 150, 130, 230, 210, 10, 10, 10]


def test_of_two_directions_the_lower_counts():
    links = [
        Link("a", "b", Path.PIX, 2),
        Link("b", "a", Path.SYS, 2),
        Link("a", "c", Path.PIX),
        Link("c", "a", Path.PIX),
    ]
    for reported in (links, links[::-1]):
        found = layout_of([Gpu("a", 0), Gpu("b", 1), Gpu("c", 2)], reported).weights
        assert found.tolist() == [[0, 210, 50], [210, 0, 0], [50, 0, 0]]


def test_links_to_what_is_no_card_of_the_node_and_to_itself_say_nothing():
    links = [Link("a", "nic", Path.PIX), Link("a", "a", Path.PIX, 4), Link("b", "z", Path.SYS)]
    assert not layout_of([Gpu("a", 0), Gpu("b", 1)], links).weights.any()


def test_islands_are_joined_by_nvlink_also_through_others():
    assert layout(dgx_1()).places[ISLAND].tolist() == [0] * 8
    assert layout(bridged()).places[ISLAND].tolist() == [0, 1, 1, 0]
    assert layout(TWO_FOURS).places[ISLAND].tolist() == [0] * 4 + [4] * 4
    chain = machine(4, [(0, 3, Path.UNKNOWN, 1), (1, 3, Path.UNKNOWN, 1)])
    assert layout(chain).places[ISLAND].tolist() == [0, 0, 2, 0]


def test_where_there_is_no_nvlink_a_switch_is_an_island():
    switches = [range(2), range(2, 5)]
    node = machine(6, [*within(switches, Path.PIX), (0, 2, Path.PXB, 0), (4, 5, Path.NODE, 0)])
    assert layout(node).places[ISLAND].tolist() == layout(node).places[SWITCH].tolist() == [0, 0, 2, 2, 2, 5]
    bridge = machine(4, [*within([range(4)], Path.PIX), (0, 1, Path.PIX, 4)])
    mixed = machine(4, [*within([(2, 3)], Path.PIX), (1, 2, Path.PIX, 0), (0, 1, Path.UNKNOWN, 4)])
    assert layout(bridge).places[ISLAND].tolist() == [0] * 4
    assert layout(mixed).places[ISLAND].tolist() == [0, 0, 2, 2]
    assert layout(mixed).places[SWITCH].tolist() == [0, 1, 1, 1]


def test_zones_are_sets_numbered_on_the_node():
    gpus = [Gpu("a", 0, zones=(7,)), Gpu("b", 1, zones=(3, 7)), Gpu("c", 2), Gpu("d", 3, zones=(3, 7)), Gpu("e", 4)]
    found = layout_of(gpus).places
    assert found[ZONES].tolist() == [0b10, 0b11, 0, 0b11, 0]
    assert found[ZONE].tolist() == [0, 1, 2, 1, 2]


def test_more_zones_than_a_number_has_bits_are_none():
    assert not layout_of([Gpu(f"g{k}", k, zones=(k,)) for k in range(63)]).places[ZONES].any()
    assert layout_of([Gpu(f"g{k}", k, zones=(k,)) for k in range(62)]).places[ZONES].tolist() == [
        1 << k for k in range(62)
    ]


def test_cards_are_uniform_where_all_pairs_have_the_same_nvlinks():
    assert layout(SWITCHED).uniform
    assert not layout(TWO_FOURS).uniform
    assert not layout(machine(4, within([range(4)], Path.PIX))).uniform
    assert not layout(machine(1)).uniform


def test_nodes_with_the_same_links_share_a_layout_whatever_their_cards_are_called():
    other = tuple(Gpu(f"x{gpu.uuid}", gpu.index) for gpu in dgx_1().gpus)
    reported = tuple(Link(f"x{link.b}", f"x{link.a}", link.path, link.nvlinks) for link in dgx_1().topology.links[::-1])
    nodes = dgx_1(), Node("m", 0, 0, other, topology=Topology(links=reported)), machine(8), Node("e", 0, 0), machine(8)
    assert links_over(nodes).layout_of.tolist() == [0, 0, 1, 2, 1]
    assert links_over(()).layout_of.tolist() == []
