"""Refusal of changes while the disk of the server is full.

A request that was accepted before is then answered too, under a code of its own: its change is made, waits for room
and is stored later. Cancelling is let through, because it may free room, and is answered like that. Answers to reading
requests have a header, because they may show such changes, which a crash undoes.

After the store failed, all requests are refused until the process has ended: memory is ahead of what a restart shows.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ullage.model.error import DiskFull, Unavailable
from ullage.server.durable import watched_change
from ullage.server.errors import error_response
from ullage.service.service import UllageService

UNSTORED = "ullage-unstored"
"""The header of answers that may show changes that are not stored yet: `true` while the disk is full."""

CANCEL_S = 1.0
"""Seconds that cancelling may take on a full disk before the response."""

_READING = frozenset({"GET", "HEAD"})
_OF_PROCESS = frozenset({"/healthz", "/readyz", "/v1/shutdown"})
_HARMLESS = ("/v1/shutdown", "/v1/plan", "/simulate-schedule", "/exec", "/attach")


def _not_stored(error: Unavailable) -> DiskFull:
    """Return the error for a change that is made but not stored, and so must not be repeated."""
    then = "the change is made and will be stored once there is space; do not repeat it"
    return DiskFull(f"{error.message}; {then}, but check it if the server ends before", code="not-stored")


class RoomGuard:
    """ASGI middleware over one service."""

    def __init__(self, app: ASGIApp, service: UllageService) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or respond with 507, or with 503 after the store failed."""
        error = self._service.no_room
        failed = error is not None and not isinstance(error, DiskFull)
        if error is not None and failed and scope["type"] == "http" and scope["path"] not in _OF_PROCESS:
            await error_response(error)(scope, receive, send)
        elif scope["type"] != "http" or scope["method"] in _READING or scope["path"].endswith(_HARMLESS):
            await self._app(scope, receive, self._marking(send) if scope["type"] == "http" else send)
        elif error is None:
            await self._watched(scope, receive, send)
        elif scope["path"].endswith("/cancel"):
            await self._watched(scope, receive, send, CANCEL_S)
        else:
            await error_response(error)(scope, receive, send)

    def _marking(self, send: Send) -> Send:
        """Return `send` with the header `UNSTORED` on answers that begin while the disk is full."""

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start" and self._service.no_room is not None:
                MutableHeaders(scope=message)[UNSTORED] = "true"
            await send(message)

        return marked

    async def _watched(self, scope: Scope, receive: Receive, send: Send, most_s: float | None = None) -> None:
        """Pass the request on. Until it has a response, a full disk cancels it."""
        task = asyncio.current_task()
        assert task is not None, "a request is answered in a task"
        answered = False

        def end() -> None:
            """End a request that waits for a full disk; one whose changes are stored goes on to its response."""
            if not answered and not change.stored and self._service.no_room is not None:
                task.cancel()

        async def answer(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        timer = None if most_s is None else asyncio.get_running_loop().call_later(most_s, end)
        with watched_change() as change, self._service.unstored.ended_by(end):
            try:
                await self._app(scope, receive, answer)
            except asyncio.CancelledError:
                error = self._service.no_room
                if answered or error is None or task.uncancel():
                    raise
                waits = change.made and isinstance(error, DiskFull)
                await error_response(_not_stored(error) if waits else error)(scope, receive, send)
            finally:
                if timer is not None:
                    timer.cancel()
