"""A reservation that takes other amounts of memory of some of its cards than of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ullage.core.counted import asked_on
from ullage.core.fleet import Fleet
from ullage.core.selection import Refusal, Rules
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.rejection import Code, Cure, Rejection


def lacking(fleet: Fleet, vram: Mapping[str, int], held: Allocation | None = None) -> tuple[Rejection, ...]:
    """What these bytes by card fall short of, where `held` is given back first; of a card that is not known nothing."""
    own = {} if held is None else {uuid: charge.vram for uuid, charge in zip(held.gpus, held.charges, strict=False)}
    short = []
    for uuid, need in vram.items():
        card = fleet.card_of.get(uuid)
        if card is None:
            continue
        had = max(0, int(fleet.vram_free[card])) + own.get(uuid, 0)
        if need > had:
            node = fleet.nodes[int(fleet.card_row[card])].name
            short.append(Rejection(Code.GPU_VRAM, Cure.CAPACITY, need, had, node, uuid))
    return tuple(short)


def uneven(fleet: Fleet, rules: Rules, held: Allocation, vram: Mapping[str, int]) -> Allocation | Refusal:
    """What is held with these bytes of each card that is named, or what refuses it. Changes nothing."""
    assert held.claim is not None
    charges = tuple(
        replace(charge, vram=vram.get(uuid, charge.vram))
        for uuid, charge in zip(held.gpus, held.charges, strict=bool(held.charges))
    )
    if short := lacking(fleet, {uuid: vram[uuid] for uuid in held.gpus if uuid in vram}, held):
        return Refusal(short)
    asked = Request(held.id, held.requirement, held.claim)
    counted = asked_on(fleet, asked, [fleet.card_of[uuid] for uuid in held.gpus], charges)
    refused = rules.quotas.check_change(fleet.usage, held.claim.namespace, fleet.usage_of(held), counted)
    return Refusal(refused) if refused else replace(held, charges=charges)
