"""What requests and allocations count for in quotas, which may depend on the cards they are on."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import counted, share_of
from ullage.core.verdict.partition import fit
from ullage.core.verdict.quota import Asked, asked_of
from ullage.model.allocation import Charge
from ullage.model.claim import Request
from ullage.model.part import Isolation
from ullage.model.request import ResourceRequirement


def amounts_on(
    fleet: Fleet, card: int, request: Request, held: Charge | None = None
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return what a request counts for on a card in quotas, and its limit there: GFLOPS and bytes each.

    `held` is what it is charged there already. What a card does not know of itself counts nothing.
    """
    total = int(fleet.compute_total[card]), int(fleet.vram_total[card])
    claim, gpu = request.claim, fleet.cards[card]
    need = (held.compute, held.vram) if held is not None else _need(fleet, card, request.requirement, total)
    most = claim.limit_usage(need, (0, 0) if claim.limit is None else claim.limit.on(*total))
    return counted(gpu, need), counted(gpu, most)


def cores_on(fleet: Fleet, card: int, request: Request, held: Charge | None = None) -> int:
    """Return what a request counts for on a card in quotas of millionths of cards; `held` as in `amounts_on`."""
    total = int(fleet.compute_total[card]), int(fleet.vram_total[card])
    compute = held.compute if held is not None else _need(fleet, card, request.requirement, total)[0]
    return share_of(compute, total[0])


def asked_on(fleet: Fleet, request: Request, cards: Sequence[int], held: Sequence[Charge] = ()) -> Asked:
    """Return what a request counts for on these cards, as many as it asks for; `held` is what it is charged on each."""
    charges: Sequence[Charge | None] = held or [None] * len(cards)
    pairs = list(zip(cards, charges, strict=True))
    amounts = [amounts_on(fleet, card, request, charge) for card, charge in pairs]
    needs, limits = [need for need, _ in amounts], [limit for _, limit in amounts]
    return asked_of(needs, limits, len(cards), sum(cores_on(fleet, card, request, charge) for card, charge in pairs))


def _need(fleet: Fleet, card: int, asked: ResourceRequirement, total: tuple[int, int]) -> tuple[int, int]:
    if asked.cards.isolation is Isolation.PARTITIONED:
        found = fit(fleet, card, asked)
        if isinstance(found, Charge):
            return found.compute, found.vram
    return total if asked.whole or asked.part is None else asked.part.on(*total)
