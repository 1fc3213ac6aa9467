"""Churn against a simulation in small steps of time, and the order of turns."""

import random
from collections import Counter

import pytest

from ullage.core.books.fleet import Fleet
from ullage.core.sharing.shares import Leaf, ShareTree
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.queue import Queue
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources
from ullage.sim.churn import SAMPLES, run_churn
from ullage.sim.placing import Placing
from ullage.sim.trace import Trace, TraceKind, TraceTask
from ullage.sim.waiting import Group, Turn, Waiting


def node(name, cards=2, cpu=64):
    return Node(name, cpu * 1000, 1 << 40, tuple(Gpu(f"{name}/{n}", n) for n in range(cards)))


def task(name, gpu, arrival, duration, **more):
    return TraceTask(name, ResourceRequirement.of(1, gpu=gpu), arrival, duration, **more)


def random_trace(seed):
    draw = random.Random(seed)
    texts = ["cpu=1,gpu=1", "cpu=2,gpu=0.5", "cpu=1,gpu=2", "cpu=4", "cpu=1,gpu=0.3"]
    tasks = tuple(
        TraceTask(
            f"t{n}",
            ResourceRequirement.from_string(draw.choice(texts)),
            draw.randrange(60),
            draw.randrange(1, 30),
            queue=draw.choice("ab"),
            units=draw.choice((1, 1, 1, 2)),
        )
        for n in range(40)
    )
    return Trace("random", (node("n0", cpu=8), node("n1", cards=1, cpu=8)), tasks)


def stepped(trace):
    """First come, first tried, second by second: when each task started, and what is held each second."""
    fleet = Fleet(trace.nodes)
    placing = Placing(fleet, trace.shapes, "best-fit")
    order = sorted(range(len(trace.tasks)), key=lambda n: trace.tasks[n].arrival_s)
    first = trace.tasks[order[0]].arrival_s
    started, running, held = {}, {}, []
    for second in range(2000):
        now = first + second
        for number in [n for n in running if started[n] + trace.tasks[n].duration_s == now]:
            for each in running.pop(number):
                placing.release(each)
        for number in order:
            here = trace.tasks[number]
            if number in started or here.arrival_s > now:
                continue
            ids = [placing.place_one(trace.shapes.index(here.requirement)) for _ in range(here.units)]
            if None in ids:
                for each in ids:
                    if each is not None:
                        placing.release(each)
            else:
                started[number], running[number] = now, ids
        held.append(placing.allocated_milli())
    return {n: started[n] - trace.tasks[n].arrival_s for n in started}, held


@pytest.mark.parametrize("seed", range(5))
def test_tasks_start_and_end_as_they_do_second_by_second(monkeypatch, seed):
    monkeypatch.setattr("ullage.sim.churn.shuffled", lambda nodes, _rng: Fleet(nodes))
    trace = random_trace(seed)
    waits, held = stepped(trace)
    run = run_churn(trace, "best-fit", 1)
    assert run.started == len(waits)
    assert run.waits.mean_s == pytest.approx(sum(waits.values()) / len(waits))
    assert run.waits.worst_s == max(waits.values())
    assert max(waits.values()) > 0, "there is something to wait for"
    until = int(max(each.arrival_s for each in trace.tasks) - min(each.arrival_s for each in trace.tasks))
    assert run.mean_allocation == pytest.approx(100 * sum(held[:until]) / until / 3000)
    assert len(run.allocation) == len(run.fragmentation) == len(run.at_s) == SAMPLES + 1
    for at, percent in zip(run.at_s, run.allocation, strict=True):
        if at != int(at):
            assert percent == pytest.approx(held[int(at)] / 30)


def test_fitting_tasks_pass_waiting_ones_and_a_wide_task_gets_whole_room():
    tasks = (task("a", 1, 0, 10), task("b", 2, 1, 5), task("c", 1, 2, 3))
    run = run_churn(Trace("t", (node("n"),), tasks), "best-fit", 1)
    assert (run.waits.worst_s, run.started, run.ended_s) == (9, 3, 15), "b waits for a alone; c ran beside a"
    assert run.mean_jct_s == (10 + 14 + 3) / 3


def test_units_start_together_or_not_at_all():
    gang = (task("a", 2, 0, 10), task("b", 2, 1, 5, units=2), task("c", 2, 2, 3))
    run = run_churn(Trace("t", (node("n0"), node("n1")), gang), "best-fit", 1)
    assert (run.started, run.waits.worst_s, run.waits.p50_s, run.ended_s) == (3, 9, 0, 15)


def test_a_task_that_never_fits_is_counted_and_blocks_no_other():
    tasks = (task("a", 8, 0, 10), task("b", 1, 0, 10))
    run = run_churn(Trace("t", (node("n"),), tasks), "best-fit", 1)
    assert (run.started, run.never, run.waits.worst_s) == (1, {k: int(k is TraceKind.WIDE) for k in TraceKind}, 0)


