"""A server on a loop of its own, whose application runs on the loop that created it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.strangers import ENDLESS, PLENTY, Address, pour

from ullage.bootstrap.http.loop_thread import CompleteRequests, LoopThread
from ullage.bootstrap.kube_server import KubeServer, served
from ullage.kube.body import read_body

pytestmark = pytest.mark.anyio
MOST = 1000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def other_loop(at_once: int = 4) -> AsyncIterator[tuple[str, list[int]]]:
    """Yield the address of an application, and its largest number of concurrent requests."""
    here, running = threading.get_ident(), [0, 0]

    @contextmanager
    def counted() -> Iterator[None]:
        running[0] += 1
        running[1] = max(running)
        yield
        running[0] -= 1

    async def take(request: Request) -> Response:
        assert threading.get_ident() == here
        with counted():
            return PlainTextResponse(f"{len(await read_body(request, MOST))} {request.headers.get('x-who')}")

    pair = asyncio.Barrier(2)

    async def take_in_pairs(_: Request) -> Response:
        with counted():
            await pair.wait()
            return PlainTextResponse("two were here")

    async def fail(_: Request) -> Response:
        raise RuntimeError

    app = Starlette(
        routes=[Route("/take", take, methods=["GET", "POST"]), Route("/pair", take_in_pairs), Route("/fail", fail)]
    )
    with LoopThread() as loop:
        server = KubeServer(CompleteRequests(app, most_bytes=MOST, at_once=at_once), "127.0.0.1:0", None, loop)
        async with served({"it": server}):
            yield server.url, running


async def test_requests_are_answered_by_the_loop_of_the_application() -> None:
    async with other_loop() as (url, _), httpx2.AsyncClient(base_url=url, timeout=60) as caller:
        assert (await caller.get("/take", headers={"X-Who": "me"})).text == "0 me"
        assert (await caller.post("/take", content=b"a" * MOST)).text == f"{MOST} None"
        longer = await caller.post("/take", content=b"a" * 3 * MOST)
        assert longer.text == f"{MOST + 1} None", "it sees that there is more than it takes"
        assert (await caller.get("/nothing")).status_code == 404
        assert (await caller.get("/fail")).status_code == 500
        assert (await caller.get("/take")).status_code == 200


async def test_the_number_of_concurrent_requests_is_bounded() -> None:
    async with other_loop(at_once=2) as (url, running), httpx2.AsyncClient(base_url=url, timeout=60) as caller:
        answers = await asyncio.gather(*(caller.get("/pair") for _ in range(30)))
    assert {answer.status_code for answer in answers} == {200}
    assert running == [0, 2]


@pytest.mark.parametrize("kind", ENDLESS)
async def test_a_request_without_an_end_never_reaches_the_application(kind: str) -> None:
    begin, pieces = ENDLESS[kind]
    async with other_loop() as (url, running), httpx2.AsyncClient(base_url=url, timeout=60) as caller:
        address = Address("127.0.0.1", int(url.rpartition(":")[2]))

        def attack() -> int:
            with address.connect() as stranger:
                return pour(stranger, begin.replace(b"/v1/sessions", b"/take"), pieces())

        assert await asyncio.to_thread(attack) < PLENTY
        assert (await caller.get("/take")).text == "0 None"
        assert running == [0, 1]
