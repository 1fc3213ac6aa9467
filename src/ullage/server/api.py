"""The handlers of the HTTP API: decode, call a use case, wait until it is durable, respond."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
from starlette.requests import Request

from ullage.model.dependency import parse_dependencies
from ullage.model.error import invalid
from ullage.model.identity import Role
from ullage.model.name import check_name
from ullage.model.session import SessionSpec
from ullage.model.task import TaskResult, TaskState
from ullage.server import bodies
from ullage.server.access import Authorizer, Whose, caller_of, needs
from ullage.server.answers import Answers, OneSession, application_body, result_body, task_body
from ullage.server.details import find_task
from ullage.server.durable import durable, note_change
from ullage.server.parameters import page_of, session_of, task_of
from ullage.server.routes import TOTAL, Answer, LongBody, route
from ullage.server.session_list import SessionQuery
from ullage.service.journal import Callback
from ullage.service.nested_waits import awaited
from ullage.service.service import UllageService
from ullage.service.stop_rules import STOP_GRACE_S
from ullage.service.store_port import Page
from ullage.wire.body import body_of
from ullage.wire.catalog import ApplicationBody, PutApplicationBody, PutQueueBody, QueueBody
from ullage.wire.event import EventBody
from ullage.wire.load import LoadBody
from ullage.wire.node import ExecutorBody, GpuBody, NodeBody
from ullage.wire.node_topology import TopologyBody
from ullage.wire.overview import Overview, ServerBody
from ullage.wire.session import (
    CancelledTasks,
    CancelTasks,
    CreateSession,
    Requeued,
    RequeueSession,
    Results,
    SessionBody,
    SubmitTasks,
    Submitted,
    TaskBody,
    UpdateSession,
)

BODY_LIMIT = 8 * 1024 * 1024
TASKS_LIMIT = 512 * 1024 * 1024
MAX_WAIT_S = 60.0
CANCEL_WAIT_S = 2 * STOP_GRACE_S
"""Seconds that the response to a cancel may wait for the result of the task; the task ends in any case."""

_SESSIONS = ("state", "owner", "queue", "search", "sort", "limit", "offset")


class ServerApi:
    """Handlers over one service. `shut_down` ends the server at the request of a user."""

    def __init__(self, service: UllageService, answers: Answers, shut_down: Callable[[str], None]) -> None:
        self._service, self._authorizer = service, Authorizer(service)
        self._answers = answers
        self._shut_down = shut_down

    # --- the server ---

    @route("GET", "/v1/server", "server")
    @needs(Role.VIEWER)
    async def server(self, _: Request) -> ServerBody:
        """Return the version, the settings and the state of the server."""
        return self._answers.server

    @route("POST", "/v1/shutdown", "server")
    @needs(Role.ADMIN)
    async def shut_down(self, request: Request) -> None:
        """End the server and everything that it runs."""
        self._shut_down(caller_of(request).user)

    @route("GET", "/v1/overview", "server")
    @needs(Role.VIEWER)
    async def overview(self, request: Request) -> LongBody[Overview]:
        """Return the whole state of the server at one time."""
        return self._answers.overview(time.time(), owner=self._authorizer.only_owner(request))

    @route("GET", "/v1/events", "server", query=("after", "limit", "session"))
    @needs(Role.VIEWER)
    async def list_events(self, request: Request) -> LongBody[list[EventBody]]:
        """Return events in their order, of all sessions or of one."""
        page, session = page_of(request), request.query_params.get("session")
        if session is not None:
            self._authorizer.check_shown(request, session)
        found = self._service.events.page(page, session)
        if found is None:
            found = await asyncio.to_thread(self._service.store.events, page, session)
        shown = self._authorizer.shown_events(request, found)
        return lambda: [body_of(EventBody, event) for event in shown]

    # --- applications, queues, nodes ---

    @route("GET", "/v1/applications", "applications")
    @needs(Role.VIEWER)
    async def list_applications(self, _: Request) -> list[ApplicationBody]:
        """Return all applications by name."""
        return self._answers.applications()

    @route("GET", "/v1/applications/{name}", "applications")
    @needs(Role.VIEWER)
    async def get_application(self, request: Request) -> ApplicationBody:
        """Return one application."""
        return application_body(self._service.state.application(_name(request)))

    @route("PUT", "/v1/applications/{name}", "applications", body=PutApplicationBody)
    @needs(Role.OPERATOR)
    async def put_application(self, request: Request) -> ApplicationBody:
        """Register an application, or replace its whole specification."""
        body = await bodies.read_body(request, PutApplicationBody, BODY_LIMIT)
        application = bodies.application(_name(request), body)
        await durable(self._service.catalog.put_application, application)
        return application_body(application)

    @route("DELETE", "/v1/applications/{name}", "applications")
    @needs(Role.OPERATOR)
    async def delete_application(self, request: Request) -> None:
        """Unregister an application that has no open session."""
        await durable(self._service.catalog.drop_application, _name(request))

    @route("GET", "/v1/queues", "queues")
    @needs(Role.VIEWER)
    async def list_queues(self, _: Request) -> list[QueueBody]:
        """Return the share tree, parents before children."""
        return self._answers.queues()

    @route("PUT", "/v1/queues/{name}", "queues", body=PutQueueBody)
    @needs(Role.OPERATOR)
    async def put_queue(self, request: Request) -> QueueBody:
        """Create a queue, or replace its whole specification."""
        body = await bodies.read_body(request, PutQueueBody, BODY_LIMIT)
        queue = bodies.queue(_name(request), body)
        await durable(self._service.catalog.put_queue, queue)
        return next(answer for answer in self._answers.queues() if answer.name == queue.name)

    @route("DELETE", "/v1/queues/{name}", "queues")
    @needs(Role.OPERATOR)
    async def delete_queue(self, request: Request) -> None:
        """Remove a queue that has no queues and no open sessions."""
        await durable(self._service.catalog.drop_queue, _name(request))

    @route("GET", "/v1/nodes", "nodes")
    @needs(Role.VIEWER)
    async def list_nodes(self, _: Request) -> LongBody[list[NodeBody]]:
        """Return all nodes by name."""
        return self._answers.snapshot().nodes

    @route("GET", "/v1/nodes/{name}/topology", "nodes")
    @needs(Role.VIEWER)
    async def get_topology(self, request: Request) -> TopologyBody:
        """Return the zones, CPUs, cards and links of a node."""
        return self._answers.topology(_name(request))

    @route("POST", "/v1/nodes/{name}/cordon", "nodes")
    @needs(Role.OPERATOR)
    async def cordon_node(self, request: Request) -> NodeBody:
        """Place no new work on a node."""
        return self._answers.node(await durable(self._service.nodes.cordon, _name(request), True))

    @route("POST", "/v1/nodes/{name}/uncordon", "nodes")
    @needs(Role.OPERATOR)
    async def uncordon_node(self, request: Request) -> NodeBody:
        """Place work on a node again."""
        return self._answers.node(await durable(self._service.nodes.cordon, _name(request), False))

    @route("GET", "/v1/gpus", "nodes")
    @needs(Role.VIEWER)
    async def list_gpus(self, _: Request) -> LongBody[list[GpuBody]]:
        """Return all cards with their free parts and holders."""
        return self._answers.snapshot().gpus

    @route("GET", "/v1/load", "nodes")
    @needs(Role.VIEWER)
    async def get_load(self, _: Request) -> LongBody[LoadBody]:
        """Return the use of all cards over the last hour: what is held, and how busy they are where measured."""
        return self._answers.card_use()

    @route("GET", "/v1/executors", "nodes")
    @needs(Role.VIEWER)
    async def list_executors(self, request: Request) -> LongBody[list[ExecutorBody]]:
        """Return worker processes by id."""
        found = self._answers.executors(self._authorizer.shown_executors(request))
        return lambda: found

    # --- sessions ---

    @route("GET", "/v1/sessions", "sessions", query=_SESSIONS)
    @needs(Role.VIEWER)
    async def list_sessions(self, request: Request) -> LongBody[list[SessionBody]] | Answer:
        """Return sessions, by default all in the order of their creation."""
        records, total = SessionQuery.of(request).page(self._authorizer.shown_sessions(request))
        return Answer(200, self._answers.sessions(records), {TOTAL: str(total)})

    @route("GET", "/v1/sessions/{session}", "sessions")
    @needs(Role.VIEWER, Whose.SHOWN)
    async def get_session(self, request: Request) -> OneSession:
        """Return one session."""
        return self._answers.session(self._service.state.session(session_of(request)))

    @route("POST", "/v1/sessions", "sessions", body=CreateSession, status=201)
    @needs(Role.USER)
    async def create_session(self, request: Request) -> OneSession:
        """Create a session."""
        body = await bodies.read_body(request, CreateSession, BODY_LIMIT)
        record = await durable(self._service.sessions.create, body.id, self._spec(request, body))
        return self._answers.opened(record)

    @route("POST", "/v1/sessions/{session}/open", "sessions", body=CreateSession | None)
    @needs(Role.USER, Whose.OWN)
    async def open_session(self, request: Request) -> OneSession:
        """Return the open session of this id; with a body it is created if there is none."""
        session, spec = session_of(request), None
        if raw := await bodies.read_raw(request, BODY_LIMIT):
            body = bodies.decode(request, raw, CreateSession)
            if body.id not in (None, session):
                raise invalid("id", body.id, f"leave it out, or write {session} as in the path")
            spec = self._spec(request, body)
        return self._answers.opened(await durable(self._service.sessions.open, session, spec))

    def _spec(self, request: Request, body: CreateSession) -> SessionSpec:
        owner = self._authorizer.owner_for(request, body.owner, body.user)
        self._authorizer.check_account(request, owner)
        self._authorizer.check_queue(request, body.queue)
        self._authorizer.check_shown(request, *(each.session for each in parse_dependencies(body.after)))
        application = self._service.state.application(body.application)
        default = self._service.sessions.default_for(body.queue)
        return replace(bodies.session_spec(body, application, default, self._service.numa), owner=owner)

    @route("PATCH", "/v1/sessions/{session}", "sessions", body=UpdateSession)
    @needs(Role.USER, Whose.OWN)
    async def update_session(self, request: Request) -> OneSession:
        """Change an open session."""
        body = await bodies.read_body(request, UpdateSession, BODY_LIMIT)
        changes = {
            field: value for field in body.__struct_fields__ if (value := getattr(body, field)) is not msgspec.UNSET
        }
        return self._answers.opened(await durable(self._service.sessions.update, session_of(request), changes))

    @route("POST", "/v1/sessions/{session}/close", "sessions")
    @needs(Role.USER, Whose.OWN)
    async def close_session(self, request: Request) -> OneSession:
        """Close a session that has no running task."""
        return self._answers.session(await durable(self._service.sessions.close, session_of(request)))

    @route("POST", "/v1/sessions/{session}/cancel", "sessions")
    @needs(Role.USER, Whose.OWN)
    async def cancel_session(self, request: Request) -> OneSession:
        """Cancel all tasks of a session, running ones too, and close it."""
        return self._answers.session(await durable(self._service.sessions.cancel, session_of(request)))

    @route("POST", "/v1/sessions/{session}/clear-failures", "sessions")
    @needs(Role.USER, Whose.OWN)
    async def clear_failures(self, request: Request) -> OneSession:
        """Reset the count of failed binds, so that the session gets executors again."""
        return self._answers.session(await durable(self._service.sessions.clear_failures, session_of(request)))

    @route("POST", "/v1/sessions/{session}/requeue", "sessions", body=RequeueSession)
    @needs(Role.USER, Whose.OWN)
    async def requeue_session(self, request: Request) -> Requeued:
        """Run tasks again: running ones of an open session, or failed ones of a closed one in a new session."""
        body = await bodies.read_body(request, RequeueSession, BODY_LIMIT)
        session, requeue, tasks = session_of(request), self._service.requeue, frozenset(body.tasks)
        if self._service.state.session(session).open:
            return Requeued(session=session, tasks=await durable(requeue.running, session, tasks))
        states = [TaskState.FAILED, TaskState.CANCELLED] if body.cancelled else [TaskState.FAILED]
        found = await asyncio.to_thread(requeue.ended, session, states, tasks)
        return Requeued(session=(await durable(requeue.again, session, found)).id, tasks=len(found))

    @route("DELETE", "/v1/sessions/{session}", "sessions")
    @needs(Role.USER, Whose.OWN)
    async def delete_session(self, request: Request) -> None:
        """Delete a closed session with its tasks, results and events."""
        await durable(self._service.sessions.delete, session_of(request))

    # --- tasks ---

    @route("POST", "/v1/sessions/{session}/tasks", "tasks", body=SubmitTasks, status=201)
    @needs(Role.USER, Whose.OWN)
    async def submit_tasks(self, request: Request) -> Submitted:
        """Submit tasks."""
        body = await bodies.read_body(request, SubmitTasks, TASKS_LIMIT)
        check_name("key", body.key)
        session, taken = session_of(request), list[Submitted]()

        def submit(stored: Callback) -> None:
            def done(first: int, count: int) -> None:
                taken.append(Submitted(first=first, count=count))
                stored()

            self._service.tasks.submit(session, body.key, body.inputs, body.shared, done=done)

        await durable(submit)
        return taken.pop()

    @route("GET", "/v1/sessions/{session}/tasks", "tasks", query=("after", "limit"))
    @needs(Role.VIEWER, Whose.SHOWN)
    async def list_tasks(self, request: Request) -> LongBody[list[TaskBody]]:
        """Return tasks of a session in their order."""
        session, page, tasks = session_of(request), page_of(request), self._service.tasks
        array = self._service.state.session(session).session.elements
        views = await asyncio.to_thread(self._service.store.tasks, session, page)
        found = tasks.with_states(session, views)
        return lambda: [task_body(view, state, array) for view, state in found]

    @route("GET", "/v1/sessions/{session}/tasks/{task}", "tasks")
    @needs(Role.VIEWER, Whose.SHOWN)
    async def get_task(self, request: Request) -> TaskBody:
        """Return one task."""
        return find_task(self._service, session_of(request), task_of(request))

    @route("POST", "/v1/sessions/{session}/tasks/{task}/cancel", "tasks")
    @needs(Role.USER, Whose.OWN)
    async def cancel_task(self, request: Request) -> TaskBody:
        """Cancel a task, also while it runs."""
        session, task = session_of(request), task_of(request)
        self._service.tasks.cancel(session, task)
        note_change()
        ends_at = asyncio.get_running_loop().time() + CANCEL_WAIT_S
        while self._service.tasks.unfinished(session, task):
            if not await self._service.news.wait(session, max(0.0, ends_at - asyncio.get_running_loop().time())):
                break
        await durable(self._service.tasks.when_stored)
        return find_task(self._service, session, task)

    @route("POST", "/v1/sessions/{session}/tasks/cancel", "tasks", body=CancelTasks)
    @needs(Role.USER, Whose.OWN)
    async def cancel_tasks(self, request: Request) -> CancelledTasks:
        """Cancel several tasks, also while they run: all of them, or none if one does not exist."""
        body = await bodies.read_body(request, CancelTasks, BODY_LIMIT)
        session = session_of(request)
        return CancelledTasks(tasks=await durable(self._service.tasks.cancel_some, session, body.tasks))

    @route("GET", "/v1/sessions/{session}/results", "tasks", query=("after", "limit", "wait", "executor"))
    @needs(Role.USER, Whose.OWN)
    async def list_results(self, request: Request) -> Results:
        """Return results after a cursor; `wait` is how long to wait for the first one.

        A client in an executor names it (`executor`), so that `why` finds tasks that wait for each other.
        """
        session, page = session_of(request), page_of(request, default=1000)
        ends_at = asyncio.get_running_loop().time() + _wait_s(request)
        with awaited(self._service.state, request.query_params.get("executor"), session):
            found, closed = await self._wait_for_results(session, page, ends_at)
        following = max((result.sequence for result in found), default=page.after)
        return Results(
            results=[result_body(result) for result in found],
            next=following,
            closed=closed and following == self._service.state.session(session).durable,
        )

    async def _wait_for_results(self, session: str, page: Page, ends_at: float) -> tuple[Sequence[TaskResult], bool]:
        """Return the results of a page, and whether no more will come."""
        while True:
            found = self._service.tasks.recent_results(session, page)
            if found is None:
                found = await asyncio.to_thread(self._service.store.results, session, page)
            left = ends_at - asyncio.get_running_loop().time()
            record = self._service.state.session(session)
            closed = not record.open and record.durable == record.sequence
            if found or closed or left <= 0:
                return found, closed
            await self._service.news.wait(session, left)


def _name(request: Request) -> str:
    return check_name("name", request.path_params["name"])


def _wait_s(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    try:
        value = float(text)
    except ValueError:
        raise invalid("wait", text, "a number is needed") from None
    if not value >= 0:  # also refuses nan
        raise invalid("wait", text, "0 or more is needed")
    return min(value, MAX_WAIT_S)
