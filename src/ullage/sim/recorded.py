"""Measures of the history of a live server, as of a simulated run."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

from ullage.core.books.fleet import Fleet
from ullage.core.sharing.shares import dominant_share
from ullage.core.strategies.workload import typical_workload
from ullage.model.resources import Resources
from ullage.sim.churn import Churned, Samples, waits_of
from ullage.sim.fairness import FairnessJob, WaitingQueues, fairness_of, mean_jct
from ullage.sim.inflation import capacity_milli
from ullage.sim.journal import History
from ullage.sim.placing import Placing
from ullage.sim.trace import TraceKind

_UNUSED_POLICY = "best-fit"
"""`Placing` needs a policy, which places nothing here."""


class _Step(IntEnum):
    """The order of steps at the same time."""

    END = 0
    ARRIVE = 1
    START = 2


def run_recorded(history: History) -> Churned:
    """Return the measures of churn for the placements of the server itself.

    Raises:
        InvalidRequest: no node has a card.

    """
    trace, placed = history.trace, history.placed
    fleet = Fleet(trace.nodes)
    placing = Placing(fleet, trace.shapes, _UNUSED_POLICY)
    shapes = trace.shape_numbers.tolist()
    amounts = [fleet.resources(task.requirement) for task in trace.tasks]
    first = min(task.arrival_s for task in trace.tasks)
    last = max(task.arrival_s for task in trace.tasks)
    samples = Samples(
        placing, capacity_milli(fleet), typical_workload(t.requirement for t in trace.tasks), last - first
    )
    queues, now = WaitingQueues(), 0.0
    held: dict[str, Resources] = {}
    waiting: Counter[str] = Counter()
    ids: dict[int, str] = {}
    ends = [start.start_s + (task.duration_s or 0.0) for task, start in zip(trace.tasks, placed, strict=True)]
    steps = [(task.arrival_s, _Step.ARRIVE, n) for n, task in enumerate(trace.tasks)]
    steps += [(start.start_s, _Step.START, n) for n, start in enumerate(placed)]
    steps += [(end, _Step.END, n) for n, end in enumerate(ends) if end > placed[n].start_s]

    for at, step, number in sorted(steps):
        task = trace.tasks[number]
        shares = [dominant_share(held.get(queue, Resources()), fleet.total) for queue in waiting if waiting[queue]]
        queues.add(at - first - now, shares)
        samples.advance(at - first)
        now = at - first
        if step is _Step.ARRIVE:
            waiting[task.queue] += 1
        elif step is _Step.END:
            placing.release(ids.pop(number))
            held[task.queue] -= amounts[number]
        else:
            waiting[task.queue] -= 1
            if ends[number] > placed[number].start_s:  # a task without duration held nothing
                ids[number] = placing.hold(shapes[number], placed[number].node, placed[number].gpus)
                held[task.queue] = held.get(task.queue, Resources()) + amounts[number]
    samples.advance(float("inf"))

    shares_of = [dominant_share(amount, fleet.total) for amount in amounts]
    ended = [end - first for end in ends]
    jobs = [
        FairnessJob(task.arrival_s - first, task.duration_s or 0.0, end, share)
        for task, end, share in zip(trace.tasks, ended, shares_of, strict=True)
    ]
    return Churned(
        samples.at_s,
        samples.allocation,
        samples.fragmentation,
        samples.mean_allocation,
        mean_fragmentation=samples.mean_fragmentation,
        waits=waits_of([start.start_s - task.arrival_s for task, start in zip(trace.tasks, placed, strict=True)]),
        mean_jct_s=mean_jct(jobs),
        fairness=fairness_of(jobs, queues),
        started=len(trace.tasks),
        never=dict.fromkeys(TraceKind, 0),
        ended_s=max(ends) - first,
    )
