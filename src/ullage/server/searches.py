"""Long searches, one at a time, in slices between which all other requests are answered.

The next search begins when the one before it has ended, in the order in which they were asked for. A search whose
caller has left ends, or does not begin.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from ullage.core.books.slices import Slices
from ullage.model.error import Unavailable

_Result = TypeVar("_Result")

MOST_WAITING = 16
"""Searches that may wait while one runs; each takes up to some seconds."""

TRIES = 3
"""Searches for one request while what they find is changed before it is carried out."""


class Searches:
    """The searches of one server."""

    def __init__(self) -> None:
        self._turns = asyncio.Lock()  # fair: the first to wait is the first to go on
        self._here = 0

    async def result_for(self, request: HttpRequest, begin: Callable[[], Slices[_Result]]) -> _Result:
        """Return the result of a search that begins when it is its turn. The body of the request has been read.

        Raises:
            Unavailable: too many searches wait. ClientDisconnect: the caller has left.

        """
        if self._here > MOST_WAITING:
            raise Unavailable(
                f"{MOST_WAITING} searches wait for their turn already; ask again later", code="too-many-searches"
            )
        self._here += 1
        try:
            return await _while_there(request, self._in_turn(begin))
        finally:
            self._here -= 1

    async def _in_turn(self, begin: Callable[[], Slices[_Result]]) -> _Result:
        async with self._turns:
            return await _in_slices(begin())


async def _in_slices(slices: Slices[_Result]) -> _Result:
    with contextlib.closing(slices):
        while True:
            try:
                next(slices)
            except StopIteration as end:
                found: _Result = end.value
                return found
            await asyncio.sleep(0)


async def _while_there(request: HttpRequest, work: Awaitable[_Result]) -> _Result:
    """Return the result of work that is cancelled when the caller leaves."""
    working, left = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, left), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for each in (working, left):
            each.cancel()
        await asyncio.gather(working, left, return_exceptions=True)


async def _left(request: HttpRequest) -> None:
    message = await request.receive()
    if message["type"] != "http.disconnect":
        await asyncio.Event().wait()  # a server that repeats the end of the body
