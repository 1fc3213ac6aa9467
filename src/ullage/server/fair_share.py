"""Fair share over time as bodies, and in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ullage.model.duration import duration_text
from ullage.model.past_use import ShareKey
from ullage.model.queue_bounds import upwards
from ullage.model.use_text import use_text
from ullage.service.fair_share import ONE, FairShare, ShareStanding
from ullage.service.service import UllageService
from ullage.wire.fair_share import FairShareBody, ShareBody


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


def fair_share_body(service: UllageService, now: float, only: str | None) -> Callable[[], FairShareBody]:
    """Return a function for another thread that returns how all stand; with `only` no other owner."""
    fair_share = service.fair_share
    if fair_share is None:
        return lambda: FairShareBody(half_life_s=None, at=now, shares=[])
    report, half_life_s = fair_share.reporting(), fair_share.past.half_life.seconds

    def body() -> FairShareBody:
        shares = [share_body(key, each) for key, each in report().items() if only is None or key.owner in (None, only)]
        return FairShareBody(half_life_s=half_life_s, at=now, shares=shares)

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
