"""The signals that programs get before a time limit or an eviction ends them (`model/early_signal.py`)."""

from __future__ import annotations

from typing import NamedTuple

from ullage.core.sharing.world import EVICTIONS
from ullage.model.early_signal import parse_signal
from ullage.service.context import ServiceContext
from ullage.service.engine_port import SignalOrder
from ullage.service.state import ExecutorRecord, TaskRecord


class _End(NamedTuple):
    """When a task will be ended. `cause` tells two ends of one task apart; `text` is for its log."""

    at: float
    cause: str
    text: str


class EarlySignals:
    """Sends each running task the signal of its session once before each end. A cancel is no end that waits."""

    def __init__(self, context: ServiceContext) -> None:
        self._state, self._engine, self._policy = context.state, context.engine, context.policy

    def expire(self, now: float) -> float | None:
        """Send what is due. Return when the next signal is due.

        If an eviction leaves less time than the session asks for, the signal is sent at once.
        """
        due: list[float] = []
        for executor in self._state.executors.values():
            task = next(iter(executor.tasks.values()), None)  # those behind it have not started
            if task is None or task.ending is not None or executor.stopping or task.session.session.spec.signal is None:
                continue
            asked, end = parse_signal(task.session.session.spec.signal), self._end_of(executor, task)
            if end is None or task.signalled == end.cause:
                continue
            if end.at - asked.before_s > now:
                due.append(end.at - asked.before_s)
                continue
            task.signalled = end.cause
            text = f"{asked.name}, {max(0.0, end.at - now):.3g} s before {end.text}"
            self._engine.signal(executor.id, SignalOrder(task.claim or 0, asked.number, text))
        return min(due, default=None)

    def _end_of(self, executor: ExecutorRecord, task: TaskRecord) -> _End | None:
        """Return the next end of the task that is known; None if nothing ends it."""
        ends: list[_End] = []
        limit, grace, eviction = self._state.timeout_of(task.session), self._policy.reclaim_grace_s, executor.eviction
        if limit is not None:
            ends.append(_End(task.handed_out_at + limit, "limit", f"its time limit of {limit:g} s"))
        if eviction is not None and grace is not None:
            text = f"its eviction for session {eviction.winner}: {EVICTIONS[eviction.cause]}"
            ends.append(_End(executor.since + grace, "eviction", text))
        return min(ends, default=None)
