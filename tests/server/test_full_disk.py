"""While the disk is full, callers are answered at once, and reads go on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ullage.model.error import DiskFull, Unavailable
from ullage.server.durable import durable, note_change
from ullage.server.room import UNSTORED, RoomGuard
from ullage.service.unstored import UnstoredRequests

FULL = DiskFull("the disk of the server is full")
ALL = ["GET", "POST", "DELETE"]


@dataclass
class Service:
    no_room: Unavailable | None = None
    unstored: UnstoredRequests = field(default_factory=UnstoredRequests)

    def fill(self, error: Unavailable = FULL) -> None:
        self.no_room = error
        self.unstored.end_all()


def client(service: Service, taken: asyncio.Event, shown: asyncio.Event | None = None) -> httpx2.AsyncClient:
    shown = shown or asyncio.Event()

    async def answer(_: Request) -> PlainTextResponse:
        return PlainTextResponse("done")

    async def wait(_: Request) -> PlainTextResponse:
        taken.set()
        await asyncio.Event().wait()
        return PlainTextResponse("never")

    async def change(_: Request) -> PlainTextResponse:
        await durable(lambda _done: taken.set())
        return PlainTextResponse("never")

    async def notes(_: Request) -> PlainTextResponse:
        note_change()
        taken.set()
        await asyncio.Event().wait()
        return PlainTextResponse("never")

    async def shows(_: Request) -> PlainTextResponse:
        await durable(lambda done: done())
        taken.set()
        await shown.wait()
        return PlainTextResponse("stored")

    routes = [
        Route("/notes", notes, methods=ALL),
        Route("/shows", shows, methods=ALL),
        Route("/healthz", answer),
        Route("/x", answer, methods=ALL),
        Route("/wait", wait, methods=ALL),
        Route("/v1/plan", answer, methods=ALL),
    ]
    routes += [Route("/change", change, methods=ALL), Route("/s/cancel", change, methods=ALL)]
    app = Starlette(routes=routes, middleware=[Middleware(RoomGuard, service=service)])
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test")


def test_changes_are_refused_and_reads_are_answered():
    async def ask() -> list[int]:
        service = Service()
        async with client(service, asyncio.Event()) as http:
            before = await http.post("/x")
            service.fill()
            refused = await http.post("/x"), await http.delete("/x")
            assert refused[0].json() == {"code": "disk-full", "message": str(FULL), "field": None}
            taken = await http.get("/x"), await http.post("/v1/plan")
            service.no_room = None
            after = await http.post("/x")
        return [answer.status_code for answer in (before, *refused, *taken, after)]

    assert asyncio.run(ask()) == [200, 507, 507, 200, 200, 200]


def test_an_answer_that_may_show_what_is_not_stored_says_so():
    async def ask() -> list[str | None]:
        service = Service()
        async with client(service, asyncio.Event()) as http:
            stored = await http.get("/x")
            service.fill()
            unstored = await http.get("/x"), await http.post("/v1/plan")
            service.no_room = None
            stored_again = await http.get("/x"), await http.post("/x")
        return [answer.headers.get(UNSTORED) for answer in (stored, *unstored, *stored_again)]

    assert asyncio.run(ask()) == [None, "true", "true", None, None]


def test_a_request_that_waits_for_the_disk_is_answered_when_it_is_full():
    async def ask() -> tuple[int, str]:
        service, taken = Service(), asyncio.Event()
        async with client(service, taken) as http:
            waiting = asyncio.create_task(http.post("/wait"))
            await taken.wait()
            service.fill()
            answer = await waiting
            return answer.status_code, answer.json()["code"]

    assert asyncio.run(ask()) == (507, "disk-full")


@pytest.mark.parametrize("path", ["/change", "/notes"])
def test_a_change_that_is_made_and_waits_for_the_disk_is_not_called_refused(path: str):
    async def ask() -> httpx2.Response:
        service, taken = Service(), asyncio.Event()
        async with client(service, taken) as http:
            waiting = asyncio.create_task(http.post(path))
            await taken.wait()
            service.fill()
            return await waiting

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()["code"]) == (507, "not-stored")
    assert "will be stored once there is space; do not repeat it" in answer.json()["message"]


def test_a_change_that_is_stored_is_answered_when_the_disk_is_full_before_its_answer_is_written():
    async def ask() -> httpx2.Response:
        service, taken, shown = Service(), asyncio.Event(), asyncio.Event()
        async with client(service, taken, shown) as http:
            waiting = asyncio.create_task(http.post("/shows"))
            await taken.wait()
            service.fill()
            shown.set()
            return await waiting

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.text) == (200, "stored")


def test_after_the_store_failed_nothing_is_shown_that_a_restart_may_not_show():
    failed = Unavailable("the store failed", code="storage-failed")

    async def ask() -> list[tuple[int, str]]:
        service, taken = Service(), asyncio.Event()
        async with client(service, taken) as http:
            waiting = asyncio.create_task(http.post("/change"))
            await taken.wait()
            service.fill(failed)
            answers = await waiting, await http.get("/x"), await http.post("/x"), await http.post("/s/cancel")
            assert (await http.get("/healthz")).status_code == 200
            return [(answer.status_code, answer.json()["code"]) for answer in answers]

    assert asyncio.run(ask()) == [(503, "storage-failed")] * 4


def test_cancelling_acts_on_a_full_disk_and_is_answered():
    async def ask() -> tuple[int, str, bool]:
        service, taken = Service(), asyncio.Event()
        async with client(service, taken) as http:
            await http.get("/x")
            service.fill()
            answer = await http.post("/s/cancel")
            return answer.status_code, answer.json()["code"], taken.is_set()

    assert asyncio.run(ask()) == (507, "not-stored", True)
