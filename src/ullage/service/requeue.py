"""Work that runs again: the running tasks of an open session, or the failed tasks of a closed one in a new session."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import groupby

from ullage.model.array import Array
from ullage.model.error import Conflict, invalid
from ullage.model.session import SessionSpec
from ullage.model.task import TaskState
from ullage.service.context import ServiceContext
from ullage.service.journal import Callback, in_one_write
from ullage.service.sessions import Sessions
from ullage.service.state import SessionRecord
from ullage.service.store_port import EndedTask, Page
from ullage.service.tasks import Tasks

_PAGE = 1000
_DRAWN = re.compile(r"-[0-9a-f]{8}$")
"""The part of an id that was drawn."""


class Requeue:
    """Use cases of work that runs again."""

    def __init__(self, context: ServiceContext, sessions: Sessions, tasks: Tasks) -> None:
        self._state, self._journal, self._engine = context.state, context.journal, context.engine
        self._store, self._events = context.store, context.events
        self._sessions, self._tasks = sessions, tasks

    @in_one_write
    def running(self, session_id: str, tasks: Collection[int], done: Callback) -> int:
        """End the executors of running tasks, which go back to pending once these are gone. Return their number.

        Without `tasks` all are meant. No loss is counted. A task that ends within the grace of its executor has ended.

        Raises:
            NotFound: no such session. Conflict: it is closed, or no such task runs.

        """
        record = self._state.session(session_id)
        record.session.require_open()
        executors = [executor for executor in record.executors.values() if executor.tasks and not executor.stopping]
        if tasks:
            executors = [each for each in executors if any(task.id in tasks for task in each.tasks.values())]
        if not executors:
            text = f"session {session_id} has no running task" + (" of these numbers" if tasks else "")
            raise Conflict(text, code="nothing-to-requeue")
        count = sum(len(executor.tasks) for executor in executors)
        for executor in executors:
            executor.stopping = True
            self._engine.stop(executor.id, self._state.stops.of(record.session.spec))
        self._events.add("session.requeued", session_id, tasks=count)
        self._journal.write(then=done)
        return count

    def ended(self, session_id: str, states: Collection[TaskState], tasks: Collection[int]) -> list[EndedTask]:
        """Return the tasks of a session that ended in these states. It reads the store: call it in a thread.

        Raises:
            Conflict: there are none.

        """
        found: list[EndedTask] = []
        after = 0
        while page := self._store.ended(session_id, states, Page(after, _PAGE)):
            after = max(task.task for task in page)
            found += [task for task in page if not tasks or task.task in tasks]
        if not found:
            wanted = " or ".join(state.value for state in states) + " task"
            text = f"session {session_id} has no {wanted}" + (" of these numbers" if tasks else "")
            raise Conflict(text, code="nothing-to-requeue")
        return found

    @in_one_write
    def again(self, session_id: str, tasks: Sequence[EndedTask], done: Callback) -> SessionRecord:
        """Open a session like a closed one with copies of these tasks, which closes once they have ended.

        Raises:
            NotFound: no such session, or its queue or application is gone.
            InvalidRequest: a limit refuses it. Conflict: it is open.

        """
        record = self._state.session(session_id)
        if record.open:
            raise invalid("session", session_id, "it is open; only the failed tasks of a closed one run again")
        new_id = self._sessions.new_id(_DRAWN.sub("", session_id))
        new = self._sessions.create(new_id, _spec_of(record, tasks), lambda: None)
        for submission, group in groupby(tasks, lambda task: task.submission):
            inputs = [task.input for task in group]
            shared = self._store.shared(session_id, submission)
            self._tasks.submit(new.id, f"requeue-{submission}-{new.next_task}", inputs, shared, done=lambda *_: None)
        self._events.add("session.requeued", session_id, message=f"in {new.id}", tasks=len(tasks))
        self._journal.write(then=done)
        return new


def _spec_of(record: SessionRecord, tasks: Sequence[EndedTask]) -> SessionSpec:
    """Return the specification of a session that runs only these tasks, at once."""
    array, indices = record.session.elements, None
    if array is not None:
        found = [index for task in tasks if (index := array.index_of(task.task)) is not None]
        indices = str(Array(tuple(found))) if len(found) == len(tasks) else None
    return replace(record.session.spec, after=(), begin_at=None, array=indices, close_when_done=True)
