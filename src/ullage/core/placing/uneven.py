"""A reservation that takes other amounts of some of its cards than of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.core.verdict.counted import asked_on
from ullage.model.allocation import Allocation, Charge
from ullage.model.claim import Request
from ullage.model.gpu import Gpu
from ullage.model.rejection import Code, Cure, Rejection

NO_AMOUNTS: Mapping[str, int] = {}


def lacking(fleet: Fleet, vram: Mapping[str, int], held: Allocation | None = None) -> tuple[Rejection, ...]:
    """Return what is missing for these bytes by card once `held` is freed. Unknown cards are ignored."""
    own = {} if held is None else {uuid: charge.vram for uuid, charge in zip(held.gpus, held.charges, strict=False)}
    short = []
    for uuid, need in vram.items():
        card = fleet.card_of.get(uuid)
        if card is None:
            continue
        if fleet.cards[card].vram_bytes is None:
            node = fleet.nodes[int(fleet.card_row[card])].name
            short.append(Rejection(Code.CAPACITY_UNKNOWN, Cure.NODE_CHANGE, node=node, gpu=uuid))
            continue
        had = max(0, int(fleet.vram_free[card])) + own.get(uuid, 0)
        if need > had:
            node = fleet.nodes[int(fleet.card_row[card])].name
            short.append(Rejection(Code.GPU_VRAM, Cure.CAPACITY, need, had, node=node, gpu=uuid))
    return tuple(short)


def uneven(
    fleet: Fleet, rules: Rules, held: Allocation, vram: Mapping[str, int], compute_ppm: Mapping[str, int]
) -> Allocation | Refusal:
    """Return what is held with these amounts of each card that is named, or what refuses it. Change nothing.

    `vram` is in bytes. `compute_ppm` is in millionths of the card, and at most what is held of it.
    """
    assert held.claim is not None
    if short := lacking(fleet, {uuid: vram[uuid] for uuid in held.gpus if uuid in vram}, held):
        return Refusal(short)
    charges = tuple(
        _amounts(charge, gpu, vram.get(gpu.uuid), compute_ppm.get(gpu.uuid))
        for gpu, charge in zip(fleet.gpus(held.gpus), held.charges, strict=bool(held.charges))
    )
    asked = Request(held.id, held.requirement, held.claim)
    counted = asked_on(fleet, asked, [fleet.card_of[uuid] for uuid in held.gpus], charges)
    refused = rules.quotas.check_change(fleet.usage, held.claim.quota_name, fleet.usage_of(held), counted)
    return Refusal(refused) if refused else replace(held, charges=charges)


def _amounts(charge: Charge, gpu: Gpu, vram_bytes: int | None, compute_ppm: int | None) -> Charge:
    with_vram = charge if vram_bytes is None else charge.with_vram(vram_bytes, gpu)
    return with_vram if compute_ppm is None else with_vram.with_compute(compute_ppm, gpu)
