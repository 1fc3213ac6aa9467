"""Applications and queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ullage.model.application import BUILT_IN, Application
from ullage.model.error import Conflict, invalid
from ullage.model.nearest import Missing, did_you_mean
from ullage.model.queue import DEFAULT_QUEUE, ROOT, Queue
from ullage.service.context import ServiceContext
from ullage.service.journal import Callback, in_one_write
from ullage.service.state import SessionRecord
from ullage.service.store_port import Drop, PutApplication, PutQueue

_BUILT_IN = {application.name for application in BUILT_IN}


class Catalog:
    """Use cases of applications and queues. `forget` drops a closed session, `follow` is called when queues change."""

    def __init__(
        self,
        context: ServiceContext,
        forget: Callable[[SessionRecord], None],
        follow: Callable[[Iterable[Queue]], None],
    ) -> None:
        self._state, self._journal, self._changed = context.state, context.journal, context.changed
        self._forget, self._follow = forget, follow

    def install(self, queues: Iterable[Queue]) -> None:
        """Add the built-in applications, the default queue, and configured queues, which replace stored ones."""
        for application in BUILT_IN:
            self._state.applications.setdefault(application.name, application)
        self._state.queues.setdefault(DEFAULT_QUEUE, Queue(DEFAULT_QUEUE))
        for queue in queues:
            self._state.queues[queue.name] = queue
        check_tree(self._state.queues.values())
        self._follow(self._state.queues.values())
        for queue in self._state.queues.values():
            self._journal.write(PutQueue(queue))
        for application in self._state.applications.values():
            self._journal.write(PutApplication(application))

    def put_application(self, application: Application, done: Callback) -> None:
        """Register an application, or replace its whole specification.

        Raises:
            InvalidRequest: a new application without a command.

        """
        if not application.command and application.name not in _BUILT_IN:
            built_in = ", ".join(sorted(_BUILT_IN))
            raise invalid("command", application.command, f"give the worker's command (built in are {built_in})")
        self._state.applications[application.name] = application
        self._journal.write(PutApplication(application), then=done)
        self._changed(True)

    @in_one_write
    def drop_application(self, name: str, done: Callback) -> None:
        """Unregister an application and delete its closed sessions.

        Raises:
            NotFound: no such application. Conflict: it is built in, or has sessions.

        """
        self._state.application(name)
        if name in _BUILT_IN:
            raise Conflict(f"application {name} is built in and stays", code="built-in")
        users = [record for record in self._state.sessions.values() if record.session.spec.application == name]
        still_open = [record.id for record in users if record.open]
        if still_open:
            raise Conflict(
                f"application {name} has open sessions ({', '.join(still_open[:3])}); close them first",
                code="sessions-open",
            )
        for record in users:
            self._forget(record)
        del self._state.applications[name]
        self._journal.write(Drop(PutApplication, name), then=done)

    def put_queue(self, queue: Queue, done: Callback) -> None:
        """Create or replace a queue.

        Raises:
            InvalidRequest: its parent is unknown or below it. Conflict: the parent has sessions.

        """
        if queue.parent in {record.session.spec.queue for record in self._state.sessions.values() if record.open}:
            raise Conflict(f"queue {queue.parent} has open sessions and cannot have children", code="queue-in-use")
        check_tree([*(q for q in self._state.queues.values() if q.name != queue.name), queue])
        self._state.queues[queue.name] = queue
        self._follow(self._state.queues.values())
        self._journal.write(PutQueue(queue), then=done)
        self._changed(True)

    def drop_queue(self, name: str, done: Callback) -> None:
        """Remove an unused queue. A queue of the settings comes back at the next start.

        Raises:
            NotFound: no such queue. Conflict: it is the default, has children, or has open sessions.

        """
        if name not in self._state.queues:
            raise Missing("queue", name, self._state.queues)
        children = sorted(queue.name for queue in self._state.queues.values() if queue.parent == name)
        users = [
            record.id for record in self._state.sessions.values() if record.open and record.session.spec.queue == name
        ]
        if name == DEFAULT_QUEUE or children or users:
            blocker = next(iter([*children, *users]), "the default of every session")
            raise Conflict(f"queue {name} is in use ({blocker})", code="queue-in-use")
        del self._state.queues[name]
        self._follow(self._state.queues.values())
        self._journal.write(Drop(PutQueue, name), then=done)
        self._changed(True)


def check_tree(queues: Iterable[Queue]) -> None:
    """Refuse queues that do not form a tree under the root.

    Raises:
        InvalidRequest: a parent is unknown, or a queue is its own ancestor.

    """
    parents = {queue.name: queue.parent for queue in queues}
    for name, parent in parents.items():
        seen, above = {name}, parent
        while above != ROOT:
            if above not in parents:
                raise invalid(
                    f"queues.{name}.parent", above, f"{did_you_mean(above, parents)}name an existing queue or {ROOT}"
                )
            if above in seen:
                raise invalid(f"queues.{name}.parent", above, "a queue cannot stand below itself")
            seen.add(above)
            above = parents[above]
