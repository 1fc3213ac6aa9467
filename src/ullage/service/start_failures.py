"""Executors that fail to start: counted per session, tried again after growing pauses, given up at a limit."""

from __future__ import annotations

from dataclasses import replace

from ullage.core.explaining.explain import Reasons
from ullage.model.counted import counted
from ullage.model.event import BIND_FAILED, RETRY_LIMIT_REACHED
from ullage.model.executor import BindCode
from ullage.model.quantity import format_bytes
from ullage.model.rejection import Code
from ullage.model.session import RETRY_LIMIT, SessionInfo
from ullage.service.context import ServiceContext
from ullage.service.state import ExecutorRecord, SessionRecord
from ullage.service.store_port import PutSession

FIRST_PAUSE_S = 1.0
"""Seconds before the third attempt; each later one waits twice as long. The second follows at once."""


class StartFailures:
    """Counts failures, and says when a session may have executors again."""

    def __init__(self, context: ServiceContext) -> None:
        self._state, self._journal, self._events = context.state, context.journal, context.events
        self._clock, self._changed = context.clock, context.changed

    def failed(self, record: SessionRecord, executor: ExecutorRecord, code: BindCode, message: str) -> None:
        """Count an executor that did not start, could not join its session, or ended before its first task."""
        text = f"executor {executor.id} on node {executor.node} failed with code {int(code)}: {message}"
        self._events.add("session.bind-failed", record.id, code=BIND_FAILED, message=text, return_code=int(code))
        failures = max(record.session.bind_failures, executor.failures_before) + 1
        self._count(record, failures)
        record.last_failure = text
        record.retry_at = self._clock() + _pause_s(failures)
        if failures == RETRY_LIMIT:
            text = f"no new executor after {RETRY_LIMIT} failures; mend the cause, then retry it"
            self._events.add("session.retry-limit", record.id, code=RETRY_LIMIT_REACHED, message=text)

    def started(self, record: SessionRecord, executor: ExecutorRecord) -> None:
        """Reset the count: an executor can take tasks. It counts again if that one ends before its first task."""
        executor.failures_before = record.session.bind_failures
        if record.session.bind_failures:
            self._count(record, 0)

    def expire(self, now: float) -> float | None:
        """Let sessions whose pause is over have executors again. Return when the next pause ends."""
        waiting = [record for record in self._state.sessions.values() if record.retry_at]
        for record in waiting:
            if record.retry_at <= now:
                record.retry_at = 0.0
                self._changed(True)
        return min((record.retry_at for record in waiting if record.retry_at), default=None)

    def _count(self, record: SessionRecord, failures: int) -> None:
        record.session = replace(record.session, bind_failures=failures)
        self._journal.write(PutSession(record.session))


def _pause_s(failures: int) -> float:
    return 0.0 if failures == 1 else FIRST_PAUSE_S * 2.0 ** (min(failures, RETRY_LIMIT) - 2)


def with_failures(reasons: Reasons, session: SessionInfo, last_failure: str) -> Reasons:
    """Return why a session waits, with its last failure and what would help if its executors fail to start."""
    if reasons.code is not Code.BIND_FAILURES:
        return reasons
    failures, spec = session.bind_failures, session.spec
    tried = counted(failures, "time") if failures >= RETRY_LIMIT else f"{failures} of {RETRY_LIMIT} times"
    last = last_failure or f"`ullage events --session {session.id}` shows each"
    helps = [] if failures < RETRY_LIMIT else [f"mend the cause, then `ullage retry {session.id}`"]
    if "memory limit" in last:
        helps.insert(0, f"ask for more memory than mem={format_bytes(spec.resreq.memory_bytes)}")
    return replace(
        reasons,
        summary=f"its executors fail to start, {tried} so far; the last: {last}",
        suggestions=(*helps, *reasons.suggestions),
    )
