"""The routes of the server as methods: one call, one request, typed on both sides.

Every method raises `Unavailable` when no server answers for `transport.RETRY_S` seconds, else the error in the
response: `InvalidRequest`, `NotFound`, `Conflict`. An invalid name is an `InvalidRequest` without a request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

import msgspec

from ullage.client.rows import Rows
from ullage.client.stream import Message, read_messages
from ullage.client.transport import Transport, path_of
from ullage.wire.catalog import ApplicationBody, PutApplicationBody, PutQueueBody, QueueBody
from ullage.wire.event import EventBody
from ullage.wire.explanation import Explanation
from ullage.wire.fair_share import FairShareBody
from ullage.wire.history import HistoryBody, StartBody, StayBody, UsageBody
from ullage.wire.identity import CreatedToken, CreateToken, MeBody, TokenBody
from ullage.wire.node import ExecutorBody, GpuBody, NodeBody
from ullage.wire.overview import Overview, ServerBody
from ullage.wire.session import (
    CancelledTasks,
    CancelTasks,
    CreateSession,
    DeleteClosed,
    Deleted,
    Requeued,
    RequeueSession,
    Results,
    SessionBody,
    SubmitTasks,
    Submitted,
    TaskBody,
    UpdateSession,
)

if TYPE_CHECKING:
    from ullage.wire.details import SessionDetails, TaskDetails
    from ullage.wire.node_topology import TopologyBody

EXECUTOR = "ULLAGE_EXECUTOR"
"""The variable with the executor that this process runs in."""

PAGE = 1000
"""Entries of a page."""

MOST_CANCELLED = 5_000
"""Tasks that one request cancels; other callers of the server wait for it."""

_EVENTS_S = 1.0
"""Seconds between two requests for new events."""


class HistoryOptions(TypedDict, total=False):
    """What of the history to return: of a period (seconds since the epoch), an owner, a queue."""

    since: float | None
    until: float | None
    owner: str | None
    queue: str | None


class ClosedOptions(TypedDict, total=False):
    """Which closed sessions: closed before a time (seconds since the epoch), of a queue, of an owner."""

    before: float | None
    queue: str | None
    owner: str | None


class LogPart(NamedTuple):
    """The part of a log that is wanted: its last `lines`, what was printed within the last seconds; None is all."""

    lines: int | None = None
    within_s: float | None = None


WHOLE_LOG = LogPart()


class ServerReads:
    """Routes that read the server, its hardware, applications, queues and sessions."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def server(self) -> ServerBody:
        """Return the version, settings and state of the server."""
        return self.transport.call("GET", "/v1/server", ServerBody)

    def overview(self) -> Overview:
        """Return the whole state of the server."""
        return self.transport.call("GET", "/v1/overview", Overview)

    def applications(self) -> list[ApplicationBody]:
        """Return all applications."""
        return Rows(self.transport.call("GET", "/v1/applications", list[ApplicationBody]))

    def queues(self) -> list[QueueBody]:
        """Return all queues."""
        return Rows(self.transport.call("GET", "/v1/queues", list[QueueBody]))

    def nodes(self) -> list[NodeBody]:
        """Return all nodes."""
        return Rows(self.transport.call("GET", "/v1/nodes", list[NodeBody]))

    def topology(self, node: str) -> TopologyBody:
        """Return the topology of a node: zones with CPUs, memory and cards, and the links between cards.

        Raises:
            NotFound: the node does not exist.

        """
        from ullage.wire.node_topology import TopologyBody  # noqa: PLC0415  # it loads the model of machines

        return self.transport.call("GET", path_of("nodes", node, "topology"), TopologyBody)

    def gpus(self) -> list[GpuBody]:
        """Return all cards and who holds them."""
        return Rows(self.transport.call("GET", "/v1/gpus", list[GpuBody]))

    def executors(self) -> list[ExecutorBody]:
        """Return all worker processes."""
        return Rows(self.transport.call("GET", "/v1/executors", list[ExecutorBody]))

    def sessions(self, state: str | None = None, owner: str | None = None) -> list[SessionBody]:
        """Return sessions, all or those of a state (`open`, `closed`) or of an owner."""
        return Rows(self.transport.call("GET", path_of("sessions", state=state, owner=owner), list[SessionBody]))

    def history(
        self, *, states: Sequence[str] = (), after: int = 0, limit: int = PAGE, **options: Unpack[HistoryOptions]
    ) -> list[HistoryBody]:
        """Return sessions that were open at some time of a period, by number, deleted ones too; a page of them.

        The next page is `after` the number of the last row. `states` are pending, running, succeed, failed, cancelled
        and lost.

        Raises:
            InvalidRequest: a state is unknown.

        """
        path = path_of("history", state=",".join(states) or None, after=after, limit=limit, **options)
        return Rows(self.transport.call("GET", path, list[HistoryBody]))

    def stays(self, *, after: int = 0, limit: int = PAGE, **options: Unpack[HistoryOptions]) -> list[StayBody]:
        """Return which executors sessions had, and which cards requests held, in a period; a page by number."""
        path = path_of("history", "stays", after=after, limit=limit, **options)
        return Rows(self.transport.call("GET", path, list[StayBody]))

    def usage(
        self,
        by: Sequence[str] = ("owner",),
        *,
        step: float | None = None,
        limit: int | None = None,
        **options: Unpack[HistoryOptions],
    ) -> UsageBody:
        """Return what was used and what was offered in a period, unless stated the last 30 days.

        `by` are some of owner, queue and application; `step` are the seconds of each step, unless stated the period.
        Of more than `limit` groups, unless stated 1000, the others have one sum.

        Raises:
            InvalidRequest: a dimension is unknown, or there are too many steps, or groups in them.

        """
        path = path_of("usage", by=",".join(by), step=step, limit=limit, **options)
        return self.transport.call("GET", path, UsageBody)

    def fair_share(
        self, *, queue: str | None = None, owner: str | None = None, offset: int = 0, limit: int = PAGE
    ) -> FairShareBody:
        """Return what queues and their owners used in the past, with a half-life, and the factors of their weights.

        It is one page: at most `limit` of its `total` shares, after the first `offset`.
        """
        path = path_of("fair-share", queue=queue, owner=owner, offset=offset or None, limit=limit)
        return self.transport.call("GET", path, FairShareBody)

    def start(self, session: str) -> StartBody:
        """Estimate when a waiting session gets its first executor, as a range with its chance, or say why not."""
        return self.transport.call("GET", path_of("sessions", session, "start"), StartBody)

    def starts(self) -> list[StartBody]:
        """Estimate when each waiting session gets its first executor."""
        return self.transport.call("GET", "/v1/starts", list[StartBody])

    def why(self, session: str) -> Explanation:
        """Explain why a session has the executors that it has."""
        return self.transport.call("GET", path_of("sessions", session, "why"), Explanation)

    def delete_session(self, session: str) -> None:
        """Delete a closed session with its tasks, results and events.

        Raises:
            NotFound: it does not exist.
            Conflict: it is open (`session-open`).

        """
        self.transport.request("DELETE", path_of("sessions", session))

    def delete_closed(self, body: DeleteClosed) -> Deleted:
        """Delete some closed sessions with their tasks, results and events, or find them."""
        return self.transport.call("POST", "/v1/sessions/delete-closed", Deleted, body)


