"""Servers with an event loop of their own, which read untrusted requests and pass on complete ones only.

The application runs on the loop that created it, because it reads and changes objects of that loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

import uvloop
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_T = TypeVar("_T")


class LoopThread:
    """A thread with an event loop, which runs inside the context."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="ullage-requests", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Future[_T]:
        """Run a coroutine on that loop; the future belongs to the caller's loop."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


class CompleteRequests:
    """An application for a server with its own loop, called on the creating loop, at most `at_once` times at once.

    At most `most_bytes` + 1 of a body are read; the application refuses it by its length.
    """

    def __init__(self, app: ASGIApp, *, most_bytes: int, at_once: int) -> None:
        self._app, self._most_bytes = app, most_bytes
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the request, call the application, and send the response."""
        body = await self._body(receive)
        async with self._slots:
            call = asyncio.run_coroutine_threadsafe(_answer(self._app, scope, body), self._loop)
            answer = await asyncio.wrap_future(call)
        for message in answer:
            await send(message)

    async def _body(self, receive: Receive) -> bytes:
        found = bytearray()
        while len(found) <= self._most_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            found += message.get("body", b"")
            if not message.get("more_body", False):
                break
        return bytes(found[: self._most_bytes + 1])


async def _answer(app: ASGIApp, scope: Scope, body: bytes) -> list[Message]:
    """Return the response messages of an application that needs only the request."""
    answer: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        answer.append(message)

    await app(scope, receive, send)
    return answer
