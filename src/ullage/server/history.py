"""The handlers of the history: what ran, who held what, and what was used of what there was."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace
from typing import NamedTuple, TypeVar

from starlette.requests import Request

from ullage.model.error import Forbidden, invalid
from ullage.model.history import ClosedQuery, Expiry, HistoryQuery, Keeping, PastSession, UsageQuery
from ullage.model.identity import Role
from ullage.model.past_state import DIMENSIONS, PastState
from ullage.server import bodies
from ullage.server.access import Authorizer, caller_of, needs
from ullage.server.durable import durable
from ullage.server.fair_share import FairShareQuery, fair_share_body
from ullage.server.parameters import count_of, page_of, time_of
from ullage.server.routes import LongBody, route
from ullage.service.accounting import with_counts
from ullage.service.service import UllageService
from ullage.wire.body import body_of
from ullage.wire.fair_share import FairShareBody
from ullage.wire.history import HistoryBody, OfferedBody, StayBody, UsageBody, UsedBody
from ullage.wire.session import DeleteClosed, Deleted

USAGE_S = 30 * 86400.0
"""Seconds before `until` at which a report of usage begins that names no other time."""

MOST_STEPS = 10_000

USAGE_GROUPS, MOST_ROWS = 1000, 100_000
"""Groups of a report of usage that names no other number, and the most rows: groups times steps."""

MOST_DELETED = 1000
"""Sessions that one request deletes."""

SWEPT_SESSIONS = 20
"""Sessions that one write of the retention deletes."""

BODY_LIMIT = 64 * 1024

_Query = TypeVar("_Query", HistoryQuery, UsageQuery)


class HistoryApi:
    """Handlers over one service."""

    def __init__(self, service: UllageService) -> None:
        self._service, self._authorizer = service, Authorizer(service)

    def _own(self, request: Request, query: _Query) -> _Query:
        """Return a query for what the caller may read."""
        only = self._authorizer.only_owner(request)
        return query if only is None else replace(query, owner=only)

    @route("GET", "/v1/history", "history", query=("since", "until", "owner", "queue", "state", "after", "limit"))
    @needs(Role.VIEWER)
    async def list_history(self, request: Request) -> LongBody[list[HistoryBody]]:
        """Return the sessions that were open at some time of a period, by number; deleted ones too."""
        query, now = self._own(request, _query(request)), time.time()
        found = await asyncio.to_thread(self._service.store.history, query, now)
        live = [self._live(past) for past in found]
        return lambda: [body_of(HistoryBody, past, past.history, waited_s=past.history.waited_s(now)) for past in live]

    def _live(self, past: PastSession) -> PastSession:
        """Return a session with its present counts, if it is open."""
        record = self._service.state.sessions.get(past.history.session)
        if past.history.ended_at is not None or record is None or record.session.number != past.history.number:
            return past
        return replace(past, history=with_counts(past.history, record))

    @route("GET", "/v1/history/stays", "history", query=("since", "until", "owner", "queue", "after", "limit"))
    @needs(Role.VIEWER)
    async def list_stays(self, request: Request) -> LongBody[list[StayBody]]:
        """Return which executors sessions had, and which cards requests held, in a period, by number."""
        found = await asyncio.to_thread(self._service.store.stays, self._own(request, _query(request)))
        return lambda: [body_of(StayBody, stay) for stay in found]

    @route("GET", "/v1/usage", "history", query=("by", "since", "until", "step", "owner", "queue", "limit"))
    @needs(Role.VIEWER)
    async def report_usage(self, request: Request) -> LongBody[UsageBody]:
        """Return what was used and what was offered in a period, by groups and steps of time.

        Of more than `limit` groups those that used most have rows, and the others one sum.
        """
        now = time.time()
        query = self._own(request, _usage_query(request, now))
        found = await asyncio.to_thread(self._service.store.usage, query, now)
        return lambda: UsageBody(
            since=query.since,
            until=query.until,
            step=query.step,
            rows=[body_of(UsedBody, each) for each in found.used],
            offered=[body_of(OfferedBody, each) for each in found.offered],
            rest=[body_of(UsedBody, each) for each in found.rest],
            left_out=found.left_out,
        )

    @route("GET", "/v1/fair-share", "history", query=("queue", "owner", "offset", "limit"))
    @needs(Role.VIEWER)
    async def report_fair_share(self, request: Request) -> LongBody[FairShareBody]:
        """Return what queues and their owners used in the past, with a half-life, and what follows for weights.

        At most `limit` shares are in it, unless stated 1000, of `total`.
        """
        query = FairShareQuery.of(request, self._authorizer.only_owner(request))
        return fair_share_body(self._service, time.time(), query)

    @route("POST", "/v1/sessions/delete-closed", "sessions", body=DeleteClosed)
    @needs(Role.USER)
    async def delete_closed(self, request: Request) -> Deleted:
        """Delete some of the closed sessions with their tasks, results and events; their history stays.

        A user deletes its own, an operator those of all.
        """
        body = await bodies.read_body(request, DeleteClosed, BODY_LIMIT)
        owner = _may_delete(request, body.owner)
        if not 1 <= body.limit <= MOST_DELETED:
            raise invalid("limit", body.limit, f"1 to {MOST_DELETED} is needed")
        sessions = self._service.sessions
        found = sessions.closed(ClosedQuery(body.before, body.queue, owner, after=body.after, limit=body.limit))
        if found and not body.dry_run:
            await durable(sessions.delete_all, found)
        more = len(found) == body.limit
        return Deleted(
            sessions=[record.id for record in found],
            next=max(record.session.number for record in found) if more else None,
        )


class Swept(NamedTuple):
    """What one sweep of the retention has deleted, and in how many writes."""

    sessions: int
    writes: int


class Retention:
    """Drops what is kept no longer, some rows at a time, so that neither requests nor other writes wait."""

    def __init__(self, service: UllageService, keeping: Keeping) -> None:
        self._service, self._keeping = service, keeping

    async def sweep(self, now: float) -> Swept:
        """Drop what has expired by now."""
        deleted = await self._drop_sessions(now)
        return deleted._replace(writes=deleted.writes + await self._drop_history(now))

    async def _drop_sessions(self, now: float) -> Swept:
        deleted, sessions = Swept(0, 0), self._service.sessions
        while self._keeping.closed_s is not None:
            found = sessions.closed(ClosedQuery(now - self._keeping.closed_s, limit=SWEPT_SESSIONS))
            if not found:
                break
            await durable(sessions.delete_all, found)
            deleted = Swept(deleted.sessions + len(found), deleted.writes + 1)
        return deleted

    async def _drop_history(self, now: float) -> int:
        kept_s = self._keeping.history_s
        expiry = Expiry(None if kept_s is None else now - kept_s, self._keeping.history_rows)
        writes = 0
        while await asyncio.to_thread(self._service.store.has_expired, expiry):
            await durable(self._service.accounting.drop, expiry)
            writes += 1
        return writes


def _may_delete(request: Request, owner: str | None) -> str | None:
    """Return whose sessions a caller deletes, which asks for those of `owner`, or of all with None.

    Raises:
        Forbidden: it may delete its own only.

    """
    caller = caller_of(request)
    if caller.role.includes(Role.OPERATOR):
        return owner
    if owner not in (None, caller.user):
        text = f"you are {caller.user} with the role {caller.role}, and delete your own sessions only"
        raise Forbidden(f"{text}: the role operator is needed", code="not-the-owner", field="owner")
    return caller.user


def _query(request: Request) -> HistoryQuery:
    states = request.query_params.get("state")
    page = page_of(request)
    return HistoryQuery(
        since=time_of(request, "since"),
        until=time_of(request, "until"),
        owner=request.query_params.get("owner"),
        queue=request.query_params.get("queue"),
        states=() if states is None else tuple(_one_of(PastState, "state", name) for name in states.split(",")),
        after=page.after,
        limit=page.limit,
    )


def _one_of(kind: type[PastState], field: str, text: str) -> PastState:
    if text not in [each.value for each in kind]:
        raise invalid(field, text, f"write some of {', '.join(each.value for each in kind)}, with commas")
    return kind(text)


def _usage_query(request: Request, now: float) -> UsageQuery:
    until = time_of(request, "until")
    until = now if until is None else until
    since = time_of(request, "since")
    since = max(0.0, until - USAGE_S) if since is None else since
    if since >= until:
        raise invalid("since", since, f"a time before until ({until:.0f}) is needed")
    step = time_of(request, "step")
    step = until - since if step is None else step
    if not step > 0 or math.ceil((until - since) / step) > MOST_STEPS:
        raise invalid("step", step, f"a number of seconds is needed that makes at most {MOST_STEPS} steps")
    by = request.query_params.get("by", "owner")
    for name in by.split(","):
        if name not in DIMENSIONS:
            raise invalid("by", name, f"write some of {', '.join(DIMENSIONS)}, with commas")
    most = max(1, MOST_ROWS // math.ceil((until - since) / step))
    limit = count_of(request, "limit", min(USAGE_GROUPS, most))
    if not 1 <= limit <= most:
        raise invalid("limit", limit, f"1 to {most} groups are possible with these steps")
    return UsageQuery(
        since,
        until,
        step,
        by=tuple(by.split(",")),
        owner=request.query_params.get("owner"),
        queue=request.query_params.get("queue"),
        limit=limit,
    )
