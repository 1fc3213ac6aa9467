"""Bodies of preemption: victims, costs, attempts, and reserved room."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.preemption import NoPreemption, Preemption
from ullage.core.evicting.victim_search import Attempt
from ullage.core.evicting.victims import Cost
from ullage.model.nomination import Nomination
from ullage.model.victim import Gives, Victim
from ullage.server.rejections import rejection_body
from ullage.wire import preemption as wire


def preemption_body(fleet: Fleet, found: Preemption | NoPreemption) -> wire.PreemptionBody:
    """Return the victims of a preemption, or the attempts if none helps."""
    attempts = [attempt_body(attempt) for attempt in found.attempts]
    if isinstance(found, NoPreemption):
        return wire.PreemptionBody(node=None, gpus=[], victims=[], cost=None, attempts=attempts)
    return wire.PreemptionBody(
        node=found.choice.node,
        gpus=list(found.choice.gpus),
        victims=_victims(fleet, found.victims),
        cost=_cost(found.cost),
        attempts=attempts,
    )


def nomination_body(fleet: Fleet, nomination: Nomination) -> wire.NominationBody:
    """Return a request for which room is reserved."""
    claim = nomination.request.claim
    return wire.NominationBody(
        uid=nomination.request.uid,
        node=nomination.node,
        gpus=list(nomination.gpus),
        namespace=claim.namespace,
        priority=claim.priority,
        since=nomination.since,
        victims=_victims(fleet, nomination.victims),
    )


def attempt_body(attempt: Attempt) -> wire.AttemptBody:
    """Return the attempt on one node."""
    return wire.AttemptBody(
        node=attempt.node,
        eligible=attempt.eligible,
        shielded={shield.value: number for shield, number in attempt.shielded.items()},
        victims=[victim.uid for victim in attempt.victims],
        cost=_cost(attempt.cost),
        reason=None if attempt.refusal is None else rejection_body(attempt.refusal.rejections[0]),
        up_to=attempt.up_to,
    )


def _victims(fleet: Fleet, victims: Iterable[Victim]) -> list[wire.VictimBody]:
    return [
        wire.VictimBody(
            uid=victim.uid,
            namespace=victim.namespace,
            workload=victim.workload,
            priority=victim.priority,
            gives=[_gives(fleet, gives) for gives in victim.gives],
            reason=rejection_body(victim.reason),
        )
        for victim in victims
    ]


def _gives(fleet: Fleet, gives: Gives) -> wire.GivesBody:
    card = fleet.card_of.get(gives.gpu)
    gpu = None if card is None else fleet.cards[card]
    return wire.GivesBody(
        uuid=gives.gpu,
        compute_gflops=None if gpu is None or gpu.compute_gflops is None else gives.compute,
        vram_bytes=None if gpu is None or gpu.vram_bytes is None else gives.vram,
    )


def _cost(cost: Cost | None) -> wire.CostBody | None:
    if cost is None:
        return None
    return wire.CostBody(
        highest=cost.highest, priorities=cost.priorities, number=cost.number, age_s=cost.age_s, node=cost.node
    )
