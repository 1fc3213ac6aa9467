"""Vertical scaling: how much of its cards an allocation takes, changed on all of them or on none.

The difference is judged per card against what is free there and what the allocation itself gives back;
then quotas, and what its node may promise, are judged by the new amounts. A part of a card that shrinks
always passes the room. A card whose capacity is not known takes percentages only: its books are in
millionths of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ullage.core.books.capacity import limits_of, refuses_limit
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.core.verdict.counted import asked_on
from ullage.core.verdict.kinds import needs_capacity
from ullage.core.verdict.sentences import reject_text
from ullage.model.allocation import Allocation, Charge
from ullage.model.amounts import ALL_KNOWN, NOTHING, Amounts, KnownAmounts
from ullage.model.claim import Request
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.rejection import Code, Cure, Rejection

_CODES = (Code.GPU_COMPUTE, Code.GPU_VRAM)


@dataclass(frozen=True, slots=True)
class AmountsChange:
    """New amounts per card. Without a limit it becomes the larger of the old one and the new request.

    Raises:
        InvalidRequest: the limit is below the request.

    """

    request: Part
    limit: Part | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            self.limit.check_covers(self.request)


@dataclass(frozen=True, slots=True)
class Adjustment:
    """The effect of a change for each card: what would remain free on the tightest card, and the differences.

    `known` says for compute and for vram whether all its cards state their capacity. If not, amounts are in millionths
    of a card, and a limit in GFLOPS or bytes has no effect.
    """

    remain: Amounts
    delta_request: Amounts
    delta_limit: Amounts
    known: KnownAmounts
    allocation: Allocation


@dataclass(frozen=True, slots=True, repr=False)
class ScalingRefusal(Refusal):
    """No room, or a quota or a promise that is exceeded: what is free on the tightest card, and what would pass.

    `max_request` is the largest request that passes as the books are now; nothing if none does. `known` is as in
    `Adjustment`.
    """

    remain: Amounts = NOTHING
    max_request: Amounts = NOTHING
    known: KnownAmounts = ALL_KNOWN

    def __str__(self) -> str:
        if self.code is not Code.SCALING_EXCEEDED:
            return Refusal.__str__(self)
        return f"{self.code}: {', '.join(map(reject_text, self.rejections))}"


def change_of(fleet: Fleet, rules: Rules, held: Allocation, change: AmountsChange) -> Adjustment | Refusal:
    """Return the effect of a change, or why it is refused. Nothing changes."""
    assert held.claim is not None
    if any(uuid not in fleet.card_of for uuid in held.gpus):
        return Refusal((Rejection(Code.NODE_UNKNOWN, Cure.NODE_CHANGE, node=held.node),))
    after = adjusted(fleet, held, change)
    cards = [fleet.card_of[uuid] for uuid in held.gpus]
    unknown = [card for card in cards if needs_capacity(fleet.cards[card], after.requirement)]
    if unknown:
        node, gpu = fleet.nodes[int(fleet.card_row[unknown[0]])].name, fleet.cards[unknown[0]].uuid
        return Refusal((Rejection(Code.CAPACITY_UNKNOWN, Cure.NODE_CHANGE, node=node, gpu=gpu),))
    known = _known(fleet, cards)
    rooms = [_room(fleet, held, after, position=position, card=card) for position, card in enumerate(cards)]
    refused = _exceeded(fleet, cards, rooms) or _caps_refuse(fleet, rules, held, after)
    if refused:
        free, most = (
            Amounts.least_of(_in_units(fleet, card, pair, known) for card, pair in zip(cards, pairs, strict=True))
            for pairs in ([room.free for room in rooms], [room.most for room in rooms])
        )

        def passes(pair: Amounts) -> bool:
            part = _part(pair, known)
            limit = _at_least(fleet.gpus(held.gpus), change.limit, part)
            return not _caps_refuse(fleet, rules, held, adjusted(fleet, held, AmountsChange(part, limit)))

        largest = _largest(most, passes)
        return ScalingRefusal(refused, remain=free, max_request=largest, known=known)
    remains = (_in_units(fleet, card, room.remain, known) for card, room in zip(cards, rooms, strict=True))
    first, *_ = cards
    (old, old_limit), (new, new_limit) = _asked(fleet, held, first), _asked(fleet, after, first)
    more = _in_units(fleet, first, new.minus(old), known)
    more_limit = _in_units(fleet, first, new_limit.minus(old_limit), known)
    return Adjustment(
        remain=Amounts.least_of(remains), delta_request=more, delta_limit=more_limit, known=known, allocation=after
    )


def adjusted(fleet: Fleet, held: Allocation, change: AmountsChange) -> Allocation:
    """Return the allocation with the new amounts. A partition and a whole card are charged as before."""
    assert held.claim is not None
    asked, claim = held.requirement, held.claim
    part = change.request
    gpus = fleet.gpus(held.gpus)
    limit = change.limit or _at_least(gpus, claim.limit, change.request)
    requirement = replace(asked, part=part)
    charges = held.charges
    if asked.cards.isolation is not Isolation.PARTITIONED:
        charges = tuple(
            replace(Charge.of(part, gpu, charge.isolation, charge.slot), mixed=charge.mixed, further=charge.further)
            for gpu, charge in zip(gpus, held.charges, strict=bool(held.charges))
        )
    return replace(held, requirement=requirement, charges=charges, claim=replace(claim, limit=limit))


def _at_least(gpus: Iterable[Gpu], limit: Part | None, request: Part) -> Part | None:
    """Return the larger compute and the larger vram of the two. Compute is compared on the cards."""
    if limit is None:
        return None
    compute = [(_limit_on(gpu, limit).compute, _limit_on(gpu, request).compute) for gpu in gpus]
    larger = limit if all(most >= need for most, need in compute) else request
    return Part(larger.compute_gflops, max(limit.vram_bytes, request.vram_bytes), larger.compute_ppm)


def _total(fleet: Fleet, card: int) -> Amounts:
    return Amounts(int(fleet.compute_total[card]), int(fleet.vram_total[card]))


def _asked(fleet: Fleet, allocation: Allocation, card: int) -> tuple[Amounts, Amounts]:
    """Return what an allocation requests of a card and its limit there, regardless of its charge."""
    total, part = _total(fleet, card), allocation.requirement.part
    need = total if part is None else Amounts(*part.on(*total))
    limit = allocation.claim.limit if allocation.claim else None
    return need, need if limit is None else _limit_on(fleet.cards[card], limit)


def _limit_on(gpu: Gpu, limit: Part) -> Amounts:
    """Return a limit on a card. GFLOPS and bytes are ignored on a card of unknown capacity."""
    compute, vram = limit.on(gpu.compute, gpu.vram)
    unknown = gpu.compute_gflops is None and not limit.compute_ppm
    return Amounts(0 if unknown else compute, 0 if gpu.vram_bytes is None else vram)


def _known(fleet: Fleet, cards: list[int]) -> KnownAmounts:
    gpus = [fleet.cards[card] for card in cards]
    compute, vram = (gpu.compute_gflops is not None for gpu in gpus), (gpu.vram_bytes is not None for gpu in gpus)
    return KnownAmounts(all(compute), all(vram))


def _in_units(fleet: Fleet, card: int, pair: Amounts, known: KnownAmounts) -> Amounts:
    """Return amounts of a card; in millionths of it where not all cards of the allocation have known amounts."""
    compute, vram = (
        amount if is_known else amount * PPM // max(1, total)
        for amount, total, is_known in zip(pair, _total(fleet, card), known, strict=True)
    )
    return Amounts(compute, vram)


@dataclass(frozen=True, slots=True)
class _Room:
    """One card: what the new amounts are there, the most they can be now and ever, what is free now and would be."""

    new: Amounts
    most: Amounts
    ever: Amounts
    free: Amounts
    remain: Amounts


def _room(fleet: Fleet, held: Allocation, after: Allocation, *, position: int, card: int) -> _Room:
    free = Amounts(max(0, int(fleet.compute_free[card])), max(0, int(fleet.vram_free[card])))
    (old, _), (new, _), total = _asked(fleet, held, card), _asked(fleet, after, card), _total(fleet, card)
    charge = held.charges[position] if held.charges else None
    own = old.most(total) if charge is None else Amounts(charge.compute, charge.vram)
    if charge is None or held.requirement.cards.isolation is Isolation.PARTITIONED:
        return _Room(new=new, most=own, ever=own, free=free, remain=free)
    most = Amounts.sum_of((own, free))
    return _Room(new=new, most=most, ever=total, free=free, remain=most.minus(new))


def _exceeded(fleet: Fleet, cards: list[int], rooms: list[_Room]) -> tuple[Rejection, ...]:
    """Return why the first card without room refuses; nothing if all have room."""
    for card, room in zip(cards, rooms, strict=True):
        here = _known(fleet, [card])
        codes = [code if is_known else Code.GPU_SHARE for code, is_known in zip(_CODES, here, strict=True)]
        owned = room.most.minus(room.free)
        for code, need, most_now, ever, own in zip(codes, room.new, room.most, room.ever, owned, strict=True):
            if need > most_now:
                cure, had = (Cure.CAPACITY, most_now) if need <= ever else (Cure.NODE_CHANGE, ever)
                node, gpu = fleet.nodes[int(fleet.card_row[card])].name, fleet.cards[card].uuid
                scaling = Rejection(Code.SCALING_EXCEEDED, cure, need, had, node=node, gpu=gpu)
                return scaling, replace(scaling, code=code, own=own if cure is Cure.CAPACITY else 0)
    return ()


def _caps_refuse(fleet: Fleet, rules: Rules, held: Allocation, after: Allocation) -> tuple[Rejection, ...]:
    """Return why quotas, or what the node may promise, refuse the new amounts, whatever room the cards have."""
    assert held.claim is not None
    assert after.claim is not None
    cards = [fleet.card_of[uuid] for uuid in held.gpus]
    counted = asked_on(fleet, Request(after.id, after.requirement, after.claim), cards, after.charges)
    refused = rules.quotas.check_change(fleet.usage, held.claim.quota_name, fleet.usage_of(held), counted)
    row = fleet.row_of.get(held.node)
    if refused or row is None or not rules.oversubscription:
        return refused
    old, new = limits_of(fleet, held), limits_of(fleet, after)
    promised = refuses_limit(fleet, row, rules.oversubscription, rules.disks, limit=new, held=old)
    return () if promised is None else (promised,)


def _part(pair: Amounts, known: KnownAmounts) -> Part:
    compute, vram = pair
    return Part(
        compute if known.compute else 0,
        vram if known.vram else 0,
        0 if known.compute else compute,
        0 if known.vram else vram,
    )


def _largest(most: Amounts, passes: Callable[[Amounts], bool]) -> Amounts:
    """Return the largest amounts up to `most` that pass; each is judged by itself, since caps are on one of them."""
    if passes(most):
        return most
    compute = _last(most.compute, lambda amount: passes(Amounts(amount, 0)))
    return Amounts(compute, _last(most.vram, lambda amount: passes(Amounts(0, amount))))


def _last(most: int, passes: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that passes, where all below one that passes do too; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if passes(middle) else (low, middle - 1)
    return low