class Api(ServerReads):
    """One server: all of its routes."""

    # --- the server ---

    def live(self) -> Iterator[Overview]:
        """Yield overviews when something changes, until the connection is lost (Unavailable)."""
        for message in self._stream("/v1/live", None):
            if message.event == "overview":
                yield msgspec.json.decode(message.data, type=Overview)

    def shut_down(self) -> None:
        """Ask the server to end."""
        self.transport.request("POST", "/v1/shutdown", repeat=False)

    def me(self) -> MeBody:
        """Return who asks, with what role, and what it may do."""
        return self.transport.call("GET", "/v1/me", MeBody)

    def tokens(self) -> list[TokenBody]:
        """Return the tokens of users, without their secrets."""
        return Rows(self.transport.call("GET", "/v1/tokens", list[TokenBody]))

    def create_token(self, spec: CreateToken) -> CreatedToken:
        """Create a token of a user. After a lost connection the request is not repeated."""
        return self.transport.call("POST", "/v1/tokens", CreatedToken, spec, repeat=False)

    def create_link(self) -> CreatedToken:
        """Create a token for the link of the caller to the page, whom the kernel must name."""
        return self.transport.call("POST", "/v1/me/link", CreatedToken, repeat=False)

    def revoke_token(self, token: str) -> None:
        """End a token of a user."""
        self.transport.request("DELETE", path_of("tokens", token))

    def events(self, after: int = 0, limit: int = PAGE, session: str | None = None) -> list[EventBody]:
        """Return events after number `after`."""
        path = path_of("events", after=after, limit=limit, session=session)
        return Rows(self.transport.call("GET", path, list[EventBody]))

    # --- applications and queues ---

    def application(self, name: str) -> ApplicationBody:
        """Return one application."""
        return self.transport.call("GET", path_of("applications", name), ApplicationBody)

    def put_application(self, name: str, spec: PutApplicationBody) -> ApplicationBody:
        """Register an application, or replace its whole specification."""
        return self.transport.call("PUT", path_of("applications", name), ApplicationBody, spec)

    def delete_application(self, name: str) -> None:
        """Unregister an application that has no open session."""
        self.transport.request("DELETE", path_of("applications", name))

    def delete_queue(self, name: str) -> None:
        """Remove a queue without children and open sessions."""
        self.transport.request("DELETE", path_of("queues", name))

    def put_queue(self, name: str, spec: PutQueueBody) -> QueueBody:
        """Create a queue, or replace its whole specification."""
        return self.transport.call("PUT", path_of("queues", name), QueueBody, spec)

    # --- hardware and workers ---

    def cordon(self, node: str) -> None:
        """Place nothing new on a node."""
        self.transport.request("POST", path_of("nodes", node, "cordon"))

    def uncordon(self, node: str) -> None:
        """Place work on a node again."""
        self.transport.request("POST", path_of("nodes", node, "uncordon"))

    # --- sessions ---

    def create_session(self, spec: CreateSession) -> SessionBody:
        """Create a session. After a lost connection the request is not repeated."""
        return self.transport.call("POST", "/v1/sessions", SessionBody, spec, repeat=False)

    def open_session(self, session: str, spec: CreateSession | None = None) -> SessionBody:
        """Return the session of that id, which `spec` creates if it does not exist."""
        return self.transport.call("POST", path_of("sessions", session, "open"), SessionBody, spec)

    def session(self, session: str) -> SessionBody:
        """Return one session."""
        return self.transport.call("GET", path_of("sessions", session), SessionBody)

    def session_details(self, session: str) -> SessionDetails:
        """Return one session with its program, its limits, and those of its queue."""
        from ullage.wire.details import SessionDetails  # noqa: PLC0415  # few programs need it

        return self.transport.call("GET", path_of("sessions", session, "details"), SessionDetails)

    def update_session(self, session: str, changes: UpdateSession) -> SessionBody:
        """Change an open session."""
        return self.transport.call("PATCH", path_of("sessions", session), SessionBody, changes)

    def close_session(self, session: str) -> None:
        """Close a session to new tasks; Conflict `tasks-running` while tasks run."""
        self.transport.request("POST", path_of("sessions", session, "close"))

    def cancel_session(self, session: str) -> None:
        """Cancel all tasks, running ones too, and close the session."""
        self.transport.request("POST", path_of("sessions", session, "cancel"))

    def requeue(self, session: str, which: RequeueSession) -> Requeued:
        """Run tasks again: running ones of an open session, or failed ones of a closed one in a new session.

        After a lost connection the request is not repeated.

        Raises:
            Conflict: there is no such task (`nothing-to-requeue`).

        """
        return self.transport.call("POST", path_of("sessions", session, "requeue"), Requeued, which, repeat=False)

    def clear_failures(self, session: str) -> None:
        """Reset the count of failed binds of a session, so that it gets executors again."""
        self.transport.request("POST", path_of("sessions", session, "clear-failures"))

    # --- tasks ---

    def submit(self, session: str, tasks: SubmitTasks) -> Submitted:
        """Add tasks; their key makes a repeat harmless."""
        body = msgspec.msgpack.encode(tasks)
        answer = self.transport.request("POST", path_of("sessions", session, "tasks"), body, packed=True)
        return msgspec.msgpack.decode(answer, type=Submitted)

    def results(self, session: str, after: int, limit: int = PAGE, wait_s: float = 0.0) -> Results:
        """Return results after a cursor; the server waits up to `wait_s` seconds for the first one."""
        executor = os.environ.get(EXECUTOR) if wait_s else None
        path = path_of("sessions", session, "results", after=after, limit=limit, wait=wait_s, executor=executor)
        answer = self.transport.request("GET", path, packed=True, wait_s=wait_s)
        return msgspec.msgpack.decode(answer, type=Results)

    def tasks(self, session: str, after: int = 0, limit: int = PAGE) -> list[TaskBody]:
        """Return one page of a session's tasks, by id."""
        return self.transport.call(
            "GET", path_of("sessions", session, "tasks", after=after, limit=limit), list[TaskBody]
        )

    def task(self, session: str, task: int) -> TaskBody:
        """Return one task."""
        return self.transport.call("GET", path_of("sessions", session, "tasks", task), TaskBody)

    def task_details(self, session: str, task: int) -> TaskDetails:
        """Return one task with its program and its limits."""
        from ullage.wire.details import TaskDetails  # noqa: PLC0415  # few programs need it

        return self.transport.call("GET", path_of("sessions", session, "tasks", task, "details"), TaskDetails)

    def cancel_task(self, session: str, task: int) -> TaskBody:
        """Cancel a task, also a running one. An ended task does not change."""
        return self.transport.call("POST", path_of("sessions", session, "tasks", task, "cancel"), TaskBody)

    def cancel_tasks(self, session: str, tasks: Sequence[int]) -> CancelledTasks:
        """Cancel several tasks, also running ones; none if one of them does not exist. Ended tasks do not change."""
        body = CancelTasks(tasks=list(tasks))
        return self.transport.call("POST", path_of("sessions", session, "tasks", "cancel"), CancelledTasks, body)

    def log(
        self, session: str, task: int, part: LogPart = WHOLE_LOG, *, follow: bool, position: str | None = None
    ) -> Iterator[Message]:
        """Yield this part of the output of a task, or what follows `position`."""
        query = {"tail": part.lines, "within": part.within_s, "follow": 1 if follow else None}
        return self._stream(path_of("sessions", session, "tasks", task, "log", **query), position)

    def session_log(
        self, session: str, part: LogPart = WHOLE_LOG, *, follow: bool, after: int = 0
    ) -> Iterator[Message]:
        """Yield this part of the output of all tasks of a session with numbers above `after`."""
        query = {"tail": part.lines, "within": part.within_s, "follow": 1 if follow else None, "after": after or None}
        return self._stream(path_of("sessions", session, "log", **query), None)

    # --- the wire ---

    def _stream(self, path: str, position: str | None) -> Iterator[Message]:
        headers = {"Accept": "text/event-stream"}
        if position is not None:
            headers["Last-Event-ID"] = position
        with self.transport.open_stream(path, headers) as answer:
            yield from read_messages(answer)


