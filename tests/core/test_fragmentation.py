"""Fragmentation as the live view tells it, against the definition written out, and what fits."""

import random

import numpy as np
import pytest

from ullage.core.books.fleet import Fleet
from ullage.core.learning.fragmentation import NOTHING, fits_now, fragments_of
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.strategies.workload import whole_workload
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement

pytestmark = pytest.mark.timeout(900)
ASKED = [ResourceRequirement.from_string(text) for text in ("cpu=4,gpu=0.3", "cpu=8,gpu=1", "cpu=16,gpu=4", "cpu=2")]
NAMED = ResourceRequirement.from_string("cpu=4,gpu=2,gpu_model=A100")
WORKLOAD = whole_workload([*ASKED, *ASKED[:2], NAMED])


def node(name, cards, model, **facts):
    gpus = tuple(Gpu(f"{name}-{k}", k, model=model, healthy=k != facts.get("broken")) for k in range(cards))
    return Node(name, 32_000, 1 << 36, gpus, cordoned=facts.get("cordoned", False))


NODES = (
    node("a", 4, "A100"),
    node("b", 8, "T4"),
    node("c", 4, "T4", broken=2),
    node("d", 4, "A100", cordoned=True),
    node("e", 0, None),
)


def slow(fleet, workload):
    """Per model, idle and fragments by the definition: what a task of each class cannot use."""
    reported = {}
    for row, node in enumerate(fleet.nodes):
        if not node.gpus:
            continue
        idle = fragments = 0.0
        if node.schedulable:
            cards = [card for card in fleet.cards_on(row) if fleet.cards[card].healthy]
            free = [int(fleet.compute_free[card] * 1000 // fleet.compute_total[card]) for card in cards]
            idle = sum(free)
            for task, weight in zip(workload.classes, workload.popularity, strict=True):
                able = [share for share in free if share >= task.share_milli]
                runs = task.cards and len(able) >= task.cards and fleet.cpu_free[row] >= task.cpu_milli
                runs = runs and (not task.models or node.gpus[0].model in task.models)
                fragments += weight * (idle - sum(able) if runs else idle)
        before = reported.get(node.gpus[0].model, (0.0, 0.0))
        reported[node.gpus[0].model] = before[0] + idle, before[1] + fragments
    return reported


@pytest.mark.parametrize("seed", range(5))
def test_fragments_follow_the_books_and_are_those_of_the_definition(seed):
    rng = random.Random(seed)
    fleet = Fleet(NODES)
    placer, held = Placer(fleet, Policy()), []
    for number in range(60):
        if held and rng.random() < 0.3:
            fleet.release(held.pop(rng.randrange(len(held))))
        elif (placed := placer.place(str(number), rng.choice([*ASKED, NAMED]))) is not None:
            held.append(placed.id)
        found = fragments_of(fleet, WORKLOAD)
        expected = slow(fleet, WORKLOAD)
        assert found.by_model().keys() == expected.keys()
        for model, idle in found.by_model().items():
            assert tuple(idle) == pytest.approx(expected[model])
        assert tuple(found.total()) == pytest.approx(tuple(np.sum(list(expected.values()), axis=0)))


def test_they_are_kept_with_the_books_until_the_workload_is_another():
    fleet = Fleet(NODES)
    first = fragments_of(fleet, WORKLOAD)
    assert fragments_of(fleet, WORKLOAD) is first
    assert fragments_of(fleet, whole_workload(ASKED)) is not first


def test_without_a_workload_nothing_idle_is_fragments():
    idle, fragments = fragments_of(Fleet(NODES), NOTHING).total()
    assert (idle, fragments) == (15_000, 0)


def test_what_fits_is_counted_per_number_of_whole_cards_up_to_the_largest_node():
    fleet = Fleet(NODES)
    assert fits_now(fleet) == {1: 15, 2: 7, 4: 3, 8: 1}
    Placer(fleet, Policy()).place("x", ResourceRequirement.from_string("gpu=0.1,gpu_model=T4"))
    assert fits_now(fleet)[1] == 14
    assert fits_now(Fleet([NODES[-1]])) == {}


def test_sizes_are_powers_of_two_and_the_whole_of_the_largest_node():
    assert list(fits_now(Fleet([node("n", 6, "T4")]))) == [1, 2, 4, 6]
