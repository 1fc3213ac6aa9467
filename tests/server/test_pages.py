"""A thread writes long pages while others are answered, and each page describes one state."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.routing import Route

from tests.lab import Lab, a_node
from ullage.model.claim import Claim
from ullage.model.claim import Request as Asked
from ullage.model.identity import Identity, Role
from ullage.model.request import ResourceRequirement
from ullage.server import metrics
from ullage.server.access import IDENTITY, needs
from ullage.server.allocations import AllocationApi, Refused, on_refused
from ullage.server.answers import Answers
from ullage.server.api import ServerApi
from ullage.server.details import DetailsApi
from ullage.server.pods import PodApi
from ullage.server.routes import Answer, LongBody, encoded, endpoints_of, route
from ullage.server.searches import Searches
from ullage.server.streams import Streams
from ullage.service.pages import written
from ullage.wire.overview import ServerBody

SERVER = ServerBody(version="", epoch=1, started_at=0.0, home="", storage="", isolation="", policy={})
POD = {
    "metadata": {"name": "p", "namespace": "default", "annotations": {"ullage.io/tflops-request": "1"}},
    "spec": {"schedulerName": "ullage", "containers": [{"name": "c"}]},
}


def nothing() -> None:
    pass


def a_request(method: str = "GET", body: Any = None) -> Request:
    async def receive() -> Any:
        return {"type": "http.request", "body": b"" if body is None else msgspec.json.encode(body), "more_body": False}

    scope: dict[str, Any] = {"type": "http", "method": method, "path": "/", "headers": [], "query_string": b""}
    who = {IDENTITY: Identity("ann", Role.ADMIN, "token file")}
    return Request(scope | who | {"path_params": {"session": "s"}}, receive)


def asked(uid: str, text: str) -> Asked:
    return Asked(uid, ResourceRequirement.from_string(text), Claim(namespace="team", pod=uid))


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two nodes of two cards: a session holds one, a request a part of another."""
    with Lab(a_node("n1", gpus=2), a_node("n2", gpus=2)) as lab:
        lab.session("s", "gpu=1", tasks=1)
        lab.session("wide", "gpu=9")
        lab.service.allocations.alloc(asked("first", "gpu=0.3"), nothing)
        lab.pump()
        yield lab


def change(lab: Lab) -> None:
    """Change something on every page."""
    lab.service.allocations.alloc(asked("second", "gpu=0.5"), nothing)
    lab.service.allocations.dealloc("first", None, nothing)
    lab.session("t", "gpu=1", tasks=2)
    lab.finish("s")
    lab.service.sessions.close("s", nothing)
    lab.service.nodes.cordon("n2", True, nothing)
    lab.pump()


def page_of(lab: Lab, route: str) -> Callable[[], Any]:
    """Return the function that a thread calls to write the present state for a route."""
    answers = Answers(lab.service, SERVER, {})
    fronts = [
        ServerApi(lab.service, answers, nothing),
        DetailsApi(lab.service, answers),
        AllocationApi(lab.service, Searches()),
        PodApi(lab.service),
    ]
    endpoints = [(endpoint, front) for front in fronts for endpoint in endpoints_of(type(front))]
    if route == "GET /metrics":
        return lambda: metrics.page(lab.service, answers)
    found, front = next(each for each in endpoints if f"{each[0].method} {each[0].path}" == route)
    body = {"POST /v1/simulate-schedule": POD, "POST /v1/plan": {"resreq": "gpu=1"}}.get(route)

    def write() -> Any:
        answer = asyncio.run(found.handler(front, a_request(found.method, body)))
        answer = answer.body if isinstance(answer, Answer) else answer
        assert callable(answer), "its page is written in a thread"
        return answer

    return write


def text(page: Any) -> Any:
    """The page without the time at which it was asked for."""
    if isinstance(page, bytes):
        return page
    found = msgspec.json.decode(msgspec.json.encode(page))
    return {key: found[key] for key in found if key != "at"} if isinstance(found, dict) else found