def list_history(
    api: ServerReads, states: Sequence[str] = (), **options: Unpack[HistoryOptions]
) -> Iterator[HistoryBody]:
    """Yield all sessions of the history that match, which are fetched page by page."""
    after = 0
    while True:
        page = api.history(states=states, after=after, **options)
        yield from page
        if len(page) < PAGE:
            return
        after = max(row.number for row in page)


def delete_closed(api: ServerReads, *, dry_run: bool = False, **options: Unpack[ClosedOptions]) -> Iterator[str]:
    """Delete the closed sessions that match, some at a time, and yield their ids; with `dry_run` only yield them."""
    after = 0
    while True:
        found = api.delete_closed(DeleteClosed(after=after, dry_run=dry_run, **options))
        yield from found.sessions
        if found.next is None:
            return
        after = found.next


def list_events(api: Api, after: int = 0, *, session: str | None = None, follow: bool = False) -> Iterator[EventBody]:
    """Yield events after a number, which are fetched page by page; with `follow` also future ones."""
    while True:
        page = api.events(after, PAGE, session)
        for event in page:
            yield event
            after = event.number
        if len(page) < PAGE:
            if not follow:
                return
            time.sleep(_EVENTS_S)


def cancel_tasks(api: Api, session: str, tasks: Iterable[int]) -> None:
    """Cancel any number of tasks in requests for which no other caller waits long, the last tasks first.

    The first ones run soon, or do already. If they went first, the next ones would start on their executors.
    """
    left = sorted(set(tasks))
    while left:
        api.cancel_tasks(session, left[-MOST_CANCELLED:])
        del left[-MOST_CANCELLED:]


def list_tasks(api: Api, session: str, after: int = 0, page: int = PAGE) -> Iterator[TaskBody]:
    """Yield all tasks of a session after a number, which are fetched page by page."""
    while found := api.tasks(session, after, page):
        for each in found:
            yield each
            after = each.task
        if len(found) < page:
            return
