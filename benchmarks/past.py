"""How long a server with a long past takes to start and to answer: 10,000 sessions, 1,000,000 tasks.

The sessions ran over 30 days for 50 users; each had one executor and 100 tasks, and is closed; the last 200 are open.
A real server answers a client on the same machine, one request at a time: requests of the API and of the page, verbs
of the command line, and small functions of a new session, each with its CPU time. Then weights by the past use of
10,000 owners are updated, as every five minutes: the thread of the server is held for the first part only.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
from tests.lab import Lab, a_node
from tests.system.live_server import LiveServer

import ullage
from ullage.model.history import CapacitySpan, SessionHistory, Stay
from ullage.model.past_state import PastState
from ullage.model.past_use import HalfLife
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionInfo, SessionSpec, SessionState
from ullage.model.task import TaskResult, TaskState
from ullage.service.fair_share import FairShare
from ullage.service.past_use import PastUse
from ullage.service.state import SessionRecord
from ullage.service.store_port import AddResults, AddTasks, PutCapacity, PutHistory, PutSession, PutStay, Record, Store
from ullage.storage.open import open_store

SESSIONS, TASKS_EACH, OPEN = 10_000, 100, 200
USERS = 50
PERIOD_S = 30 * 86400.0
RAN_S = 3600.0
ROUNDS = 20
OWNERS = 10_000

REQUEST = ResourceRequirement.from_string("cpu=1,mem=1g,gpu=0.5")
APPLICATIONS = ("function", "command")

VERBS = (
    "queue",
    "sessions --state closed --sort -created -o csv",
    "tasks past-00007",
    "show session past-00007",
    "history --since 1d",
    "usage --by queue --since 30d",
    "queues",
    "why past-09990",
)
VERB_ROUNDS = 3
CALLS = 2000
"""Functions of the new session."""

ROUTES = {
    "the page": "/",
    "overview": "/v1/overview",
    "first page of sessions, newest first": "/v1/sessions?sort=-created&limit=50",
    "search for sessions of a user": "/v1/sessions?search=user-07&sort=-created&limit=50",
    "closed sessions by failures": "/v1/sessions?state=closed&sort=-failed&limit=50",
    "last page of sessions": f"/v1/sessions?sort=created&limit=50&offset={SESSIONS - 50}",
    "all sessions": "/v1/sessions",
    "tasks of a session": "/v1/sessions/past-00007/tasks?limit=25",
    "page of the history, 30 days": "/v1/history?since={since}&limit=40",
    "history of a user, 30 days": "/v1/history?since={since}&owner=user-07&limit=100",
    "usage of 30 days by owner": "/v1/usage?since={since}&by=owner",
    "usage of 30 days by owner, 42 steps": "/v1/usage?since={since}&by=owner&step=62000",
    "usage of 30 days by queue, 42 steps": "/v1/usage?since={since}&by=queue&step=62000",
}


def name_of(number: int) -> str:
    """Return the id of a session of the past; numbers begin with 0."""
    return f"past-{number:05}"


def fill(store: Store, *, sessions: int, tasks_each: int, open_: int, now: float) -> None:
    """Write a past that ends now; the `open_` newest sessions are open, and have no tasks that wait."""
    gap_s = PERIOD_S / sessions
    for number in range(sessions):
        begin = now - PERIOD_S + number * gap_s
        store.write(*_records(number, begin, tasks_each, is_open=number >= sessions - open_))
    span = CapacitySpan(1, 64.0, 512.0, 2**40, now - PERIOD_S, now)
    store.write(PutCapacity(span)).result()


def _records(number: int, begin: float, tasks: int, *, is_open: bool) -> list[Record]:
    """Return a session with its tasks, its executor and its row of the history."""
    session, owner, application = name_of(number), f"user-{number % USERS:02}", APPLICATIONS[number % 2]
    end = None if is_open else begin + RAN_S
    failed = number % 10 == 0
    spec = SessionSpec(application, REQUEST, owner=owner)
    state = SessionState.OPEN if is_open else SessionState.CLOSED
    results = (
        TaskResult(
            session,
            task,
            task,
            TaskState.FAILED if failed and task == 1 else TaskState.SUCCEED,
            code=int(failed and task == 1),
            output=b"o" * 32,
            message="",
            executor=f"e1-{number}",
            started_at=begin,
            ended_at=begin + RAN_S,
        )
        for task in range(1, tasks + 1)
    )
    history = SessionHistory(
        number + 1,
        session,
        owner=owner,
        queue=spec.queue,
        application=application,
        resreq=str(REQUEST),
        created_at=begin,
        asked_at=begin,
        started_at=begin + 60,
        ended_at=end,
        state=PastState.RUNNING if is_open else PastState.FAILED if failed else PastState.SUCCEED,
        succeed=0 if is_open else tasks - failed,
        failed=0 if is_open else int(failed),
    )
    stay = Stay(
        number + 1,
        f"e1-{number}",
        number + 1,
        owner=owner,
        queue=spec.queue,
        application=application,
        node="n",
        gpus=("GPU-1",),
        cards=0.5,
        cores=1.0,
        memory_bytes=2**30,
        started_at=begin + 60,
        ended_at=begin + RAN_S,
        memory_peak_bytes=2**29,
    )
    return [
        PutSession(SessionInfo(session, spec, begin, number=number + 1, state=state, closed_at=end)),
        AddTasks(session, 1, "k", 1, inputs=(b"i" * 32,) * tasks, created_at=begin),
        AddResults(tuple(results)),
        PutHistory(history),
        PutStay(stay),
    ]


def main() -> None:
    """Fill a database, start a server on it, and measure its answers."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        now = time.time()
        store = open_store(str(home / "state.db"))
        store.load()
        begun = time.perf_counter()
        fill(store, sessions=SESSIONS, tasks_each=TASKS_EACH, open_=OPEN, now=now)
        store.close()
        size = sum(file.stat().st_size for file in home.glob("state.db*"))
        print(f"past: {SESSIONS:,} sessions, {SESSIONS * TASKS_EACH:,} tasks, {size / 2**20:,.0f} MiB on disk")
        print(f"  {'written in':40} {time.perf_counter() - begun:8.1f} s")
        begun = time.perf_counter()
        with LiveServer(home) as server, server.client() as client:
            print(f"  {'the server starts in':40} {time.perf_counter() - begun:8.1f} s")
            for what, path in ROUTES.items():
                _measure(client, what, path.format(since=int(now - PERIOD_S)), _pid(server))
            for verb in VERBS:
                _run(verb, server)
            _call(server)
    for competing in (50, OWNERS):
        _update(competing)