ROUTES = [
    *(f"GET /v1/{name}" for name in ("overview", "nodes", "gpus", "sessions", "executors", "events", "allocations")),
    "GET /api/allocation",
    "GET /v1/allocation-report",
    "GET /v1/sessions/{session}/why",
    "GET /metrics",
    "POST /v1/simulate-schedule",
    "POST /v1/plan",
]


@pytest.mark.parametrize("route", ROUTES)
def test_a_change_while_a_page_is_written_is_not_on_it(lab: Lab, route: str) -> None:
    ask = page_of(lab, route)
    before, pending = text(ask()()), ask()
    change(lab)
    assert text(pending()) == before
    assert text(ask()()) != before


@pytest.mark.parametrize("route", ROUTES)
def test_a_page_is_the_same_in_a_thread(lab: Lab, route: str) -> None:
    ask = page_of(lab, route)
    here, there = text(ask()()), ask()
    assert asyncio.run(in_writer(there)) == here


async def in_writer(page: Callable[[], Any]) -> Any:
    return text(await written(page))


def test_others_are_answered_while_a_page_is_written() -> None:
    answered = threading.Event()

    class Front:
        @route("GET", "/v1/long", "tests")
        @needs(Role.VIEWER)
        async def long(self, _: Request) -> LongBody[list[int]]:
            """Return one number, late."""

            def write() -> list[int]:
                assert answered.wait(60), "the event loop waits for the page"
                return [1]

            return write

        @route("GET", "/v1/short", "tests")
        @needs(Role.VIEWER)
        async def short(self, _: Request) -> list[int]:
            """Return one number."""
            answered.set()
            return [2]

    long, short = (endpoint.route(Front(), lambda *_: None) for endpoint in endpoints_of(Front))

    async def ask(route: Route) -> bytes:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        request = a_request()
        await route.handle(request.scope, request.receive, send)
        return bytes(sent[-1]["body"])

    async def main() -> list[bytes]:
        return await asyncio.gather(ask(long), ask(short))

    assert asyncio.run(main()) == [b"[1]", b"[2]"]


def test_pages_are_written_one_at_a_time_in_the_order_of_their_requests() -> None:
    log: list[str] = []

    def page(name: str) -> Callable[[], str]:
        def write() -> str:
            log.extend((f"{name} begins", f"{name} ends"))
            return name

        return write

    async def main() -> list[str]:
        return await asyncio.gather(*(written(page(name)) for name in "abc"))

    assert asyncio.run(main()) == ["a", "b", "c"]
    assert log == [f"{name} {step}" for name in "abc" for step in ("begins", "ends")]


def test_a_refusal_is_written_in_a_thread(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def note(*_: Any) -> list[int]:
        threads.append(threading.current_thread())
        return []

    monkeypatch.setattr("ullage.server.allocations.refusal_body", note)
    refusal = lab.service.allocations.alloc(asked("big", "gpu=9"), nothing)
    answer = asyncio.run(on_refused(a_request(), Refused(refusal)))
    assert answer.status_code == 409
    assert threads != [threading.current_thread()]


def test_the_live_page_is_written_in_a_thread(lab: Lab, tmp_path: Path) -> None:
    turned = threading.Event()
    answers = Answers(lab.service, SERVER, {})
    overview = answers.overview

    def held(at: float, *how: Any) -> Callable[[], Any]:
        page = overview(at, *how)
        return lambda: page() if turned.wait(60) else None

    answers.overview = held
    streams = Streams(lab.service, answers)

    async def main() -> bytes:
        asyncio.get_running_loop().call_soon(turned.set)
        events = (await streams.stream_overviews(a_request())).body_iterator
        return await anext(aiter(events))

    event = asyncio.run(main())
    assert msgspec.json.decode(event["data"])["nodes"]


def test_a_short_body_needs_no_thread() -> None:
    assert asyncio.run(encoded([1, 2])) == b"[1,2]"
