"""The inflation experiment against slow, obvious code."""

import numpy as np
import pytest

from tests.sim.traces import openb_nodes, openb_pods
from ullage.core.books.fleet import Fleet
from ullage.core.strategies.workload import typical_workload
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement
from ullage.sim.arrivals import inflate, shuffled
from ullage.sim.formats import read_nodes, read_tasks
from ullage.sim.inflation import run_inflation
from ullage.sim.placing import NOT_PLACED, Placing
from ullage.sim.trace import Trace, TraceKind, TraceTask, kind_of


@pytest.fixture
def trace(tmp_path):
    return Trace("tiny", read_nodes(openb_nodes(tmp_path / "n.csv")), read_tasks(openb_pods(tmp_path / "p.csv")))


def replayed(trace, policy, seed):
    """The experiment one task at a time, on books of its own: per arrival its load, what is held, its kind, its end."""
    rng = np.random.default_rng(seed)
    fleet = shuffled(trace.nodes, rng)
    capacity = 1000 * sum(len(node.gpus) for node in trace.nodes)
    share = np.array(
        [task.requirement.resources.gpu_milli // max(1, task.requirement.gpu_count) for task in trace.tasks]
    )
    cards = np.array([task.requirement.gpu_count for task in trace.tasks])
    placing = Placing(fleet, trace.shapes, policy)
    arrived, story = 0, []
    for number in inflate(share, cards, capacity, rng):
        asked = trace.tasks[number].requirement
        arrived += asked.resources.gpu_milli
        placed = placing.place_one(trace.shapes.index(asked)) is not None
        if arrived <= 1.3 * capacity:
            held = sum(each.requirement.resources.gpu_milli for each in fleet.ledger.values())
            story.append((100 * arrived / capacity, 100 * held / capacity, kind_of(asked), placed))
    return story


@pytest.mark.parametrize("seed", [42, 43])
@pytest.mark.parametrize("policy", ["best-fit", "spread"])
def test_the_curves_are_those_of_placing_one_task_after_the_other(trace, policy, seed):
    story, run = replayed(trace, policy, seed), run_inflation(trace, policy, seed)
    expected = 0.0
    for percent in range(131):
        here = [held for load, held, _, _ in story if round(load) == percent]
        expected = np.mean(here) if here else expected
        assert run.allocation[percent] == pytest.approx(expected)
        for kind in TraceKind:
            failed = sum(load <= percent and not placed and kind == of for load, _, of, placed in story)
            assert run.failed[kind][percent] == failed
    assert run.arrived == {kind: sum(of == kind for _, _, of, _ in story) for kind in TraceKind}
    assert sum(failed[-1] for failed in run.failed.values()) > 0, "the load goes beyond what there is"


def test_the_same_seed_gives_the_same_run_and_another_seed_another(trace):
    assert run_inflation(trace, "best-fit", 7) == run_inflation(trace, "best-fit", 7)
    assert run_inflation(trace, "best-fit", 7) != run_inflation(trace, "best-fit", 8)


def test_policies_see_the_same_arrivals(trace):
    assert run_inflation(trace, "best-fit", 7).arrived == run_inflation(trace, "spread", 7).arrived


def test_arrivals_are_the_shuffled_trace_and_then_draws_until_the_load_is_reached():
    shares, cards = np.array([500, 1000, 1000, 0]), np.array([1, 1, 4, 0])
    order = inflate(shares, cards, 10_000, np.random.default_rng(3))
    assert sorted(order[:4].tolist()) == [0, 1, 2, 3]
    arrived = (shares * cards)[order].sum()
    assert 13_000 - 1000 < arrived <= 13_000 + 3000, "the last draw is judged by its share of one card"


def waste(fleet, row, asked):
    """F(m) as the paper says it, for one node and one task."""
    node = fleet.nodes[row]
    left = [1000 - 1000 * sum(_part(held) for held in fleet.holders[card].values()) for card in fleet.cards_on(row)]
    need = 0 if not asked.gpu_count else 1000 if asked.part is None else asked.part.compute_ppm // 1000
    models = asked.cards.models
    runs = asked.gpu_count > 0 and fleet.cpu_free[row] >= asked.cpu_milli
    runs = runs and sum(share >= need for share in left) >= asked.gpu_count
    runs = runs and (not models or node.gpus[0].model in models)
    return sum(share for share in left if share < need) if runs else sum(left)


def _part(charge):
    return 1 if charge is None else charge.compute / 1_000_000


def test_fragmentation_is_the_expected_waste_over_the_typical_workload(trace):
    fleet = Fleet(trace.nodes)
    placing = Placing(fleet, trace.shapes, "spread")
    workload = typical_workload(task.requirement for task in trace.tasks)
    for start in range(0, 40, 8):
        placing.place(trace.shape_numbers[start : start + 8])
        expected = 0.0
        for each, popularity in zip(workload.classes, workload.popularity, strict=True):
            text = f"cpu={each.cpu_milli // 1000},gpu={each.share_milli / 1000 if each.cards == 1 else each.cards}"
            text += f",gpu_model={'|'.join(each.models)}" if each.models else ""
            asked = ResourceRequirement.from_string(text)
            rows = [row for row, node in enumerate(fleet.nodes) if node.gpus]
            expected += popularity * sum(waste(fleet, row, asked) for row in rows)
        assert placing.fragmentation(workload) == pytest.approx(expected)
    assert placing.allocated_milli() > 0


def test_the_typical_workload_covers_95_percent_and_adds_up_to_one():
    asked = [ResourceRequirement.of(1, gpu=1)] * 90 + [ResourceRequirement.of(2, gpu=1)] * 6
    workload = typical_workload([*asked, *(ResourceRequirement.of(n, gpu=2) for n in range(1, 5))])
    assert [(each.cpu_milli, each.cards) for each in workload.classes] == [(1000, 1), (2000, 1)]
    assert workload.popularity == pytest.approx((90 / 96, 6 / 96))


def test_a_released_uid_can_be_placed_again():
    fleet = Fleet([Node("n", 8000, 1 << 30, (Gpu("g", 0),))])
    placing = Placing(fleet, (ResourceRequirement.of(1, gpu=1), ResourceRequirement.of(1)), "best-fit")
    held = placing.place_one(0)
    assert placing.allocated_milli() == 1000
    assert placing.place(np.array([0, 1])).tolist() == [NOT_PLACED, 0]
    placing.release(held)
    assert placing.allocated_milli() == 0
    assert placing.place_one(0) is not None


@pytest.mark.parametrize(
    ("nodes", "task", "message"),
    [
        ((Node("n", 1000, 1 << 30),), TraceTask("t", ResourceRequirement.of(1, gpu=1)), "no node of tiny has a card"),
        ((Node("n", 1000, 0, (Gpu("g", 0),)),), TraceTask("t", ResourceRequirement.of(1)), "requests a card"),
        ((Node("n", 1000, 0, (Gpu("g", 0),)),), TraceTask("t", ResourceRequirement.of(1, gpu=1), units=2), "--churn"),
    ],
)
def test_a_trace_that_cannot_be_inflated_is_refused(nodes, task, message):
    with pytest.raises(InvalidRequest, match=message):
        run_inflation(Trace("tiny", nodes, (task,)), "best-fit", 1)
