"""Bodies of preemption: victims, costs, attempts, and reserved room."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.preemption import NoPreemption, Preemption
from ullage.core.evicting.victim_search import Attempt
from ullage.core.evicting.victims import Cost
from ullage.model.nomination import Nomination
from ullage.model.victim import FreedAmounts, Victim
from ullage.server.rejections import rejection_body
from ullage.wire import preemption as wire
from ullage.wire.body import body_of


def preemption_body(fleet: Fleet, found: Preemption | NoPreemption) -> wire.PreemptionBody:
    """Return the victims of a preemption, or the attempts if none helps."""
    attempts = [attempt_body(attempt) for attempt in found.attempts]
    if isinstance(found, NoPreemption):
        return wire.PreemptionBody(node=None, gpus=[], victims=[], cost=None, attempts=attempts)
    victims, cost = _victims(fleet, found.victims), _cost(found.cost)
    return body_of(wire.PreemptionBody, found.choice, victims=victims, cost=cost, attempts=attempts)


def nomination_body(fleet: Fleet, nomination: Nomination) -> wire.NominationBody:
    """Return a request for which room is reserved."""
    request, victims = nomination.request, _victims(fleet, nomination.victims)
    return body_of(wire.NominationBody, nomination, request, request.claim, victims=victims)


def attempt_body(attempt: Attempt) -> wire.AttemptBody:
    """Return the attempt on one node."""
    return body_of(
        wire.AttemptBody,
        attempt,
        victims=[victim.uid for victim in attempt.victims],
        cost=_cost(attempt.cost),
        reason=None if attempt.refusal is None else rejection_body(attempt.refusal.rejections[0]),
    )


def _victims(fleet: Fleet, victims: Iterable[Victim]) -> list[wire.VictimBody]:
    return [
        body_of(
            wire.VictimBody,
            victim,
            gives=[_gives_body(fleet, gives) for gives in victim.gives],
            reason=rejection_body(victim.reason),
        )
        for victim in victims
    ]


def _gives_body(fleet: Fleet, gives: FreedAmounts) -> wire.FreedAmountsBody:
    card = fleet.card_of.get(gives.gpu)
    gpu = None if card is None else fleet.cards[card]
    return wire.FreedAmountsBody(
        uuid=gives.gpu,
        compute_gflops=None if gpu is None or gpu.compute_gflops is None else gives.compute,
        vram_bytes=None if gpu is None or gpu.vram_bytes is None else gives.vram,
    )


def _cost(cost: Cost | None) -> wire.CostBody | None:
    return None if cost is None else body_of(wire.CostBody, cost)