def test_the_order_of_turns():
    tasks = (
        task("running", 2, 0, 10, queue="a"),
        task("old", 2, 1, 10, queue="a"),
        task("urgent", 2, 2, 10, queue="a", priority=5),
        task("poor", 2, 3, 10, queue="b"),
        task("rich", 1, 0, 100, queue="a"),
    )
    trace = Trace("t", (node("n", cards=3),), tasks)
    order = {
        turn: run_churn(trace, "best-fit", 1, turn).waits for turn in Turn
    }  # the three wait for two cards, one after the other
    assert order[Turn.FIFO].mean_s == (9 + 18 + 27) / 5
    assert order[Turn.PRIORITY].mean_s == (8 + 19 + 27) / 5
    assert order[Turn.DRF].mean_s == (7 + 18 + 29) / 5
    assert order[Turn.DRF].worst_s == 29


def test_dominant_resource_fairness_gives_the_papers_answer():
    """9 cores and 18 GB: A asks <1 core, 4 GB>, B <3 cores, 1 GB>: A runs 3 tasks and B 2."""
    machine = Node("n", 9000, 18 << 30, (Gpu("g", 0),))
    asks = {"a": ResourceRequirement.of(1, "4g"), "b": ResourceRequirement.of(3, "1g")}
    first = TraceTask("filler", ResourceRequirement.of(9, "18g"), 0, 5, queue="c")
    tasks = (first, *(TraceTask(f"{q}{n}", asks[q], 1, 100, queue=q) for q in "ab" for n in range(6)))
    run = run_churn(Trace("drf", (machine,), tasks), "best-fit", 1, Turn.DRF)
    # 3 of A and 2 of B start at 5, the next three and two at 105, and two of B at 205
    assert run.waits.mean_s == pytest.approx((5 * 4 + 5 * 104 + 2 * 204) / 13)


def test_the_amounts_of_each_queue_follow_the_share_tree():
    groups = {Group(q, 0, 0, 1): Resources(gpu_milli=1000) for q in ("a", "b", "c1", "c2")}
    queues = (Queue("a", weight=2), Queue("c"), Queue("c1", "c"), Queue("c2", "c"))
    waiting = Waiting(Turn.DRF, Resources(gpu_milli=8000), groups, [ResourceRequirement(gpu_count=1)], queues)
    of = {}
    for number in range(32):
        of[number] = tuple(groups)[number % 4]
        waiting.add(number, of[number])
    started = []
    waiting.start(lambda number: len(started) < 8 and not started.append(number))
    assert Counter(of[number].queue for number in started) == {"a": 4, "b": 2, "c1": 1, "c2": 1}
    waiting.start(lambda _number: pytest.fail("nothing ended"))
    for _ in range(2):
        waiting.ended(of[0])
    waiting.retry(1)
    waiting.start(lambda number: len(started) < 10 and not started.append(number))
    assert [of[number].queue for number in started[8:]] == ["a", "a"], "its share fell when its tasks ended"


@pytest.mark.parametrize("seed", range(20))
def test_tasks_start_in_the_order_in_which_the_scheduler_serves_as_many_sessions(seed):
    draw = random.Random(seed)
    shapes = [ResourceRequirement(gpu_count=n) for n in (1, 2, 3)]
    queues = (Queue("a", weight=2), Queue("b"), Queue("c", "b", weight=3), Queue("d", "b"))
    tasks = [Group(draw.choice("acd"), draw.choice((0, 0, 4)), draw.randrange(3), 1) for _ in range(30)]
    total, room = Resources(gpu_milli=24_000), [24]

    def grant(number):
        asked = shapes[tasks[number].shape].gpu_count
        found = asked <= room[0]
        room[0] -= asked if found else 0
        return found

    groups = {group: Resources(gpu_milli=shapes[group.shape].gpu_count * 1000) for group in tasks}
    waiting, started = Waiting(Turn.DRF, total, groups, shapes, queues), []
    for number, group in enumerate(tasks):
        waiting.add(number, group)
    waiting.start(lambda number: grant(number) and not started.append(number))

    served, room[0] = [], 24
    sessions = [
        Leaf(f"{n:02}", group.queue, (0, 0, groups[group].gpu_milli), priority=group.priority, number=n, target=1)
        for n, group in enumerate(tasks)
    ]
    tree = ShareTree(total, queues, sessions)
    tree.fill(lambda leaf: None if grant(leaf.number) and not served.append(leaf.number) else Code.GPU)
    assert started == served
    assert len(started) > 8


def test_only_requests_that_may_have_room_are_retried():
    shapes = [ResourceRequirement(gpu_count=n) for n in (1, 2, 4)]
    groups = {Group("q", 0, n, 1): Resources(gpu_milli=s.gpu_count * 1000) for n, s in enumerate(shapes)}
    waiting = Waiting(Turn.FIFO, Resources(gpu_milli=8000), groups, shapes)
    for number, group in enumerate(reversed(groups)):
        waiting.add(number, group)
    tried = []
    waiting.start(lambda number: bool(tried.append(number)))
    assert tried == [0, 1, 2], "four cards, two, one"
    waiting.retry(2)
    waiting.start(lambda number: bool(tried.append(number)))
    assert tried[3:] == [1, 2]
    waiting.add(3, next(iter(groups)))
    waiting.start(lambda _number: pytest.fail("one card was tried already"))


def test_a_task_without_a_duration_is_refused():
    trace = Trace("t", (node("n"),), (TraceTask("endless", ResourceRequirement.of(1)),))
    with pytest.raises(InvalidRequest, match="endless of t has no duration"):
        run_churn(trace, "best-fit", 1)
