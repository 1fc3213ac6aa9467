"""Sessions that run after others, or at a time.

What a session still waits for is stored with it (`SessionInfo.awaits`). It changes in the same write as the end of the
other session, so a restart and the deletion of the other session change nothing. No cycle can arise: a session names
only sessions that exist when it is created, and its dependencies never change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from ullage.core.explaining.explain import Reasons
from ullage.model.counted import counted
from ullage.model.dependency import Dependency, DependencyKind
from ullage.model.error import Conflict, invalid
from ullage.model.nearest import Missing
from ullage.model.rejection import Code
from ullage.model.session import SessionInfo, SessionSpec
from ullage.model.session_state import NEVER
from ullage.model.task import TaskState
from ullage.service.context import ServiceContext
from ullage.service.state import SessionRecord, State
from ullage.service.store_port import PutSession


class Dependencies:
    """Holds sessions back until what they wait for has happened; `cancel` ends one for which it cannot any more."""

    def __init__(self, context: ServiceContext, cancel: Callable[[SessionRecord, str], None]) -> None:
        self._state, self._journal, self._changed = context.state, context.journal, context.changed
        self._cancel = cancel
        self._waiting: dict[str, dict[str, None]] = {}
        self._to_start: set[str] = set()
        """Sessions whose start others wait for."""
        self._begins: set[float] = set()
        self._ended: deque[SessionRecord] = deque()
        self._judging = False

    def of_new(self, session_id: str | None, spec: SessionSpec) -> tuple[Dependency, ...]:
        """Return the dependencies of a new session that are not fulfilled yet.

        Raises:
            NotFound: a session does not exist. InvalidRequest: it is the new one.
            Conflict: the dependency can never be fulfilled.

        """
        awaits = []
        for dependency in spec.after:
            if dependency.session == session_id:
                raise invalid("after", str(dependency), "a session cannot wait for itself; name another one")
            record = self._state.sessions.get(dependency.session)
            if record is None:
                more = f". It is named by after={dependency}; `ullage sessions` lists all sessions"
                raise Missing("session", dependency.session, self._state.sessions, field="after", more=more)
            fulfilled = _fulfilled(dependency, record)
            if fulfilled is False:
                text = f"{dependency} can never be fulfilled: {_how_it_ended(record)}"
                raise Conflict(text, code="dependency-failed", field="after")
            if fulfilled is None:
                awaits.append(dependency)
        return tuple(awaits)

    def add(self, record: SessionRecord) -> None:
        """Watch what a session waits for."""
        for dependency in record.session.awaits:
            self._waiting.setdefault(dependency.session, {})[record.id] = None
            if dependency.kind is DependencyKind.START:
                self._to_start.add(dependency.session)
        self.watch_begin(record)

    def watch_begin(self, record: SessionRecord) -> None:
        """Watch the time at which a session begins, if it has one. Watching one that has changed does no harm."""
        if record.session.spec.begin_at is not None:
            self._begins.add(record.session.spec.begin_at)

    def resume(self) -> None:
        """After a restart, watch what all sessions wait for."""
        for record in self._state.sessions.values():
            if record.takes_tasks:
                self.add(record)
        for session in tuple(self._waiting):
            self._judge(session)

    def ended(self, record: SessionRecord) -> None:
        """Continue with the sessions that waited for the end of this one. Ends in a chain are handled one by one."""
        self._ended.append(record)
        if self._judging:
            return
        self._judging = True
        try:
            while self._ended:
                self._judge(self._ended.popleft().id)
        finally:
            self._judging = False

    def expire(self, now: float) -> float | None:
        """Continue with sessions whose time has come, or after whose start they run. Return when the next begins."""
        for session in tuple(self._to_start):
            record = self._state.sessions.get(session)
            if record is None or _started(record):
                self._to_start.discard(session)
                self._judge(session)
        for begin in tuple(self._begins):
            if begin <= now:
                self._begins.remove(begin)
                self._changed(True)
        return min(self._begins, default=None)

    def _judge(self, session: str) -> None:
        record = self._state.sessions.get(session)
        for name in tuple(self._waiting.get(session, ())):
            waiting = self._state.sessions.get(name)
            if waiting is None or not waiting.takes_tasks:
                self._waiting[session].pop(name)
            else:
                self._judge_one(waiting, session, record)
        if not self._waiting.get(session):
            self._waiting.pop(session, None)
            self._to_start.discard(session)

    def _judge_one(self, waiting: SessionRecord, session: str, record: SessionRecord | None) -> None:
        """Drop what is fulfilled of what one session waits for, or cancel it if that cannot happen any more."""
        left = []
        for dependency in waiting.session.awaits:
            fulfilled = None
            if dependency.session == session:
                fulfilled = False if record is None else _fulfilled(dependency, record)
            if fulfilled is False:
                how = f"{session} was deleted" if record is None else _how_it_ended(record)
                self._waiting[session].pop(waiting.id)
                self._cancel(waiting, f"it was to run after {dependency}, which cannot happen any more: {how}")
                return
            if fulfilled is None:
                left.append(dependency)
        if not any(dependency.session == session for dependency in left):
            self._waiting[session].pop(waiting.id)
        if len(left) < len(waiting.session.awaits):
            waiting.session = replace(waiting.session, awaits=tuple(left))
            self._journal.write(PutSession(waiting.session))
            self._changed(True)


def _fulfilled(dependency: Dependency, record: SessionRecord) -> bool | None:
    """Return whether it has happened; None if it still can."""
    if dependency.kind is DependencyKind.START and _started(record):
        return True
    if record.open:
        return None
    if dependency.kind is DependencyKind.END:
        return True
    return dependency.kind is not DependencyKind.START and (dependency.kind is DependencyKind.OK) == _succeeded(record)


def _started(record: SessionRecord) -> bool:
    """Return whether one of its tasks was started by an executor."""
    return any(record.counts[state] for state in (TaskState.RUNNING, TaskState.SUCCEED, TaskState.FAILED))


def _succeeded(record: SessionRecord) -> bool:
    return not (record.session.cancelled or record.counts[TaskState.FAILED] or record.counts[TaskState.CANCELLED])


def _how_it_ended(record: SessionRecord) -> str:
    if _succeeded(record):
        return f"{record.id} ended without a failure" if _started(record) else f"{record.id} ended without a start"
    failed, cancelled = record.counts[TaskState.FAILED], record.counts[TaskState.CANCELLED]
    parts = [f"{counted(n, 'task')} {how}" for n, how in ((failed, "failed"), (cancelled, "cancelled")) if n]
    return f"{record.id} ended with {' and '.join(parts)}" if parts else f"{record.id} was cancelled"


def text_of_waits(session: SessionInfo, state: State) -> str:
    """Return what a session waits for, and how far these sessions are."""
    return "; ".join(f"{each.meaning}, which {_progress(state, each.session)}" for each in session.awaits)


def with_dependencies(reasons: Reasons, session: SessionInfo, waits: str) -> Reasons:
    """Return why a session waits, with the sessions or the time that it waits for, or why it was cancelled."""
    if reasons.code is Code.CLOSED and session.cancel_reason:
        return replace(reasons, summary=f"{reasons.summary}: {session.cancel_reason}")
    if reasons.code is Code.DEPENDENCY:
        return replace(reasons, summary=f"it waits for {waits}")
    if reasons.code is Code.BEGIN_TIME and session.spec.begin_at is not None:
        begin = session.spec.begin_at
        how = "it is held until its begin is changed" if begin >= NEVER else f"it begins at {_time_text(begin)}"
        return replace(reasons, summary=how)
    return reasons


def _progress(state: State, session: str) -> str:
    """Return how far a session is."""
    record = state.sessions.get(session)
    if record is None or not record.open:
        return "has ended"
    running, pending = record.counts[TaskState.RUNNING], record.pending
    if running:
        return f"has {counted(running, 'running task')} and {pending} pending"
    return f"waits with {counted(pending, 'pending task')}" if pending else "is open without tasks"


def _time_text(at: float) -> str:
    try:
        return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="seconds")
    except (OverflowError, ValueError, OSError):  # beyond the years of a calendar
        return f"{at:g} s after 1970"
