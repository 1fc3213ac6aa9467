"""The handlers of estimates: when waiting sessions start.

Simulated futures cost seconds of a processor. So one estimate is made at a time, of all waiting sessions together. All
who ask share it until it is `HOLD_S` old, and `REST` times as old as it took to make.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping

from starlette.requests import Request

from ullage.model.identity import Role
from ullage.server.access import Authorizer, Whose, needs
from ullage.server.parameters import session_of
from ullage.server.routes import route
from ullage.service.foresight import Estimate
from ullage.service.service import UllageService
from ullage.service.starts import PAST
from ullage.wire.body import body_of
from ullage.wire.history import StartBody

HOLD_S = 5.0
"""Seconds for which an estimate is given again."""

REST = 4.0
"""Seconds for which an estimate is given again, for each second that it took to make."""


class SharedEstimates:
    """The estimates of all sessions that wait, for all who ask."""

    def __init__(self, service: UllageService) -> None:
        self._service = service
        self._one = asyncio.Lock()
        self._known: Mapping[str, Estimate] = {}
        self._holds_until = 0.0

    async def of(self, sessions: Collection[str]) -> Mapping[str, Estimate]:
        """Return the estimates of these sessions, and of others."""
        async with self._one:
            if time.monotonic() >= self._holds_until or not self._known.keys() >= set(sessions):
                began = time.monotonic()
                past = await asyncio.to_thread(self._service.store.history, PAST, time.time())
                starts = self._service.starts
                self._known = await asyncio.to_thread(starts.estimating({*starts.waiting(), *sessions}, past))
                ended = time.monotonic()
                self._holds_until = ended + max(HOLD_S, REST * (ended - began))
            return self._known


class StartsApi:
    """Handlers over one service."""

    def __init__(self, service: UllageService) -> None:
        self._service, self._authorizer, self._shared = service, Authorizer(service), SharedEstimates(service)

    @route("GET", "/v1/sessions/{session}/start", "sessions")
    @needs(Role.VIEWER, Whose.SHOWN)
    async def estimate_start(self, request: Request) -> StartBody:
        """Estimate when a waiting session gets its first executor, from simulated futures of the queue."""
        session = session_of(request)
        refusal = self._service.starts.refusal(session)
        found = Estimate(text=refusal) if refusal else (await self._shared.of([session]))[session]
        return body_of(StartBody, found, session=session)

    @route("GET", "/v1/starts", "sessions")
    @needs(Role.VIEWER)
    async def estimate_starts(self, request: Request) -> list[StartBody]:
        """Estimate when each waiting session gets its first executor, from simulated futures of the queue."""
        shown = {record.id for record in self._authorizer.shown_sessions(request)}
        sessions = [name for name in self._service.starts.waiting() if name in shown]
        found = await self._shared.of(sessions)
        return [body_of(StartBody, found[name], session=name) for name in sessions]
