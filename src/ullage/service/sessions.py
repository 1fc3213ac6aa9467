"""Sessions: opened, changed, closed, deleted."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import nsmallest

from ullage.model.application import ApplicationState
from ullage.model.counted import counted
from ullage.model.early_signal import check_signal
from ullage.model.error import AlreadyExists, Conflict, invalid
from ullage.model.history import ClosedQuery
from ullage.model.nearest import Missing
from ullage.model.notice import check_host
from ullage.model.queue_bounds import defaults_of, within_bounds
from ullage.model.request import DEFAULT_REQUIREMENT, ResourceRequirement
from ullage.model.session import SessionInfo, SessionSpec, SessionState, check_memory
from ullage.model.task import TaskState
from ullage.service.context import ServiceContext
from ullage.service.dependencies import Dependencies
from ullage.service.journal import Callback, in_one_write
from ullage.service.notices import Notices
from ullage.service.state import SessionRecord
from ullage.service.store_port import DropSession, PutSession
from ullage.service.tasks import Tasks

_COMPARED = ("application", "resreq", "min_instances", "max_instances", "batch_size", "queue", "weight")


class Sessions:
    """Use cases of sessions. `release_executors` takes the executors from a session that is forgotten.

    `default_requirement` is the operator's; None means the built-in one.
    """

    def __init__(
        self,
        context: ServiceContext,
        tasks: Tasks,
        release_executors: Callable[[SessionRecord], None],
        default_requirement: ResourceRequirement | None,
        notify_hosts: Sequence[str] = ("*",),
    ) -> None:
        self._state, self._journal, self._engine = context.state, context.journal, context.engine
        self._events, self._tasks, self._release_executors = context.events, tasks, release_executors
        self._clock, self._changed, self._accounting = context.clock, context.changed, context.accounting
        self.default_requirement = default_requirement or DEFAULT_REQUIREMENT
        self.dependencies = Dependencies(context, self._cancel)
        self.notices = Notices(context)
        self._notify_hosts = notify_hosts

    @in_one_write
    def create(self, session_id: str | None, spec: SessionSpec, done: Callback) -> SessionRecord:
        """Open a session; `done` is called once it is stored.

        Raises:
            NotFound: no such application or queue. Conflict: the application is disabled.
            AlreadyExists: the id is taken. Conflict: what it is to run after can never happen.
            InvalidRequest: the queue has children, it is above a maximum of the queue, no process starts in so
                little memory, or its signal is due before its start.

        """
        application = self._state.application(spec.application)
        if application.state is ApplicationState.DISABLED:
            raise Conflict(f"application {application.name} is disabled; enable it first", code="application-disabled")
        self._check_queue(spec.queue)
        self._state.stops.check(spec)
        spec.resreq.check_not_empty()
        check_memory(spec.resreq)
        if spec.notify is not None:
            check_host(spec.notify, self._notify_hosts)
        spec = within_bounds(self._state.queues, spec, application.task_timeout_s)
        check_signal(spec.signal, application.task_timeout_s if spec.task_timeout_s is None else spec.task_timeout_s)
        if session_id in self._state.sessions:
            text = f"session {session_id} exists already; choose another name, or delete that one once it is closed"
            raise AlreadyExists(text, field="id")
        awaits = self.dependencies.of_new(session_id, spec)
        session_id = self.new_id(spec.application) if session_id is None else session_id
        self._state.session_number += 1
        session = SessionInfo(session_id, spec, self._clock(), self._state.session_number, awaits=awaits)
        record = self._state.sessions[session_id] = SessionRecord(session, foreseen=spec.batch_size)
        for _ in range(spec.batch_size):
            self._state.allocator.learning.see(spec.resreq)
        self.dependencies.add(record)
        self._journal.write(PutSession(session), then=done)
        self._accounting.opened(record)
        self._events.add(
            "session.created",
            session_id,
            application=spec.application,
            resreq=str(spec.resreq),
            queue=spec.queue,
            priority=spec.priority,
        )
        self._changed(True)
        return record

    def default_for(self, queue: str) -> ResourceRequirement:
        """Return the requirement of a session of this queue that states none."""
        return defaults_of(self._state.queues, queue) or self.default_requirement

    def open(self, session_id: str, spec: SessionSpec | None, done: Callback) -> SessionRecord:
        """Get the session of that id, or create it, in one step.

        Raises:
            NotFound: there is none and no `spec` says how to make it. Conflict: it is closed.
            InvalidRequest: it exists with another spec; the message names the field.

        """
        record = self._state.sessions.get(session_id)
        if record is None:
            if spec is None:
                raise self._state.no_session(session_id, "; give a spec to create it")
            return self.create(session_id, spec, done)
        record.session.require_open()
        if spec is not None:
            self._require_same(record.session.spec, spec)
        self._journal.write(then=done)
        return record

    @in_one_write
    def update(self, session_id: str, changes: dict[str, float | None], done: Callback) -> SessionRecord:
        """Change priority, weight, min or max instances, or the begin of an open session.

        Raises:
            NotFound: no such session. Conflict: it is closed. InvalidRequest: a value is out of range.

        """
        record = self._state.session(session_id)
        record.session.require_open()
        spec = replace(record.session.spec, **changes)  # type: ignore[arg-type]  # `changes` has the right types
        record.session = replace(record.session, spec=spec)
        self.dependencies.watch_begin(record)
        self._journal.write(PutSession(record.session), then=done)
        self._events.add("session.updated", session_id, message=", ".join(f"{k}={v}" for k, v in changes.items()))
        self._changed(True)
        return record

    @in_one_write
    def close(self, session_id: str, done: Callback) -> SessionRecord:
        """Close a session; pending tasks become Cancelled. Closing twice is fine.

        Raises:
            NotFound: no such session. Conflict: a task is running.

        """
        record = self._state.session(session_id)
        if record.open:
            running = record.counts[TaskState.RUNNING]
            if running:
                many = counted(running, "running task")
                text = f"session {session_id} has {many}; wait for the end or cancel the session"
                raise Conflict(text, code="tasks-running")
            self._tasks.cancel_all(record)
            self._finish(record)
        self._journal.write(then=done)
        return record

    @in_one_write
    def cancel(self, session_id: str, done: Callback) -> SessionRecord:
        """End all tasks, running ones too, and close the session once they are gone.

        Raises:
            NotFound: no such session.

        """
        record = self._state.session(session_id)
        if record.takes_tasks:
            self._cancel(record, "")
        self._journal.write(then=done)
        return record

    def _cancel(self, record: SessionRecord, reason: str) -> None:
        record.session = replace(record.session, cancelled=True, cancel_reason=reason)
        self._journal.write(PutSession(record.session))
        self._events.add("session.cancelled", record.id, message=reason)
        self._tasks.cancel_with_session(record)
        if not record.tasks:
            self._finish(record)

    def resume(self) -> None:
        """After a restart, end the tasks of sessions that were closed or being cancelled, and resume waits."""
        self.dependencies.resume()
        for record in self._state.sessions.values():
            if record.tasks and not record.takes_tasks:
                self._tasks.cancel_with_session(record)

    def finish_closing(self) -> bool:
        """Close cancelled sessions without tasks, and those that close by themselves.

        Of those with pending tasks some more are cancelled. Return whether any are left.
        """
        are_left = False
        for record in tuple(self._state.sessions.values()):
            if not record.open:
                continue
            if record.session.cancelled:
                self._tasks.cancel_waiting(record, record.session.cancel_reason)
                are_left |= record.pending > 0
            if not record.tasks and (record.session.cancelled or record.spent):
                self._finish(record)
        return are_left

    @in_one_write
    def delete(self, session_id: str, done: Callback) -> None:
        """Delete a closed session.

        Raises:
            NotFound: no such session. Conflict: it is open, or a task is left.

        """
        record = self._state.session(session_id)
        if record.takes_tasks:
            raise Conflict(f"session {session_id} is open; close it before deleting it", code="session-open")
        if record.open or record.tasks:
            text = f"session {session_id} ends: {counted(len(record.tasks), 'task')} left; try again"
            raise Conflict(text, code="session-open")
        self.forget(record)
        self._journal.write(then=done)

    def closed(self, query: ClosedQuery) -> list[SessionRecord]:
        """Return the closed sessions without tasks that match, by number; those that `delete_all` may delete."""
        found = [record for record in self._state.sessions.values() if _matches(record, query)]
        return nsmallest(query.limit, found, key=lambda record: record.session.number)

    @in_one_write
    def delete_all(self, records: Sequence[SessionRecord], done: Callback) -> None:
        """Delete closed sessions without tasks, all or none."""
        for record in records:
            self.forget(record)
        self._journal.write(then=done)

    def forget(self, record: SessionRecord) -> None:
        """Delete a closed session with everything that is stored of it."""
        self._release_executors(record)
        self._events.forget(record.id)
        del self._state.sessions[record.id]
        # Logs go once the session does for good: after a crash in between, the engine finds logs without a session.
        self._journal.write(DropSession(record.id), then=lambda: self._engine.forget(record.session.logs))
        self._changed(False)

    def clear_failures(self, session_id: str, done: Callback) -> SessionRecord:
        """Let a session have new executors again, after the cause of their failures was fixed.

        Raises:
            NotFound: no such session. Conflict: it is closed.

        """
        record = self._state.session(session_id)
        record.session.require_open()
        record.session = replace(record.session, bind_failures=0)
        record.retry_at = 0.0
        self._journal.write(PutSession(record.session), then=done)
        self._changed(True)
        return record

    def _finish(self, record: SessionRecord) -> None:
        record.session = replace(record.session, state=SessionState.CLOSED, closed_at=self._clock())
        record.waiting_for = record.waiting_since = None
        record.deserved = 0
        record.recent.clear()
        record.line.clear()
        self._journal.write(PutSession(record.session))
        self._accounting.ended(record)
        self._events.add("session.closed", record.id)
        self._changed(True)
        self.notices.ended(record)
        self.dependencies.ended(record)

    def _check_queue(self, name: str) -> None:
        if name not in self._state.queues:
            raise Missing("queue", name, self._state.queues)
        children = sorted(queue.name for queue in self._state.queues.values() if queue.parent == name)
        if children:
            raise invalid("queue", name, f"it has child queues; choose one of {', '.join(children)}")

    def new_id(self, begin: str) -> str:
        """Return an id that no session has: `begin`, and a part that is drawn."""
        while True:
            session_id = f"{begin[:200]}-{secrets.token_hex(4)}"
            if session_id not in self._state.sessions:
                return session_id

    @staticmethod
    def _require_same(present: SessionSpec, asked: SessionSpec) -> None:
        for name in _COMPARED:
            have, want = getattr(present, name), getattr(asked, name)
            if have != want:
                raise invalid(name, str(want), f"the session exists with {have}; ask for the same or use another id")
        if asked.priority not in (0, present.priority):
            raise invalid("priority", asked.priority, f"the session exists with {present.priority}")
        if asked.after not in ((), present.after):
            raise invalid("after", " ".join(map(str, asked.after)), "the session exists with other dependencies")
        if asked.begin_at not in (None, present.begin_at):
            raise invalid("begin_at", asked.begin_at, f"the session exists with {present.begin_at}")


def _matches(record: SessionRecord, query: ClosedQuery) -> bool:
    info = record.session
    return (
        not record.open
        and not record.tasks
        and info.number > query.after
        and (query.before is None or (info.closed_at or 0.0) < query.before)
        and query.queue in (None, info.spec.queue)
        and query.owner in (None, info.spec.owner)
    )
