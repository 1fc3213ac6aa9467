"""Long searches, one at a time, in slices between which other requests are answered.

Searches run in order of their requests. A search whose caller has disconnected ends, or does not begin.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from ullage.core.books.slices import Slices
from ullage.model.error import PlanChanged, Unavailable

_Result = TypeVar("_Result")

MOST_WAITING = 16
"""The most searches that wait while one runs; each takes up to some seconds."""

TRIES = 3
"""The most searches for one request, if changes invalidate each result before its execution."""


class Searches:
    """The searches of one server."""

    def __init__(self) -> None:
        self._running = asyncio.Lock()  # fair: waiters acquire it in order
        self._count = 0

    async def result_for(self, request: HttpRequest, begin: Callable[[], Slices[_Result]]) -> _Result:
        """Wait for earlier searches, run one and return its result. The body of the request has been read.

        Raises:
            Unavailable: too many searches wait.
            ClientDisconnect: the caller has disconnected.

        """
        if self._count > MOST_WAITING:
            raise Unavailable(f"{MOST_WAITING} searches are waiting already; ask again later", code="too-many-searches")
        self._count += 1
        try:
            return await _until_disconnect(request, self._run(begin))
        finally:
            self._count -= 1

    async def _run(self, begin: Callable[[], Slices[_Result]]) -> _Result:
        async with self._running:
            return await _in_slices(begin())


async def retried(attempt: Callable[[], Awaitable[_Result]]) -> _Result:
    """Return the result of an attempt. Repeat it a few times if its plan has changed meanwhile.

    Raises:
        PlanChanged: the plan of the last attempt has changed, too.

    """
    for _ in range(TRIES - 1):
        with contextlib.suppress(PlanChanged):
            return await attempt()
    return await attempt()


async def _in_slices(slices: Slices[_Result]) -> _Result:
    with contextlib.closing(slices):
        while True:
            try:
                next(slices)
            except StopIteration as end:
                found: _Result = end.value
                return found
            await asyncio.sleep(0)


async def _until_disconnect(request: HttpRequest, work: Awaitable[_Result]) -> _Result:
    """Return the result of work that is cancelled when the caller disconnects."""
    working, left = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((working, left), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for each in (working, left):
            each.cancel()
        await asyncio.gather(working, left, return_exceptions=True)


async def _disconnected(request: HttpRequest) -> None:
    message = await request.receive()
    if message["type"] != "http.disconnect":
        await asyncio.Event().wait()  # a server that repeats the end of the body
