"""In which zones a placement lies, and that a draft leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.core.zones import kubelet, machine

from ullage.core.books.fleet import Fleet
from ullage.core.kernel.columns import CPU_FREE, GPU_FREE, SLOTS_FREE, Rows
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.verdict.zones import placement_on
from ullage.model.allocation import Allocation
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement
from ullage.model.zone_placement import ZonePlacement

pytestmark = pytest.mark.timeout(900)

PAIRS = machine(cards=(0, 0, 1, 1), cpus=(2, 2))
Q = machine(cards=(0, 0, 1, 1, 2, 2, 3, 3), cpus=(2, 2, 2, 2), zones=(0, 1, 2, 3))


def with_free(node: Node, cards: Sequence[int], cpus: Sequence[int]) -> Fleet:
    """The machine with just these cards and CPUs free."""
    assert node.topology is not None
    held = tuple(cpu.id for cpu in node.topology.cpus if cpu.id not in cpus)
    others = tuple(gpu.uuid for gpu in node.gpus if gpu.index not in cards)
    asked = ResourceRequirement(len(held) * 1000, 0, len(others))
    return Fleet([node], [Allocation("other", node.name, asked, others, placement=ZonePlacement((), held))])


def zones_of(node: Node, cards: Sequence[int], cpus: Sequence[int]) -> tuple[int, ...]:
    """The zones of a request that takes all that is free."""
    fleet = with_free(node, cards, cpus)
    asked = ResourceRequirement.from_string(f"mem=1g,cpu={len(cpus)},gpu={len(cards)},numa=best-effort")
    found = placement_on(fleet, asked, node.name, cards)
    assert found is None or found.cpus == tuple(cpus)
    return found.zones if found else ()


@pytest.mark.parametrize(
    ("node", "cards", "cpus", "zones"),
    [
        pytest.param(PAIRS, [0, 1], [], (0,), id="52"),
        pytest.param(PAIRS, [0, 2], [], (0, 1), id="52, of both zones"),
        pytest.param(PAIRS, [], [], (), id="52, nothing"),
        pytest.param(PAIRS, [0, 1], [0, 1], (0,), id="53, a"),
        pytest.param(PAIRS, [0, 2], [0, 2], (0, 1), id="53, b"),
        pytest.param(PAIRS, [2, 3], [0, 1], (0, 1), id="54"),
        pytest.param(Q, [0, 1], [0], (0,), id="56"),
        pytest.param(Q, [0, 2], [0], (0, 1), id="56, two"),
        pytest.param(Q, [0, 2, 4, 6], [0, 2, 4, 6], (0, 1, 2, 3), id="56, all"),
    ],
)
def test_the_zones_of_all_that_is_held(node, cards, cpus, zones):
    assert zones_of(node, cards, cpus) == zones


@pytest.mark.parametrize("decides", [None, kubelet("best-effort")])
def test_two_cards_lie_in_one_zone(decides):  # 57
    fleet = with_free(machine(cards=(0, 0, 1, 1), cpus=(2, 2), kubelet=decides), [1, 2, 3], [0, 1, 2, 3])
    found = Placer(fleet, Policy()).place("r", ResourceRequirement.from_string("gpu=2,numa=best-effort"))
    assert found is not None
    assert found.placement is not None
    assert (found.gpus, found.placement.zones) == (("n-g2", "n-g3"), (1,))


def test_cards_and_cpus_of_the_zone_that_is_left():  # 63
    node = machine(cpus=(48, 48), kubelet=kubelet("single-numa-node"))
    fleet = with_free(node, range(4, 8), range(48, 96))
    found = Placer(fleet, Policy()).place("r", ResourceRequirement.from_string("cpu=8,gpu=4"))
    assert found is not None
    assert found.placement is not None
    assert found.gpus == tuple(f"n-g{card}" for card in range(4, 8))
    assert (found.placement.zones, found.placement.cpus) == ((1,), tuple(range(48, 56)))


def test_three_that_were_drafted_leave_nothing_behind():  # 50
    fleet = Fleet([machine()])
    before = [rows.copy() for rows in free_of(fleet)]
    mark, placer = fleet.checkpoint(), Placer(fleet, Policy())
    asked = ResourceRequirement.from_string("cpu=4,gpu=2,numa=single-numa-node")
    drafted = [placer.place(f"r{number}", asked) for number in range(3)]
    assert all(drafted)
    assert not any(map(np.array_equal, free_of(fleet), before))
    fleet.rollback(mark)
    assert not fleet.ledger
    assert all(map(np.array_equal, free_of(fleet), before))


def free_of(fleet: Fleet) -> list[Rows]:
    return [fleet.board.supplies, fleet.card_rows, fleet.node_rows[:, [CPU_FREE, GPU_FREE, SLOTS_FREE]]]
