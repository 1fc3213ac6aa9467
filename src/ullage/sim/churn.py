"""Churn: tasks arrive at their times, wait for room, run for their duration, and end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.sharing.shares import dominant_share
from ullage.core.strategies.workload import Workload, typical_workload
from ullage.model.error import InvalidRequest
from ullage.sim.arrivals import shuffled
from ullage.sim.fairness import Fairness, FairnessJob, WaitingQueues, fairness_of, mean_jct
from ullage.sim.inflation import capacity_milli
from ullage.sim.placing import Placing
from ullage.sim.rows import CODE
from ullage.sim.trace import Trace, TraceKind, kind_of
from ullage.sim.waiting import Group, Turn, Waiting

SAMPLES = 200
"""Equal intervals between the first and the last arrival. There is one more value, for the beginning."""


@dataclass(frozen=True, slots=True)
class ChurnWaits:
    """Seconds from arrival to start, over tasks that started."""

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    worst_s: float


@dataclass(frozen=True, slots=True)
class Churned:
    """One run. `allocation` and `fragmentation` are percent of all cards at the times of `at_s`.

    `mean_allocation` is a mean over the time from the first to the last arrival, `mean_fragmentation` a mean of the
    samples. `mean_jct_s` is the mean job completion time (arrival to end) of ended tasks. `never` counts, by kind,
    tasks that do not fit even if nothing runs. `ended_s` is the end of the last task. Times count from the first
    arrival.
    """

    at_s: list[float]
    allocation: list[float]
    fragmentation: list[float]
    mean_allocation: float
    mean_fragmentation: float
    waits: ChurnWaits
    mean_jct_s: float
    fairness: Fairness
    started: int
    never: dict[str, int]
    ended_s: float


def run_churn(trace: Trace, policy: str, seed: int, turn: Turn = Turn.FIFO) -> Churned:
    """Run a trace under a policy; the seed decides the order of nodes.

    Raises:
        InvalidRequest: the policy is unknown, no node has a card, or a task has no duration.

    """
    endless = next((task for task in trace.tasks if task.duration_s is None), None)
    if endless is not None:
        raise InvalidRequest(f"task {endless.name} of {trace.name} has no duration: churn needs one", code=CODE)
    fleet = shuffled(trace.nodes, np.random.default_rng(seed))
    requirements = [task.requirement for task in trace.tasks]
    placing = Placing(fleet, trace.shapes, policy, requirements, seed=seed)
    return _Churn(trace, fleet, placing, typical_workload(requirements), turn=turn).run()


class Samples:
    """Allocation and fragmentation at equal intervals from 0 to `until_s`, and their means."""

    def __init__(self, placing: Placing, capacity: int, workload: Workload, until_s: float) -> None:
        if not capacity:
            raise InvalidRequest("no node has a card: give a node list with cards", code=CODE)
        self._placing, self._capacity, self._workload = placing, capacity, workload
        self.at_s: list[float] = np.linspace(0.0, until_s, SAMPLES + 1).tolist()
        self.allocation: list[float] = []
        self.fragmentation: list[float] = []
        self._until_s, self._now, self._area = until_s, 0.0, 0.0

    def advance(self, to_s: float) -> None:
        """Sample the unchanged state until `to_s`. Later changes count from then on."""
        level = 100 * self._placing.allocated_milli() / self._capacity
        while len(self.allocation) <= SAMPLES and self.at_s[len(self.allocation)] < to_s:
            self.allocation.append(level)
            self.fragmentation.append(100 * self._placing.fragmentation(self._workload) / self._capacity)
        self._area += level * (min(to_s, self._until_s) - min(self._now, self._until_s))
        self._now = to_s

    @property
    def mean_allocation(self) -> float:
        """The mean over the time until `until_s`."""
        return self._area / self._until_s if self._until_s else self.allocation[-1]

    @property
    def mean_fragmentation(self) -> float:
        """The mean of the samples."""
        return sum(self.fragmentation) / len(self.fragmentation)


class _Churn:
    def __init__(
        self,
        trace: Trace,
        fleet: Fleet,
        placing: Placing,
        workload: Workload,
        turn: Turn,
    ) -> None:
        first = min(task.arrival_s for task in trace.tasks)
        order = sorted(range(len(trace.tasks)), key=lambda n: trace.tasks[n].arrival_s)
        self._tasks = [trace.tasks[n] for n in order]
        self._arrivals = [task.arrival_s - first for task in self._tasks]
        shapes: list[int] = trace.shape_numbers[order].tolist()
        self._groups = [
            Group(task.queue, task.priority, shape, task.units) for task, shape in zip(self._tasks, shapes, strict=True)
        ]
        kinds = dict.fromkeys(self._groups)
        self._amounts = {group: fleet.resources(trace.shapes[group.shape]) * group.units for group in kinds}
        self._fleet, self._total = fleet, fleet.total
        self._placing = placing
        self._waiting = Waiting(turn, fleet.total, self._amounts, trace.shapes, queues=trace.queues)
        self._samples = Samples(placing, capacity_milli(fleet), workload, self._arrivals[-1])
        self._queues = WaitingQueues()
        self._ends: list[tuple[float, int]] = []
        self._held: dict[int, list[str]] = {}
        self._started: dict[int, float] = {}
        self._finished: dict[int, float] = {}
        self._now = 0.0

    def run(self) -> Churned:
        arrived, total = 0, len(self._tasks)
        while arrived < total or self._ends:
            coming = self._arrivals[arrived] if arrived < total else float("inf")
            ending = self._ends[0][0] if self._ends else float("inf")
            self._advance(min(coming, ending))
            ended: list[int] = []
            while self._ends and self._ends[0][0] == self._now:  # ends come first: they make room for arrivals
                ended.append(heappop(self._ends)[1])
            if ended:
                self._waiting.retry(max(map(self._end, ended)))
            while arrived < total and self._arrivals[arrived] == self._now:
                self._waiting.add(arrived, self._groups[arrived])
                self._placing.arrived(self._groups[arrived].shape)
                arrived += 1
            self._waiting.start(self._place)
        self._samples.advance(float("inf"))
        return self._result()

    def _advance(self, now: float) -> None:
        self._queues.add(now - self._now, self._waiting.backlogged())
        self._samples.advance(now)
        self._now = now

    def _place(self, number: int) -> bool:
        """Place all units of a task or none. Return whether it was placed."""
        task, shape = self._tasks[number], self._groups[number].shape
        ids: list[str] = []
        for _ in range(task.units):
            placed = self._placing.place_one(shape)
            if placed is None:
                for each in ids:
                    self._placing.release(each)
                return False
            ids.append(placed)
        assert task.duration_s is not None
        self._held[number] = ids
        self._started[number] = self._now
        heappush(self._ends, (self._now + task.duration_s, number))
        return True

    def _end(self, number: int) -> int:
        """End a task. Return the most idle cards of its nodes."""
        fleet, ids = self._fleet, self._held.pop(number)
        rows = {fleet.row_of[fleet.ledger[each].node] for each in ids}
        for each in ids:
            self._placing.release(each)
        self._finished[number] = self._now
        self._waiting.ended(self._groups[number])
        return max(fleet.gpu_free.item(row) for row in rows)

    def _result(self) -> Churned:
        shares = {group: dominant_share(amount, self._total) for group, amount in self._amounts.items()}
        jobs = [
            FairnessJob(self._arrivals[n], finish - self._started[n], finish, shares[self._groups[n]])
            for n, finish in self._finished.items()
        ]
        left = (self._tasks[n] for n in self._waiting.pending())
        never = Counter(kind_of(task.requirement, task.units) for task in left)
        samples = self._samples
        return Churned(
            samples.at_s,
            samples.allocation,
            samples.fragmentation,
            samples.mean_allocation,
            mean_fragmentation=samples.mean_fragmentation,
            waits=waits_of([start - self._arrivals[n] for n, start in self._started.items()]),
            mean_jct_s=mean_jct(jobs),
            fairness=fairness_of(jobs, self._queues),
            started=len(self._started),
            never={kind: never[kind] for kind in TraceKind},
            ended_s=self._now,
        )


def waits_of(waits_s: list[float]) -> ChurnWaits:
    """Return the distribution of waiting times; zeros if nothing started."""
    found = np.array(waits_s or [0.0])
    p50, p95, p99 = np.percentile(found, (50, 95, 99)).tolist()
    return ChurnWaits(float(found.mean()), p50, p95, p99, worst_s=float(found.max()))
