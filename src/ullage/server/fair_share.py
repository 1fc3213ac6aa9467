"""Fair share over time as bodies, and in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from starlette.requests import Request

from ullage.model.duration import duration_text
from ullage.model.error import invalid
from ullage.model.past_use import ShareKey
from ullage.model.queue_bounds import upwards
from ullage.model.use_text import use_text
from ullage.server.parameters import MAX_PAGE, count_of
from ullage.service.fair_share import ONE, FairShare, ShareStanding
from ullage.service.service import UllageService
from ullage.wire.fair_share import FairShareBody, ShareBody

DEFAULT_SHARES = 1000
"""The shares of a page of a query that names no other number."""


def share_body(key: ShareKey, standing: ShareStanding) -> ShareBody:
    """Return how a queue stands, or an owner in it."""
    return ShareBody(
        queue=key.queue,
        owner=key.owner,
        card_s=standing.used.card_s,
        core_s=standing.used.core_s,
        memory_byte_s=standing.used.memory_byte_s,
        part=standing.part,
        due=standing.due,
        factor=standing.factor,
    )


class FairShareQuery(NamedTuple):
    """Which shares: of a queue, of an owner; with `only` no other owner's, which come before those of queues."""

    queue: str | None = None
    owner: str | None = None
    offset: int = 0
    limit: int = DEFAULT_SHARES
    only: str | None = None

    @classmethod
    def of(cls, request: Request, only: str | None) -> FairShareQuery:
        """Return the query of a request.

        Raises:
            InvalidRequest: a number is out of range.

        """
        limit = count_of(request, "limit", DEFAULT_SHARES)
        if not 1 <= limit <= MAX_PAGE:
            raise invalid("limit", limit, f"1 to {MAX_PAGE} is needed")
        given = request.query_params
        return cls(given.get("queue"), given.get("owner"), count_of(request, "offset", 0), limit=limit, only=only)

    def select(self, keys: Iterable[ShareKey]) -> list[ShareKey]:
        """Return all that match, in the order of the pages."""
        found = [key for key in keys if self._matches(key)]
        return found if self.only is None else sorted(found, key=lambda key: key.owner is None)

    def _matches(self, key: ShareKey) -> bool:
        if self.only is not None and key.owner not in (None, self.only):
            return False
        return self.queue in (None, key.queue) and self.owner in (None, key.owner)


def fair_share_body(service: UllageService, now: float, query: FairShareQuery) -> Callable[[], FairShareBody]:
    """Return a function for another thread that returns how those stand who match a query."""
    fair_share = service.fair_share
    if fair_share is None:
        return lambda: FairShareBody(half_life_s=None, at=now, shares=[])
    report, half_life_s = fair_share.reporting(), fair_share.past.half_life.seconds

    def body() -> FairShareBody:
        standings = report()
        found = query.select(standings)
        page = found[query.offset : query.offset + query.limit]
        shares = [share_body(key, standings[key]) for key in page]
        return FairShareBody(half_life_s=half_life_s, at=now, shares=shares, total=len(found))

    return body


def past_use_of_queues(service: UllageService) -> dict[str, ShareBody]:
    """Return how queues stand, by name; none without a half-life."""
    if service.fair_share is None:
        return {}
    standings = service.fair_share.known().standings.items()
    return {key.queue: share_body(key, standing) for key, standing in standings if key.owner is None}


def past_use_texts(service: UllageService, session: str) -> list[str]:
    """Return a sentence for the owner of an open session, and each queue above it, whose weight past use changes."""
    fair_share, record = service.fair_share, service.state.session(session)
    if fair_share is None or not record.open:
        return []
    return list(_sentences(service, fair_share, ShareKey(record.session.spec.queue, record.session.spec.owner)))


def _sentences(service: UllageService, fair_share: FairShare, own: ShareKey) -> Iterator[str]:
    known, half_life = fair_share.known().standings, duration_text(fair_share.past.half_life.seconds)
    weights = {own: (f"{own.owner or 'nobody'} in queue {own.queue}", 1)}
    weights |= {
        ShareKey(queue.name): (f"queue {queue.name}", queue.weight)
        for queue in upwards(service.state.queues, own.queue)
    }
    for key, (who, weight) in weights.items():
        standing = known.get(key)
        if standing is not None and standing.step != ONE and standing.part is not None and standing.due is not None:
            used = f"{who} used {use_text(standing.used.card_s, standing.used.core_s)} (half-life {half_life})"
            parts = f"{standing.part:.0%} of what was used, where its weight gives {standing.due:.0%}"
            yield f"{used}, {parts}: weight {weight} counts as {weight * standing.factor:.2g}"
