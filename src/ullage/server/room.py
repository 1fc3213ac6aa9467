"""Refusal of changes while the disk of the server is full.

A request that was accepted before gets an answer with its own code: its change is made, waits for disk space and is
stored later. Cancelling is permitted, because it may free space, and gets the same answer.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ullage.model.error import DiskFull, Unavailable
from ullage.server.durable import NotStored
from ullage.server.errors import error_response
from ullage.service.service import UllageService

CANCEL_S = 1.0
"""Seconds that cancelling may take on a full disk before the response."""

_READING = frozenset({"GET", "HEAD"})
_HARMLESS = ("/v1/shutdown", "/v1/plan", "/simulate-schedule")


def _not_stored(error: Unavailable) -> DiskFull:
    """Return the error for a change that is made but not stored, and so must not be repeated."""
    then = "the change is made and will be stored once there is space; do not repeat it"
    return DiskFull(f"{error.message}; {then}, but check it if the server ends before", code="not-stored")


class RoomGuard:
    """ASGI middleware over one service."""

    def __init__(self, app: ASGIApp, service: UllageService) -> None:
        self._app = app
        self._service = service
        self._waiting: set[asyncio.Task[None]] = set()
        service.on_no_room = self._end_waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or respond with 507."""
        if scope["type"] != "http" or scope["method"] in _READING or scope["path"].endswith(_HARMLESS):
            await self._app(scope, receive, send)
        elif self._service.no_room is None:
            await self._watched(scope, receive, send)
        elif scope["path"].endswith("/cancel"):
            await self._watched(scope, receive, send, CANCEL_S)
        else:
            await error_response(self._service.no_room)(scope, receive, send)

    def _end_waiting(self) -> None:
        for task in self._waiting:
            task.cancel()

    async def _watched(self, scope: Scope, receive: Receive, send: Send, most_s: float | None = None) -> None:
        """Pass the request on. Until it has a response, a full disk cancels it."""
        task = asyncio.current_task()
        assert task is not None, "a request is answered in a task"
        answered = False

        async def answer(message: Message) -> None:
            nonlocal answered
            answered = True
            self._waiting.discard(task)
            await send(message)

        self._waiting.add(task)
        timer = None if most_s is None else asyncio.get_running_loop().call_later(most_s, task.cancel)
        try:
            await self._app(scope, receive, answer)
        except asyncio.CancelledError as end:
            error = self._service.no_room
            if answered or error is None or task.uncancel():
                raise
            await error_response(_not_stored(error) if isinstance(end, NotStored) else error)(scope, receive, send)
        finally:
            self._waiting.discard(task)
            if timer is not None:
                timer.cancel()
