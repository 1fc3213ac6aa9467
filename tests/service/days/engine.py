"""Workers that take their time, and what happens when on a virtual clock."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from ullage.model.executor import BindCode
from ullage.service.engine_port import (
    BindOrder,
    Completed,
    EngineEvent,
    ExecutorBound,
    ExecutorGone,
    LaunchOrder,
    NoTerminals,
    Registered,
    SignalOrder,
    TaskOrder,
    TaskOutcome,
    Unbound,
)


class Agenda:
    """What happens when, in order."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, time: float, work: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._entries, (time, self._number, work))

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        self.at(self.now + seconds, work)

    @property
    def next(self) -> float:
        return self._entries[0][0] if self._entries else inf

    def due(self) -> Iterator[Callable[[], None]]:
        while self._entries and self._entries[0][0] <= self.now:
            yield heapq.heappop(self._entries)[2]


@dataclass
class Worker:
    tasks: deque[TaskOrder] = field(default_factory=deque)
    entering: BindOrder | None = None
    leaving: bool = False
    ended: bool = False


class SlowEngine(NoTerminals):
    """Workers that take their time; `seconds` says how long each task of a session takes."""

    def __init__(self, agenda: Agenda, rng: random.Random, seconds: Callable[[str], float], failing: set[str]) -> None:
        self.agenda, self.rng, self.seconds, self.failing = agenda, rng, seconds, failing
        self.workers: dict[str, Worker] = {}
        self.report: Callable[[EngineEvent], None] = lambda _: None
        self.dead = False

    def _later(self, most: float, work: Callable[[], None]) -> None:
        self.agenda.after(self.rng.choice((0.0, self.rng.uniform(0, most))), lambda: self.dead or work())

    def launch(self, order: LaunchOrder) -> None:
        self.workers[order.executor] = Worker()
        self._later(3.0, lambda: self._alive(order.executor) and self.report(Registered(order.executor, 1)))

    def bind(self, order: BindOrder) -> None:
        self.workers[order.executor].entering = order

        def enter() -> None:
            worker = self.workers.get(order.executor)
            if self._alive(order.executor) and worker is not None and worker.entering is order:
                worker.entering = None
                code = BindCode.ENTER_FAILED if order.session in self.failing else BindCode.OK
                self.report(ExecutorBound(order.executor, code))

        self._later(1.0, enter)

    def hand_out(self, executor: str, tasks: Sequence[TaskOrder]) -> None:
        worker = self.workers[executor]
        idle = not worker.tasks
        worker.tasks.extend(tasks)
        if idle:
            self._run(executor)

    def _run(self, executor: str) -> None:
        task = self.workers[executor].tasks[0]
        started = self.agenda.now

        def end() -> None:
            worker = self.workers.get(executor)
            if self._alive(executor) and worker is not None and worker.tasks and worker.tasks[0] is task:
                worker.tasks.popleft()
                outcome = TaskOutcome(task.task, task.claim, 0, b"", "", started, self.agenda.now)
                self.report(Completed(executor, (outcome,)))
                if worker.tasks and worker.tasks[0] is not task and not worker.ended:
                    self._run(executor)
                self._leave(executor)

        self.agenda.after(self.seconds(task.session), lambda: self.dead or end())

    def unbind(self, executor: str) -> None:
        self.workers[executor].leaving, self.workers[executor].entering = True, None
        self._leave(executor)

    def _leave(self, executor: str) -> None:
        worker = self.workers.get(executor)
        if worker is not None and worker.leaving and not worker.tasks:
            worker.leaving = False
            self._later(0.5, lambda: self._alive(executor) and self.report(Unbound(executor)))

    def stop(self, executor: str, grace_s: float) -> None:
        if self._alive(executor):
            self.workers[executor].ended = True
            self._later(min(3.0, grace_s), lambda: self._gone(executor, "stopped"))

    def signal(self, executor: str, order: SignalOrder) -> None:
        """No session of these days asks for a signal."""

    def note(self, logs: str, task: int, text: str) -> None:
        """Keep no logs."""

    def kill(self, executor: str) -> None:
        self.workers[executor].ended = True
        self._gone(executor, "killed")

    def _gone(self, executor: str, reason: str) -> None:
        if self.workers.pop(executor, None) is not None:
            self.report(ExecutorGone(executor, reason))

    def _alive(self, executor: str) -> bool:
        return executor in self.workers and not self.workers[executor].ended
