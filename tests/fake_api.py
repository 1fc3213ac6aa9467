"""A server that speaks the routes of the API, in this process and without any scheduling.

A task ends the moment it is submitted, unless `hold` is set; functions are really called.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from ullage.client import local_socket
from ullage.client.process import started_at
from ullage.model.session_state import SessionState, activity
from ullage.wire.amount import AmountBody
from ullage.wire.body import body_of
from ullage.wire.catalog import ApplicationBody, PutApplicationBody, QueueBody
from ullage.wire.details import SessionDetails, TaskDetails
from ullage.wire.event import EventBody
from ullage.wire.explanation import Explanation, RejectionBody
from ullage.wire.fair_share import FairShareBody
from ullage.wire.history import StartBody
from ullage.wire.identity import MeBody
from ullage.wire.node import GpuBody, GpuHolderBody, NodeBody, PartBody
from ullage.wire.overview import IdleBody, Overview, RoomBody, ServerBody
from ullage.wire.schema import ErrorBody
from ullage.wire.session import (
    CancelledTasks,
    CancelTasks,
    CreateSession,
    Result,
    Results,
    SessionBody,
    SubmitTasks,
    Submitted,
    TaskBody,
    UpdateSession,
)
from ullage.worker.function import FunctionService
from ullage.worker.service import Task, TaskFailed

TOKEN = "secret"
END = object()
PING_S = 0.5
"""Seconds between two comments in a stream without news."""


@dataclass
class FakeTask:
    number: int
    input: bytes
    shared: bytes | None
    state: str = "pending"
    code: int | None = None
    output: bytes | None = None
    message: str = ""


@dataclass
class FakeSession:
    spec: CreateSession
    id: str
    state: str = "open"
    running_since: float | None = None
    tasks: list[FakeTask] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    keys: dict[str, Submitted] = field(default_factory=dict)

    def count(self, state: str) -> int:
        return sum(task.state == state for task in self.tasks)


def server_file(url: str, pid: int) -> str:
    """Return the content of the file of a local server."""
    return msgspec.json.encode({"url": url, "pid": pid, "started": started_at(pid) or 0, "later": "field"}).decode()


def leave_files(home: Path, fake: FakeApi | str, pid: int | None = None) -> None:
    """Write the files of a local server into its home; a string is the address of a dead one."""
    url = fake if isinstance(fake, str) else fake.url
    (home / "server.json").write_text(server_file(url, os.getpid() if pid is None else pid))
    (home / "token").write_text(f"{TOKEN}\n")
    if isinstance(fake, FakeApi):
        fake.listen_in(home)


class _LocalServer(ThreadingHTTPServer):
    """At the socket of a home."""

    def __init__(self, home: Path, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("localhost", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = local_socket.listen(home, 16)

    def get_request(self) -> tuple[Any, Any]:
        connection, _ = self.socket.accept()
        return connection, ("local", 0)


def queue(name: str, parent: str = "root", share: float = 0.0, sessions: int = 0) -> QueueBody:
    """Return a queue that holds nothing."""
    return QueueBody(
        name=name,
        parent=parent,
        weight=1,
        guarantee=None,
        limit=None,
        held=AmountBody(cpu_milli=0, memory_bytes=0, gpu_milli=0),
        share=share,
        sessions=sessions,
        pending=0,
        running=0,
    )


class FakeApi:
    """State and rules; `url` is where it listens. What tests turn: the attributes below."""

    def __init__(self) -> None:
        self.hold = False
        self.drop_answers = 0  # requests that are carried out, and whose connection is then cut
        self.refuse: tuple[int, str, str] | None = None
        self.hang: threading.Event | None = None  # until then no request is answered, as of a stopped process
        self.reason: str | None = None
        self.starts: dict[str, StartBody] = {}
        self.logs: dict[str, list[Any]] = {}
        self.on_log = lambda: None
        self.seen: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.last_event_ids: list[str | None] = []
        self.sessions: dict[str, FakeSession] = {}
        self.warnings: list[str] = []
        self.applications: dict[str, ApplicationBody] = {}
        self.nodes: list[NodeBody] = []
        self.gpus: list[GpuBody] = []
        self.queues: list[QueueBody] = [queue("default", share=0.5, sessions=1)]
        self.fair_share = FairShareBody(half_life_s=None, at=0.0, shares=[])
        self.events: list[EventBody] = []
        self.changed = threading.Condition()
        self.on_shutdown = lambda: None
        self._handler = type("Handler", (_Handler,), {"fake": self})
        self._servers: list[ThreadingHTTPServer] = []
        self.url = f"http://127.0.0.1:{self._serve(ThreadingHTTPServer(('127.0.0.1', 0), self._handler)).server_port}"

    def listen_in(self, home: Path) -> None:
        self._serve(_LocalServer(home, self._handler))

    def _serve(self, server: ThreadingHTTPServer) -> ThreadingHTTPServer:
        server.daemon_threads = True
        server.block_on_close = False
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    # --- rules ---

    def body(self, session: FakeSession) -> SessionBody:
        spec = session.spec
        return SessionBody(
            id=session.id,
            application=spec.application,
            state=session.state,
            resreq=f"cpu=1,mem=1Gi,{spec.resreq}" if spec.fill_resreq else spec.resreq or "cpu=1,mem=1Gi,gpu=0",
            queue=spec.queue,
            owner=spec.owner or spec.user,
            priority=spec.priority or 0,
            weight=spec.weight or 1,
            min_instances=spec.min_instances,
            max_instances=spec.max_instances,
            batch_size=spec.batch_size,
            activity=activity(
                SessionState(session.state), pending=session.count("pending"), running=session.count("running")
            ),
            created_at=1_700_000_000.0,
            closed_at=None,
            pending=session.count("pending"),
            running=session.count("running"),
            succeed=session.count("succeed"),
            failed=session.count("failed"),
            cancelled=session.count("cancelled"),
            held=1,
            warnings=self.warnings,
            deserved=2,
            share=0.25,
            bind_failures=0,
            reason=self.reason,
            message="",
            task_timeout_s=spec.task_timeout_s,
            running_since=session.running_since,
        )

    def task_body(self, session: FakeSession, task: FakeTask) -> TaskBody:
        return TaskBody(
            session=session.id,
            task=task.number,
            state=task.state,
            created_at=1_700_000_000.0,
            code=task.code,
            message=task.message,
        )

    def end(self, session: FakeSession, task: FakeTask, state: str, code: int, output: bytes | None, text: str) -> None:
        with self.changed:
            if task.state not in ("pending", "running"):
                return
            task.state, task.code, task.output, task.message = state, code, output, text
            session.results.append(
                Result(
                    task=task.number,
                    sequence=len(session.results) + 1,
                    state=state,
                    code=code,
                    output=output,
                    message=text,
                    executor="e1",
                    started_at=1.0,
                    ended_at=2.0,
                )
            )
            self.changed.notify_all()

    def work_first(self, name: str) -> None:
        """Wait for the first task of a session, and run it to its end."""
        session = self.sessions[name]
        with self.changed:
            self.changed.wait_for(lambda: session.tasks)
        self.work(session, session.tasks[0])

    def work(self, session: FakeSession, task: FakeTask) -> None:
        """Run a task to its end, as a worker would."""
        if session.spec.application != "function":
            self.end(session, task, "succeed", 0, task.input.upper(), "")
            return
        service = FunctionService()
        try:
            output = service.on_task_invoke(Task(task.number, task.input, 1, task.shared))
        except TaskFailed as failed:
            self.end(session, task, "failed", failed.code, failed.output, failed.message)
        else:
            self.end(session, task, "succeed", 0, output, "")

    def release(self) -> None:
        """Run everything that was held."""
        self.hold = False
        for session in self.sessions.values():
            for task in session.tasks:
                if task.state == "pending":
                    self.work(session, task)

    def submit(self, session: FakeSession, body: SubmitTasks) -> Submitted:
        if body.key in session.keys:
            return session.keys[body.key]
        first = len(session.tasks) + 1
        new = [FakeTask(first + n, data, body.shared) for n, data in enumerate(body.inputs)]
        answer = session.keys[body.key] = Submitted(first=first, count=len(new))
        with self.changed:
            session.tasks += new
            self.changed.notify_all()
        if not self.hold and session.spec.application != "command":
            for task in new:
                self.work(session, task)
        return answer

    def results(self, session: FakeSession, after: int, limit: int, wait_s: float) -> Results:
        with self.changed:
            self.changed.wait_for(lambda: len(session.results) > after or session.state == "closed", wait_s)
            page = session.results[after : after + limit]
            return Results(results=page, next=after + len(page), closed=session.state == "closed")

    def cancel(self, session: FakeSession) -> None:
        for task in session.tasks:
            self.end(session, task, "cancelled", 0, None, "cancelled by its owner")
        with self.changed:
            session.state = "closed"
            self.changed.notify_all()

    def start(self, session: str) -> StartBody:
        nothing = StartBody(session=session, at=None, earliest=None, latest=None, text="no estimate: it has no tasks")
        return self.starts.get(session, nothing)

    def why(self, session: FakeSession) -> Explanation:
        return Explanation(
            session=session.id,
            code=self.reason or "nothing-pending",
            cure="capacity",
            summary="0 of 4 gpus are free",
            want=1,
            held=0,
            deserved=1,
            share=0.0,
            position=2,
            rejections=[
                RejectionBody(
                    node="n1", gpu=None, code="insufficient-gpu", cure="capacity", needed=1, had=0, text="no gpu"
                )
            ],
            holders=[],
            suggestions=["ask for gpu=0"],
        )


class _Refusal(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeApi

    def log_message(self, *_: object) -> None:
        pass

    def do(self) -> None:
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.fake.seen.append((self.command, self.path))
        if self.fake.hang is not None:
            self.fake.hang.wait(60)
        try:
            self._answer(200, self._route([unquote(part) for part in parts.path.strip("/").split("/")]))
        except _Refusal as refusal:
            body = ErrorBody(code=refusal.code, message=refusal.message)
            self._answer(refusal.status, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do  # noqa: N815  # names of the standard library

    def _route(self, path: list[str]) -> Any:
        fake = self.fake
        if path == ["readyz"]:
            return {}
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise _Refusal(401, "unauthorized", "the token is wrong")
        if fake.refuse is not None:
            refusal, fake.refuse = fake.refuse, None
            raise _Refusal(*refusal)
        name = "_".join([self.command.lower(), *(part for n, part in enumerate(path[1:]) if n % 2 == 0)])
        method = getattr(self, name.replace("-", "_"), None)
        if method is None:
            raise _Refusal(404, "not-found", f"no route {name}")
        return method(*(part for n, part in enumerate(path[1:]) if n % 2))

    def _answer(self, status: int, body: Any) -> None:
        if self.fake.drop_answers and status == 200 and self.path != "/readyz":
            self.fake.drop_answers -= 1
            self.close_connection = True
            return
        if body is END:
            return
        packed = self.headers.get("Accept") == "application/msgpack" and status == 200
        data = (msgspec.msgpack if packed else msgspec.json).encode(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/msgpack" if packed else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _json(self, kind: Any) -> Any:
        body = msgspec.json.decode(self.data, type=kind)
        self.fake.bodies.append(body)
        return body

    def _session(self, name: str) -> FakeSession:
        session = self.fake.sessions.get(name)
        if session is None:
            raise _Refusal(404, "not-found", f"session {name} does not exist")
        return session

    def _task(self, name: str, number: str) -> tuple[FakeSession, FakeTask]:
        session = self._session(name)
        if not 1 <= int(number) <= len(session.tasks):
            raise _Refusal(404, "not-found", f"task {name}/{number} does not exist")
        return session, session.tasks[int(number) - 1]

    # --- routes: method, then every second part of the path ---

    def get_me(self) -> Any:
        return MeBody(
            user="server", role="admin", proof="token file", may=[], reads="all", reading=False, expires_at=None
        )

    def post_sessions(self, name: str | None = None) -> Any:
        spec = self._json(CreateSession)
        chosen = f"{spec.application}-{len(self.fake.sessions) + 1}" if spec.id is None else spec.id
        for what, text in (("session", chosen), ("queue", spec.queue)):
            if not text:
                raise _Refusal(400, "invalid-request", f"{what}: '' is not valid")
        if chosen in self.fake.sessions:
            raise _Refusal(409, "already-exists", f"session {chosen} exists")
        session = self.fake.sessions[chosen] = FakeSession(spec, chosen)
        return self.fake.body(session)

    def get_sessions(self, name: str | None = None) -> Any:
        if name is not None:
            return self.fake.body(self._session(name))
        state, owner = self.query.get("state"), self.query.get("owner")
        return [
            self.fake.body(s)
            for s in self.fake.sessions.values()
            if state in (None, s.state) and owner in (None, s.spec.owner or s.spec.user)
        ]

    def patch_sessions(self, name: str) -> Any:
        self._json(UpdateSession)
        return self.fake.body(self._session(name))

    def post_sessions_open(self, name: str) -> Any:
        if name not in self.fake.sessions and self.data:
            self.fake.sessions[name] = FakeSession(self._json(CreateSession), name)
        return self.fake.body(self._session(name))

    def post_sessions_close(self, name: str) -> Any:
        session = self._session(name)
        if session.count("running"):
            raise _Refusal(409, "tasks-running", "1 task runs")
        self.fake.cancel(session)
        return {}

    def post_sessions_cancel(self, name: str) -> Any:
        self.fake.cancel(self._session(name))
        return {}

    def delete_sessions(self, name: str) -> Any:
        if self._session(name).state != "closed":
            raise _Refusal(409, "session-open", f"session {name} is open; close it before deleting it")
        del self.fake.sessions[name]
        return {}

    def get_sessions_details(self, name: str) -> Any:
        session = self._session(name)
        spec, shown = (
            session.spec,
            {"program": None, "environment": [], "queue_limits": [], "retries": 0, "python": None},
        )
        return body_of(SessionDetails, self.fake.body(session), spec, spec.setup, **shown)

    def get_sessions_tasks_details(self, name: str, number: str) -> Any:
        session, task = self._task(name, number)
        return body_of(TaskDetails, self.fake.task_body(session, task), session.spec, program=None, retries=0)

    def get_sessions_why(self, name: str) -> Any:
        return self.fake.why(self._session(name))

    def get_sessions_start(self, name: str) -> Any:
        return self.fake.start(self._session(name).id)

    def get_starts(self) -> Any:
        return list(self.fake.starts.values())

    def post_sessions_tasks(self, name: str, action: str = "") -> Any:
        session = self._session(name)
        if action == "cancel":
            return self._cancel_tasks(session)
        if session.state == "closed":
            raise _Refusal(409, "session-closed", f"session {name} is closed")
        assert self.headers["Content-Type"] == "application/msgpack"
        return self.fake.submit(session, msgspec.msgpack.decode(self.data, type=SubmitTasks))

    def get_sessions_tasks(self, name: str, number: str | None = None) -> Any:
        if number is not None:
            return self.fake.task_body(*self._task(name, number))
        session, after, limit = self._session(name), int(self.query["after"]), int(self.query["limit"])
        return [self.fake.task_body(session, task) for task in session.tasks[after : after + limit]]

    def _cancel_tasks(self, session: FakeSession) -> Any:
        body = self._json(CancelTasks)
        numbers = set(body.tasks)
        left = [task for task in session.tasks if task.number in numbers and task.state in ("pending", "running")]
        for task in left:
            self.fake.end(session, task, "cancelled", 0, None, "cancelled by its owner")
        return CancelledTasks(tasks=len(left))

    def post_sessions_tasks_cancel(self, name: str, number: str) -> Any:
        session, task = self._task(name, number)
        self.fake.end(session, task, "cancelled", 0, None, "cancelled by its owner")
        return self.fake.task_body(session, task)

    def get_sessions_results(self, name: str) -> Any:
        query = self.query
        return self.fake.results(
            self._session(name), int(query["after"]), int(query["limit"]), float(query.get("wait", 0))
        )

    def get_sessions_tasks_log(self, name: str, number: str) -> Any:
        """The pieces in `logs`; None among them cuts the connection, and the next one goes on after it."""
        session, task = self._task(name, number)
        self.fake.last_event_ids.append(self.headers.get("Last-Event-ID"))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        pieces = self.fake.logs.setdefault(session.spec.application, [])
        while pieces:
            piece = pieces.pop(0)
            if piece is None:
                return END
            if callable(piece):
                with self._pinging():
                    piece(session, task)
            else:
                stream, data, position = piece
                text = data if stream == "note" else base64.b64encode(data).decode()
                self.wfile.write(f": ping\r\nid: {position}\r\nevent: {stream}\r\ndata: {text}\r\n\r\n".encode())
        body = msgspec.json.encode(self.fake.task_body(session, task)).decode()
        self.wfile.write(f"event: end\r\ndata: {body}\r\n\r\n".encode())
        return END

    @contextmanager
    def _pinging(self) -> Iterator[None]:
        """Send comments meanwhile, as a server does in a stream without news."""
        done = threading.Event()

        def ping() -> None:
            with suppress(OSError, ValueError):  # the client, or this connection, is gone
                while not done.wait(PING_S):
                    self.wfile.write(b": ping\r\n\r\n")
                    self.wfile.flush()

        pinger = threading.Thread(target=ping, daemon=True)
        pinger.start()
        try:
            yield
        finally:
            done.set()
            pinger.join()

    def get_applications(self, name: str | None = None) -> Any:
        if name is None:
            return list(self.fake.applications.values())
        if name not in self.fake.applications:
            raise _Refusal(404, "not-found", f"application {name} does not exist")
        return self.fake.applications[name]

    def put_applications(self, name: str) -> Any:
        spec = msgspec.to_builtins(self._json(PutApplicationBody))
        self.fake.applications[name] = ApplicationBody(name=name, built_in=False, **spec)
        return self.fake.applications[name]

    def delete_applications(self, name: str) -> Any:
        del self.fake.applications[name]
        return {}

    def get_nodes(self) -> Any:
        return self.fake.nodes

    def post_nodes_cordon(self, name: str) -> Any:
        return {}

    def get_gpus(self) -> Any:
        return self.fake.gpus

    def get_executors(self) -> Any:
        return []

    def get_queues(self) -> Any:
        return self.fake.queues

    def get_fair_share(self) -> Any:
        query, found = self.query, self.fake.fair_share
        begin = int(query.get("offset", 0))
        page = found.shares[begin : begin + int(query["limit"])]
        return msgspec.structs.replace(found, shares=page, total=len(found.shares))

    def get_events(self) -> Any:
        after, limit = int(self.query["after"]), int(self.query["limit"])
        return [event for event in self.fake.events if event.number > after][:limit]

    def get_overview(self) -> Any:
        return Overview(
            at=1_700_000_000.0,
            server=self.get_server(),
            nodes=self.fake.nodes,
            gpus=self.fake.gpus,
            room=RoomBody(
                idle_milli=5500,
                fragments_milli=500,
                models=[IdleBody(model="H100", idle_milli=5500, fragments_milli=500)],
                fits={1: 5, 2: 2, 4: 1},
                tasks=60,
                missing=0,
            ),
            queues=self.fake.queues,
            sessions=[self.fake.body(session) for session in self.fake.sessions.values()],
        )

    def get_server(self) -> ServerBody:
        return ServerBody(
            version="0.1.0", epoch=1, started_at=1.0, home="/nowhere", storage="memory", isolation="none", policy={}
        )

    def post_shutdown(self) -> Any:
        self.fake.on_shutdown()
        return {}


def node(name: str, gpus: int = 4) -> NodeBody:
    amount = AmountBody(cpu_milli=8000, memory_bytes=32 << 30, gpu_milli=gpus * 1000)
    held = AmountBody(cpu_milli=1500, memory_bytes=1 << 30, gpu_milli=1000)
    return NodeBody(
        name=name,
        state="ready",
        cordoned=False,
        capacity=amount,
        allocatable=amount,
        held=held,
        executors=1,
        max_executors=128,
        gpu_source="nvml",
        note="",
        labels={"zone": "a"},
        arch="x86_64",
        os="linux",
    )


def gpu(node: str, index: int, *holders: GpuHolderBody) -> GpuBody:
    return GpuBody(
        node=node,
        index=index,
        uuid=f"GPU-{index}",
        model="H100",
        vendor="nvidia",
        pool=None,
        vram_bytes=80 << 30,
        compute_gflops=60_000,
        zones=[0],
        bus_id=None,
        healthy=True,
        isolations=["soft"],
        free=PartBody(
            fraction=1 - sum(holder.fraction for holder in holders),
            vram_bytes=(80 << 30) - sum(holder.vram_bytes or 0 for holder in holders),
            compute_gflops=60_000 - sum(holder.compute_gflops or 0 for holder in holders),
        ),
        holders=list(holders),
    )


def holder(session: str, fraction: float, owner: str = "ann") -> GpuHolderBody:
    return GpuHolderBody(
        executor=f"e-{session}",
        session=session,
        owner=owner,
        fraction=fraction,
        vram_bytes=int(fraction * (80 << 30)),
        compute_gflops=int(fraction * 60_000),
        isolation="soft" if fraction < 1 else "shared",
    )
