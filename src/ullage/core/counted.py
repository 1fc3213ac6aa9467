"""What requests and allocations count for in quotas, which may depend on the cards they are on."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.core.fleet import Fleet, share_of
from ullage.core.partition import fit
from ullage.core.quota import Asked, asked_of
from ullage.model.allocation import Charge
from ullage.model.claim import Amounts, Request
from ullage.model.part import Isolation, Part
from ullage.model.request import ResourceRequirement


def amounts_on(
    fleet: Fleet, card: int, request: Request, held: Charge | None = None
) -> tuple[tuple[int, int], tuple[int, int]]:
    """What a request counts for on a card in quotas, and its limit there: GFLOPS and bytes each.

    `held` is what it is charged there already. What a card does not know of itself counts nothing.
    """
    total = int(fleet.compute_total[card]), int(fleet.vram_total[card])
    limit = request.claim.limit
    need = (held.compute, held.vram) if held is not None else _need(fleet, card, request.requirement, total)
    most = need if limit is None else part_of(limit).on(*total)
    gpu = fleet.cards[card]
    known = int(gpu.compute_gflops is not None), int(gpu.vram_bytes is not None)
    return (need[0] * known[0], need[1] * known[1]), (most[0] * known[0], most[1] * known[1])


def cores_on(fleet: Fleet, card: int, request: Request, held: Charge | None = None) -> int:
    """What a request counts for on a card in quotas of compute in millionths of cards; `held` as in `amounts_on`."""
    total = int(fleet.compute_total[card]), int(fleet.vram_total[card])
    compute = held.compute if held is not None else _need(fleet, card, request.requirement, total)[0]
    return share_of(compute, total[0])


def asked_on(fleet: Fleet, request: Request, cards: Sequence[int], held: Sequence[Charge] = ()) -> Asked:
    """What a request counts for on these cards, as many as it asks for; `held` is what it is charged on each."""
    charges: Sequence[Charge | None] = held or [None] * len(cards)
    pairs = list(zip(cards, charges, strict=True))
    amounts = [amounts_on(fleet, card, request, charge) for card, charge in pairs]
    needs, limits = [need for need, _ in amounts], [limit for _, limit in amounts]
    return asked_of(needs, limits, len(cards), sum(cores_on(fleet, card, request, charge) for card, charge in pairs))


def part_of(amounts: Amounts) -> Part:
    """Amounts per card as a part of it."""
    return Part(amounts.compute_gflops, amounts.vram_bytes, amounts.compute_ppm)


def _need(fleet: Fleet, card: int, asked: ResourceRequirement, total: tuple[int, int]) -> tuple[int, int]:
    if asked.cards.isolation is Isolation.PARTITIONED:
        found = fit(fleet, card, asked)
        if isinstance(found, Charge):
            return found.compute, found.vram
    return total if asked.whole or asked.part is None else asked.part.on(*total)
