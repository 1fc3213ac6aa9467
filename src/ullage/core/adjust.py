"""Vertical scaling: how much of its cards an allocation takes, changed on all of them or on none.

The difference is judged per card against what is free there and what the allocation itself gives back;
then quotas are judged by the new amounts. A part of a card that shrinks always passes the room.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ullage.core.fleet import Fleet
from ullage.core.selection import Refusal, Rules, amounts_on, part_of
from ullage.model.allocation import Allocation, Charge
from ullage.model.claim import Amounts, Request
from ullage.model.part import Isolation
from ullage.model.rejection import Code, Cure, Rejection

_CODES = (Code.GPU_COMPUTE, Code.GPU_VRAM)


@dataclass(frozen=True, slots=True)
class Change:
    """New amounts per card. Without a limit it becomes the larger of the old one and the new request.

    Raises:
        InvalidRequest: the limit is below the request.

    """

    request: Amounts
    limit: Amounts | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            self.limit.check_covers(self.request)


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What a change does per card: what would remain free on the tightest one, and the differences.

    All pairs are (compute in GFLOPS, vram in bytes).
    """

    remain: tuple[int, int]
    delta_request: tuple[int, int]
    delta_limit: tuple[int, int]
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class ScalingRefusal(Refusal):
    """No room: what is free on the tightest card now, and the largest request that would pass there."""

    remain: tuple[int, int] = (0, 0)
    max_request: tuple[int, int] = (0, 0)


def change_of(fleet: Fleet, rules: Rules, held: Allocation, change: Change) -> Adjustment | Refusal:
    """What a change would do, or what refuses it. Changes nothing."""
    assert held.claim is not None
    if any(uuid not in fleet.card_of for uuid in held.gpus):
        return Refusal((Rejection(Code.NODE_UNKNOWN, Cure.NODE_CHANGE, node=held.node),))
    after = adjusted(fleet, held, change)
    cards = [fleet.card_of[uuid] for uuid in held.gpus]
    rooms = [_room(fleet, held, after, position, card) for position, card in enumerate(cards)]
    exceeded = _exceeded(fleet, cards, rooms)
    if exceeded is not None:
        return exceeded
    counted = [_counted(fleet, after, position, card) for position, card in enumerate(cards)]
    refused = rules.quotas.check_change(
        fleet.usage,
        held.claim.namespace,
        fleet.usage_of(held),
        [need for need, _ in counted],
        [limit for _, limit in counted],
        len(cards),
    )
    if refused:
        return Refusal(refused)
    (old, old_limit), (new, new_limit) = _asked(fleet, held, cards[0]), _asked(fleet, after, cards[0])
    return Adjustment(_least(room.remain for room in rooms), _minus(new, old), _minus(new_limit, old_limit), after)


def adjusted(fleet: Fleet, held: Allocation, change: Change) -> Allocation:
    """The allocation with the new amounts; a partition and a whole card are charged as before."""
    assert held.claim is not None
    asked, claim = held.requirement, held.claim
    part = part_of(change.request)
    totals = [_total(fleet, fleet.card_of[uuid]) for uuid in held.gpus]
    limit = change.limit or _at_least(totals, claim.limit, change.request)
    requirement = replace(asked, part=part)
    charges = held.charges
    if asked.cards.isolation is not Isolation.PARTITIONED:
        charges = tuple(
            Charge(*part.on(*total), charge.isolation, charge.slot)
            for total, charge in zip(totals, held.charges, strict=bool(held.charges))
        )
    return replace(held, requirement=requirement, charges=charges, claim=replace(claim, limit=limit))


def _at_least(totals: list[tuple[int, int]], limit: Amounts | None, request: Amounts) -> Amounts | None:
    """The larger of the two, compute and vram by themselves; compute is compared on the cards."""
    if limit is None:
        return None
    compute = [(part_of(limit).on(*total)[0], part_of(request).on(*total)[0]) for total in totals]
    larger = limit if all(most >= need for most, need in compute) else request
    return Amounts(larger.compute_gflops, max(limit.vram_bytes, request.vram_bytes), larger.compute_ppm)


def _total(fleet: Fleet, card: int) -> tuple[int, int]:
    return int(fleet.compute_total[card]), int(fleet.vram_total[card])


def _asked(fleet: Fleet, allocation: Allocation, card: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """What an allocation asks of a card and its limit there, whatever it is charged."""
    total, part = _total(fleet, card), allocation.requirement.part
    need = total if part is None else part.on(*total)
    limit = allocation.claim.limit if allocation.claim else None
    return need, need if limit is None else part_of(limit).on(*total)


def _counted(fleet: Fleet, allocation: Allocation, position: int, card: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """What an allocation counts for in quotas on the card at that position."""
    assert allocation.claim is not None
    request = Request(allocation.id, allocation.requirement, allocation.claim)
    return amounts_on(fleet, card, request, allocation.charges[position] if allocation.charges else None)


@dataclass(frozen=True, slots=True)
class _Room:
    """One card: what the new amounts are there, the most they can be now and ever, what is free now and would be."""

    new: tuple[int, int]
    most: tuple[int, int]
    ever: tuple[int, int]
    free: tuple[int, int]
    remain: tuple[int, int]


def _room(fleet: Fleet, held: Allocation, after: Allocation, position: int, card: int) -> _Room:
    free = max(0, int(fleet.compute_free[card])), max(0, int(fleet.vram_free[card]))
    (old, _), (new, _), total = _asked(fleet, held, card), _asked(fleet, after, card), _total(fleet, card)
    if not held.charges:
        most = max(old[0], total[0]), max(old[1], total[1])
        return _Room(new, most, most, free, free)
    charge = held.charges[position]
    if held.requirement.cards.isolation is Isolation.PARTITIONED:
        most = charge.compute, charge.vram
        return _Room(new, most, most, free, free)
    most = charge.compute + free[0], charge.vram + free[1]
    return _Room(new, most, total, free, _minus(most, new))


def _exceeded(fleet: Fleet, cards: list[int], rooms: list[_Room]) -> ScalingRefusal | None:
    """The refusal for the first card without room; its figures are those of the tightest card."""
    for card, room in zip(cards, rooms, strict=True):
        for code, need, most_now, ever in zip(_CODES, room.new, room.most, room.ever, strict=True):
            if need > most_now:
                cure, had = (Cure.CAPACITY, most_now) if need <= ever else (Cure.NODE_CHANGE, ever)
                node, gpu = fleet.nodes[int(fleet.card_row[card])].name, fleet.cards[card].uuid
                told = Rejection(Code.SCALING_EXCEEDED, cure, need, had, node, gpu)
                why = Rejection(code, cure, need, had, node, gpu)
                free, most = _least(room.free for room in rooms), _least(room.most for room in rooms)
                return ScalingRefusal((told, why), remain=free, max_request=most)
    return None


def _least(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    compute, vram = zip(*pairs, strict=True)
    return min(compute), min(vram)


def _minus(new: tuple[int, int], old: tuple[int, int]) -> tuple[int, int]:
    return new[0] - old[0], new[1] - old[1]