def _update(competing: int) -> None:
    """Measure an update of weights by past use, where so many owners have work."""
    half_life = HalfLife(86_400.0)
    with Lab(a_node(cpu=64), queues=[Queue("a"), Queue("b")], half_life=half_life) as lab:
        state, accounting, begin = lab.service.state, lab.service.accounting, lab.now
        past, put_off = PastUse(half_life), deque[tuple[Callable[[], Any], Callable[[Any], None]]]()
        shares = FairShare(past, state, accounting, lambda: begin, later=lambda *work: put_off.append(work))
        for number in range(OWNERS):
            owner, queue = f"user-{number}", "ab"[number % 2]
            span = {"started_at": begin - 5000.0, "ended_at": begin - 4000.0 + number / 10}
            past.add(Stay(number, "e", 1, owner, queue, "function", "n", (), 1.0, 1.0, 8, **span))
            if number < competing:
                spec = SessionSpec("function", REQUEST, queue=queue, owner=owner, min_instances=1)
                state.sessions[owner] = SessionRecord(SessionInfo(owner, spec, begin, number=number + 1))
        begun = time.perf_counter()
        shares.expire(begin)
        copied = time.perf_counter()
        ((work, take),) = put_off
        take(work())
        ended = time.perf_counter()
    of_both = f"{1000 * (copied - begun):.1f} ms on the thread of the server, {1000 * (ended - copied):.1f} ms off it"
    print(f"  weights by past use of {OWNERS:,} owners, {competing:,} with work: {of_both}")


def _measure(client: httpx2.Client, what: str, path: str, pid: int) -> None:
    times, used = [], _cpu_s(pid)
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        answer = client.get(path)
        times.append(1000 * (time.perf_counter() - begun))
        answer.raise_for_status()
    kib = len(answer.content) / 1024
    cpu_ms = 1000 * (_cpu_s(pid) - used) / ROUNDS
    wall = f"{median(times):8.1f} ms, at most {max(times):8.1f} ms"
    print(f"  {what:40} {wall}, {cpu_ms:8.1f} ms of the server's CPU, {kib:8.0f} KiB")


def _run(verb: str, server: LiveServer) -> None:
    """Measure a verb: the least wall and CPU time of its process, and the CPU time of the server."""
    environment = {**os.environ, "ULLAGE_HOME": str(server.home)}
    nothing = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, nothing, descriptor) for descriptor in (0, 1, 2)]
    walls, cpus, used = [], [], _cpu_s(_pid(server))
    for _ in range(VERB_ROUNDS):
        begun = time.perf_counter()
        command = [sys.executable, "-m", "ullage.cli.main", *verb.split()]
        _, status, usage = os.wait4(os.posix_spawn(sys.executable, command, environment, file_actions=actions), 0)
        walls.append(time.perf_counter() - begun)
        cpus.append(usage.ru_utime + usage.ru_stime)
        if status:
            raise SystemExit(f"ullage {verb} ends with {os.waitstatus_to_exitcode(status)}")
    os.close(nothing)
    own, served = 1000 * min(cpus), 1000 * (_cpu_s(_pid(server)) - used) / VERB_ROUNDS
    name = f"ullage {verb}"
    print(f"  {name:53} {1000 * min(walls):6.0f} ms, {own:6.0f} ms of CPU, {served:6.0f} ms of the server's")


def _call(server: LiveServer) -> None:
    """Measure small functions of a new session."""
    used, begun = _cpu_s(_pid(server)), time.perf_counter()
    with ullage.connect(server.url, token=server.token) as client, client.session(resreq="cpu=1") as session:
        list(session.map(abs, range(CALLS)))
    wall, cpu = time.perf_counter() - begun, _cpu_s(_pid(server)) - used
    print(f"  {f'{CALLS:,} functions of a new session':40} {wall:8.1f} s, {cpu:8.1f} s of the server's CPU")


def _pid(server: LiveServer) -> int:
    assert server.process is not None
    pid: int = server.process.pid
    return pid


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
