"""The handlers of the HTTP API: decode, call a use case, wait until it is durable, respond."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec
from starlette.requests import Request

from ullage.model.error import NotFound, invalid
from ullage.model.name import check_name
from ullage.model.session import SessionSpec, SessionState
from ullage.server import bodies
from ullage.server.answers import Answers, application_body, event_body, result_body, task_body
from ullage.server.durable import durable
from ullage.server.parameters import count_of, session_of, task_of
from ullage.server.routes import Endpoint, LongBody
from ullage.service.service import UllageService
from ullage.service.store_port import Page
from ullage.service.tasks import STOP_GRACE_S
from ullage.wire import api
from ullage.wire.node_topology import TopologyBody

BODY_LIMIT = 8 * 1024 * 1024
TASKS_LIMIT = 512 * 1024 * 1024
MAX_WAIT_S = 60.0
CANCEL_WAIT_S = 2 * STOP_GRACE_S
"""Seconds that the response to a cancel may wait for the result of the task; the task ends in any case."""

MAX_PAGE = 10_000


class ServerApi:
    """Handlers over one service. `shut_down` ends the server."""

    def __init__(self, service: UllageService, answers: Answers, shut_down: Callable[[], None]) -> None:
        self._service = service
        self._answers = answers
        self._shut_down = shut_down

    def endpoints(self) -> list[Endpoint]:
        """Return all routes under /v1 that respond with a body."""
        return [*self._server_endpoints(), *self._session_endpoints(), *self._task_endpoints()]

    def _server_endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/v1/server", self.server, "the server", answer=api.ServerBody),
            Endpoint("POST", "/v1/shutdown", self.shut_down, "end the server and all it runs"),
            Endpoint("GET", "/v1/overview", self.overview, "everything at once", answer=api.Overview),
            Endpoint("GET", "/v1/applications", self.applications, "applications", answer=list[api.ApplicationBody]),
            Endpoint("GET", "/v1/applications/{name}", self.application, "one application", answer=api.ApplicationBody),
            Endpoint(
                "PUT",
                "/v1/applications/{name}",
                self.put_application,
                "register or replace an application",
                answer=api.ApplicationBody,
                body=api.PutApplicationBody,
            ),
            Endpoint("DELETE", "/v1/applications/{name}", self.drop_application, "unregister an application"),
            Endpoint("GET", "/v1/queues", self.queues, "the share tree", answer=list[api.QueueBody]),
            Endpoint(
                "PUT",
                "/v1/queues/{name}",
                self.put_queue,
                "create or replace a queue",
                answer=api.QueueBody,
                body=api.PutQueueBody,
            ),
            Endpoint("DELETE", "/v1/queues/{name}", self.drop_queue, "remove a queue that nobody uses"),
            Endpoint("GET", "/v1/nodes", self.nodes, "machines", answer=list[api.NodeBody]),
            Endpoint(
                "GET", "/v1/nodes/{name}/topology", self.topology, "what is near what in a machine", answer=TopologyBody
            ),
            Endpoint("POST", "/v1/nodes/{name}/cordon", self.cordon, "keep new work off a node", answer=api.NodeBody),
            Endpoint(
                "POST", "/v1/nodes/{name}/uncordon", self.uncordon, "let work back on a node", answer=api.NodeBody
            ),
            Endpoint("GET", "/v1/gpus", self.gpus, "cards and who holds them", answer=list[api.GpuBody]),
            Endpoint("GET", "/v1/executors", self.executors, "worker processes", answer=list[api.ExecutorBody]),
            Endpoint(
                "GET",
                "/v1/events",
                self.list_events,
                "what happened",
                answer=list[api.EventBody],
                query=("after", "limit", "session"),
            ),
        ]

    def _session_endpoints(self) -> list[Endpoint]:
        s = "/v1/sessions/{session}"
        return [
            Endpoint(
                "GET",
                "/v1/sessions",
                self.sessions,
                "sessions",
                answer=list[api.SessionBody],
                query=("state", "owner"),
            ),
            Endpoint(
                "POST",
                "/v1/sessions",
                self.create_session,
                "open a session",
                answer=api.SessionBody,
                body=api.CreateSession,
                status=201,
            ),
            Endpoint("GET", s, self.session, "one session", answer=api.SessionBody),
            Endpoint(
                "PATCH", s, self.update_session, "change a session", answer=api.SessionBody, body=api.UpdateSession
            ),
            Endpoint("DELETE", s, self.delete_session, "forget a closed session"),
            Endpoint(
                "POST",
                f"{s}/open",
                self.open_session,
                "get or open a session",
                answer=api.SessionBody,
                body=api.CreateSession,
            ),
            Endpoint("POST", f"{s}/close", self.close_session, "close a session", answer=api.SessionBody),
            Endpoint("POST", f"{s}/cancel", self.cancel_session, "end all tasks and close", answer=api.SessionBody),
            Endpoint(
                "POST", f"{s}/clear-failures", self.clear_failures, "forget bind failures", answer=api.SessionBody
            ),
            Endpoint("GET", f"{s}/why", self.why, "why it has what it has", answer=api.Explanation),
        ]

    def _task_endpoints(self) -> list[Endpoint]:
        s, t = "/v1/sessions/{session}", "/v1/sessions/{session}/tasks"
        return [
            Endpoint("POST", t, self.submit, "submit tasks", answer=api.Submitted, body=api.SubmitTasks, status=201),
            Endpoint("GET", t, self.tasks, "tasks", answer=list[api.TaskBody], query=("after", "limit")),
            Endpoint("GET", t + "/{task}", self.task, "one task", answer=api.TaskBody),
            Endpoint("POST", t + "/{task}/cancel", self.cancel_task, "end a task", answer=api.TaskBody),
            Endpoint(
                "GET",
                f"{s}/results",
                self.results,
                "endings after a cursor, waiting for the first if asked",
                answer=api.Results,
                query=("after", "limit", "wait"),
            ),
        ]

    # --- the server ---

    async def server(self, _: Request) -> api.ServerBody:
        return self._answers.server()

    async def shut_down(self, _: Request) -> None:
        self._shut_down()

    async def overview(self, _: Request) -> LongBody[api.Overview]:
        return self._answers.overview(time.time())

    async def list_events(self, request: Request) -> LongBody[list[api.EventBody]]:
        page, session = _page(request), request.query_params.get("session")
        found = self._service.events.page(page, session)
        if found is None:
            found = await asyncio.to_thread(self._service.store.events, page, session)
        return lambda: [event_body(event) for event in found]

    # --- applications, queues, nodes ---

    async def applications(self, _: Request) -> list[api.ApplicationBody]:
        return self._answers.applications()

    async def application(self, request: Request) -> api.ApplicationBody:
        return application_body(self._service.state.application(_name(request)))

    async def put_application(self, request: Request) -> api.ApplicationBody:
        body = await bodies.read_body(request, api.PutApplicationBody, BODY_LIMIT)
        application = bodies.application(_name(request), body)
        await durable(self._service.catalog.put_application, application)
        return application_body(application)

    async def drop_application(self, request: Request) -> None:
        await durable(self._service.catalog.drop_application, _name(request))

    async def queues(self, _: Request) -> list[api.QueueBody]:
        return self._answers.queues()

    async def put_queue(self, request: Request) -> api.QueueBody:
        body = await bodies.read_body(request, api.PutQueueBody, BODY_LIMIT)
        queue = bodies.queue(_name(request), body)
        await durable(self._service.catalog.put_queue, queue)
        return next(answer for answer in self._answers.queues() if answer.name == queue.name)

    async def drop_queue(self, request: Request) -> None:
        await durable(self._service.catalog.drop_queue, _name(request))

    async def nodes(self, _: Request) -> LongBody[list[api.NodeBody]]:
        return self._answers.snapshot().nodes

    async def topology(self, request: Request) -> TopologyBody:
        return self._answers.topology(_name(request))

    async def cordon(self, request: Request) -> api.NodeBody:
        return self._answers.node(await durable(self._service.nodes.cordon, _name(request), True))

    async def uncordon(self, request: Request) -> api.NodeBody:
        return self._answers.node(await durable(self._service.nodes.cordon, _name(request), False))

    async def gpus(self, _: Request) -> LongBody[list[api.GpuBody]]:
        return self._answers.snapshot().gpus

    async def executors(self, _: Request) -> LongBody[list[api.ExecutorBody]]:
        found = self._answers.executors()
        return lambda: found

    # --- sessions ---

    async def sessions(self, request: Request) -> LongBody[list[api.SessionBody]]:
        state = request.query_params.get("state")
        states = [each.value for each in SessionState]
        if state is not None and state not in states:
            raise invalid("state", state, f"write {' or '.join(states)}")
        snapshot, owner = self._answers.snapshot(), request.query_params.get("owner")
        return lambda: snapshot.sessions(state, owner)

    async def session(self, request: Request) -> api.SessionBody:
        return self._answers.session(self._service.state.session(session_of(request)))

    async def create_session(self, request: Request) -> api.SessionBody:
        body = await bodies.read_body(request, api.CreateSession, BODY_LIMIT)
        record = await durable(self._service.sessions.create, body.id, self._spec(body))
        return self._answers.opened(record)

    async def open_session(self, request: Request) -> api.SessionBody:
        session, spec = session_of(request), None
        if raw := await bodies.read_raw(request, BODY_LIMIT):
            body = bodies.decode(request, raw, api.CreateSession)
            if body.id not in (None, session):
                raise invalid("id", body.id, f"leave it out, or say {session} as in the path")
            spec = self._spec(body)
        return self._answers.opened(await durable(self._service.sessions.open, session, spec))

    def _spec(self, body: api.CreateSession) -> SessionSpec:
        application = self._service.state.application(body.application)
        default = self._service.sessions.default_requirement
        return bodies.session_spec(body, application, default, self._service.numa)

    async def update_session(self, request: Request) -> api.SessionBody:
        body = await bodies.read_body(request, api.UpdateSession, BODY_LIMIT)
        changes = {
            field: value for field in body.__struct_fields__ if (value := getattr(body, field)) is not msgspec.UNSET
        }
        return self._answers.session(await durable(self._service.sessions.update, session_of(request), changes))

    async def close_session(self, request: Request) -> api.SessionBody:
        return self._answers.session(await durable(self._service.sessions.close, session_of(request)))

    async def cancel_session(self, request: Request) -> api.SessionBody:
        return self._answers.session(await durable(self._service.sessions.cancel, session_of(request)))

    async def clear_failures(self, request: Request) -> api.SessionBody:
        return self._answers.session(await durable(self._service.sessions.clear_failures, session_of(request)))

    async def delete_session(self, request: Request) -> None:
        await durable(self._service.sessions.delete, session_of(request))

    async def why(self, request: Request) -> LongBody[api.Explanation]:
        session = session_of(request)
        evicted = await asyncio.to_thread(self._service.store.events, Page(0, 1), session, evictions=True)
        return self._answers.explanation(self._service.explaining(session), evicted[0] if evicted else None)

    # --- tasks ---

    async def submit(self, request: Request) -> api.Submitted:
        body = await bodies.read_body(request, api.SubmitTasks, TASKS_LIMIT)
        check_name("key", body.key)
        taken: asyncio.Future[api.Submitted] = asyncio.get_running_loop().create_future()

        def done(first: int, count: int) -> None:
            if not taken.done():
                taken.set_result(api.Submitted(first=first, count=count))

        self._service.tasks.submit(session_of(request), body.key, body.inputs, body.shared, done=done)
        return await taken

    async def tasks(self, request: Request) -> LongBody[list[api.TaskBody]]:
        session, page, tasks = session_of(request), _page(request), self._service.tasks
        self._service.state.session(session)
        views = await asyncio.to_thread(tasks.stored_tasks, session, page)
        found = tasks.with_states(session, views)
        return lambda: [task_body(view, state) for view, state in found]

    async def task(self, request: Request) -> api.TaskBody:
        return self.find_task(session_of(request), task_of(request))

    async def cancel_task(self, request: Request) -> api.TaskBody:
        session, task = session_of(request), task_of(request)
        self._service.tasks.cancel(session, task)
        ends_at = asyncio.get_running_loop().time() + CANCEL_WAIT_S
        while self._service.tasks.unfinished(session, task):
            if not await self._service.news.wait(session, max(0.0, ends_at - asyncio.get_running_loop().time())):
                break
        await durable(self._service.tasks.settled)
        return self.find_task(session, task)

    def find_task(self, session: str, task: int) -> api.TaskBody:
        """Return one task.

        Raises:
            NotFound: no such session or task.

        """
        found = self._service.tasks.list(session, Page(task - 1, 1))
        if not found or found[0][0].task != task:
            raise NotFound(f"task {task} of session {session} does not exist", field="task")
        return task_body(*found[0])

    async def results(self, request: Request) -> api.Results:
        session, page = session_of(request), _page(request, default=1000)
        ends_at = asyncio.get_running_loop().time() + _wait_s(request)
        while True:
            found = self._service.tasks.recent_results(session, page)
            if found is None:
                found = await asyncio.to_thread(self._service.tasks.stored_results, session, page)
            left = ends_at - asyncio.get_running_loop().time()
            record = self._service.state.session(session)
            closed = not record.open and record.durable == record.sequence
            if found or closed or left <= 0:
                break
            await self._service.news.wait(session, left)
        following = found[-1].sequence if found else page.after
        return api.Results(
            results=[result_body(result) for result in found],
            next=following,
            closed=closed and following == record.durable,
        )


def _name(request: Request) -> str:
    return check_name("name", request.path_params["name"])


def _page(request: Request, default: int = 100) -> Page:
    after, limit = count_of(request, "after", 0), count_of(request, "limit", default)
    if not 1 <= limit <= MAX_PAGE:
        raise invalid("limit", limit, f"1 to {MAX_PAGE} is needed")
    return Page(after, limit)


def _wait_s(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    try:
        value = float(text)
    except ValueError:
        raise invalid("wait", text, "a number is needed") from None
    if not value >= 0:  # also refuses nan
        raise invalid("wait", text, "0 or more is needed")
    return min(value, MAX_WAIT_S)
