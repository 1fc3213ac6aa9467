"""The routes of the server as methods: one call, one request, typed on both sides.

Every method raises `Unavailable` when no server answers for `transport.RETRY_S` seconds, and else
what the server says: `InvalidRequest`, `NotFound`, `Conflict`. What is no name is an `InvalidRequest` at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from ullage.client.body import encode_body, path_part
from ullage.client.stream import Message, read_messages
from ullage.client.transport import Transport
from ullage.wire.api import (
    ApplicationBody,
    CreateSession,
    EventBody,
    ExecutorBody,
    Explanation,
    GpuBody,
    NodeBody,
    Overview,
    PutApplicationBody,
    PutQueueBody,
    QueueBody,
    Results,
    ServerBody,
    SessionBody,
    SubmitTasks,
    Submitted,
    TaskBody,
    UpdateSession,
)
from ullage.wire.node_topology import TopologyBody

T = TypeVar("T")
PAGE = 1000
"""Entries asked for at a time."""


class Api:
    """One server."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    # --- the server ---

    def server(self) -> ServerBody:
        """Return the version, settings and state of the server."""
        return self._call("GET", "/v1/server", ServerBody)

    def overview(self) -> Overview:
        """Return the state of everything at once."""
        return self._call("GET", "/v1/overview", Overview)

    def live(self) -> Iterator[Overview]:
        """Pictures as things change, until the connection is lost (Unavailable)."""
        for message in self._stream("/v1/live", None):
            if message.event == "overview":
                yield msgspec.json.decode(message.data, type=Overview)

    def shut_down(self) -> None:
        """Ask the server to end."""
        self.transport.request("POST", "/v1/shutdown", repeat=False)

    def events(self, after: int = 0, limit: int = PAGE, session: str | None = None) -> list[EventBody]:
        """Return what happened after event number `after`."""
        query = _query(after=after, limit=limit, session=session)
        return self._call("GET", f"/v1/events{query}", list[EventBody])

    # --- applications and queues ---

    def applications(self) -> list[ApplicationBody]:
        """Return all applications."""
        return self._call("GET", "/v1/applications", list[ApplicationBody])

    def application(self, name: str) -> ApplicationBody:
        """Return one application."""
        return self._call("GET", f"/v1/applications/{path_part('application', name)}", ApplicationBody)

    def put_application(self, name: str, spec: PutApplicationBody) -> ApplicationBody:
        """Register an application, or replace its whole specification."""
        return self._call("PUT", f"/v1/applications/{path_part('application', name)}", ApplicationBody, spec)

    def delete_application(self, name: str) -> None:
        """Unregister an application that has no open session."""
        self.transport.request("DELETE", f"/v1/applications/{path_part('application', name)}")

    def queues(self) -> list[QueueBody]:
        """Return all queues."""
        return self._call("GET", "/v1/queues", list[QueueBody])

    def put_queue(self, name: str, spec: PutQueueBody) -> QueueBody:
        """Make a queue, or replace its whole specification."""
        return self._call("PUT", f"/v1/queues/{path_part('queue', name)}", QueueBody, spec)

    # --- hardware and workers ---

    def nodes(self) -> list[NodeBody]:
        """Return all nodes."""
        return self._call("GET", "/v1/nodes", list[NodeBody])

    def topology(self, node: str) -> TopologyBody:
        """Return what is near what in one machine."""
        return self._call("GET", f"/v1/nodes/{path_part('node', node)}/topology", TopologyBody)

    def gpus(self) -> list[GpuBody]:
        """Return all cards."""
        return self._call("GET", "/v1/gpus", list[GpuBody])

    def executors(self) -> list[ExecutorBody]:
        """Return all worker processes."""
        return self._call("GET", "/v1/executors", list[ExecutorBody])

    def cordon(self, node: str) -> None:
        """Place nothing new on a node."""
        self.transport.request("POST", f"/v1/nodes/{path_part('node', node)}/cordon")

    def uncordon(self, node: str) -> None:
        """Use a node again."""
        self.transport.request("POST", f"/v1/nodes/{path_part('node', node)}/uncordon")

    # --- sessions ---

    def create_session(self, spec: CreateSession) -> SessionBody:
        """Make a session. Not repeated after a lost connection unless the caller chose the id."""
        return self._call("POST", "/v1/sessions", SessionBody, spec, repeat=False)

    def open_session(self, session: str, spec: CreateSession | None = None) -> SessionBody:
        """Return the session of that id, made from `spec` if there is none."""
        return self._call("POST", f"{_session(session)}/open", SessionBody, spec)

    def sessions(self, state: str | None = None, owner: str | None = None) -> list[SessionBody]:
        """Sessions, of one state or one owner."""
        return self._call("GET", f"/v1/sessions{_query(state=state, owner=owner)}", list[SessionBody])

    def session(self, session: str) -> SessionBody:
        """Return one session."""
        return self._call("GET", _session(session), SessionBody)

    def update_session(self, session: str, changes: UpdateSession) -> SessionBody:
        """Change an open session."""
        return self._call("PATCH", _session(session), SessionBody, changes)

    def delete_session(self, session: str) -> None:
        """Forget a closed session and its results."""
        self.transport.request("DELETE", _session(session))

    def close_session(self, session: str) -> None:
        """Take no more tasks; Conflict `tasks-running` while some run."""
        self.transport.request("POST", f"{_session(session)}/close")

    def cancel_session(self, session: str) -> None:
        """Cancel all tasks, running ones too, and close."""
        self.transport.request("POST", f"{_session(session)}/cancel")

    def clear_failures(self, session: str) -> None:
        """Forget a session's bind failures, so that it gets executors again."""
        self.transport.request("POST", f"{_session(session)}/clear-failures")

    def why(self, session: str) -> Explanation:
        """Return why a session has what it has."""
        return self._call("GET", f"{_session(session)}/why", Explanation)

    # --- tasks ---

    def submit(self, session: str, tasks: SubmitTasks) -> Submitted:
        """Add tasks; their key makes a repeat harmless."""
        body = msgspec.msgpack.encode(tasks)
        answer = self.transport.request("POST", f"{_session(session)}/tasks", body, packed=True)
        return msgspec.msgpack.decode(answer, type=Submitted)

    def results(self, session: str, after: int, limit: int = PAGE, wait_s: float = 0.0) -> Results:
        """Endings after a cursor; the server waits up to `wait_s` seconds for the first one."""
        path = f"{_session(session)}/results{_query(after=after, limit=limit, wait=wait_s)}"
        answer = self.transport.request("GET", path, packed=True, wait_s=wait_s)
        return msgspec.msgpack.decode(answer, type=Results)

    def tasks(self, session: str, after: int = 0, limit: int = PAGE) -> list[TaskBody]:
        """Return one page of a session's tasks, by id."""
        return self._call("GET", f"{_session(session)}/tasks{_query(after=after, limit=limit)}", list[TaskBody])

    def task(self, session: str, task: int) -> TaskBody:
        """Return one task."""
        return self._call("GET", f"{_session(session)}/tasks/{task}", TaskBody)

    def cancel_task(self, session: str, task: int) -> TaskBody:
        """Cancel a task, also a running one; one that has ended stays as it is."""
        return self._call("POST", f"{_session(session)}/tasks/{task}/cancel", TaskBody)

    def log(self, session: str, task: int, *, follow: bool, position: str | None = None) -> Iterator[Message]:
        """What a task prints, from the start or from after `position`."""
        return self._stream(f"{_session(session)}/tasks/{task}/log{'?follow=1' if follow else ''}", position)

    # --- the wire ---

    def _call(
        self, method: str, path: str, answer: type[T], body: msgspec.Struct | None = None, *, repeat: bool = True
    ) -> T:
        answered = self.transport.request(method, path, encode_body(body), repeat=repeat)
        return msgspec.json.decode(answered, type=answer)

    def _stream(self, path: str, position: str | None) -> Iterator[Message]:
        headers = {"Accept": "text/event-stream"}
        if position is not None:
            headers["Last-Event-ID"] = position
        with self.transport.open_stream(path, headers) as answer:
            yield from read_messages(answer)


def _session(session: str) -> str:
    return f"/v1/sessions/{path_part('session', session)}"


def _query(**values: str | float | None) -> str:
    given = {name: value for name, value in values.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""
