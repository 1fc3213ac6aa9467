"""The books with the room charged that is reserved for others, so that who comes after them finds what is left.

Until a nominated request is placed or gone its room is charged, per card, whenever a request that comes after it is
judged; afterwards the books are as before. Places that are promised to sessions are charged before any request is
judged. What those who leave for such a place still hold of it is not charged twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.books.usage import Usage
from ullage.core.placing.inherited import Spare, charge_beyond
from ullage.core.placing.nomination import Ahead, Nominations, Promised
from ullage.core.verdict.cards import charge_on, exclusion_of, refusal_of
from ullage.core.verdict.counted import amounts_on
from ullage.core.verdict.zones import placement_on
from ullage.model.allocation import Allocation, Charge
from ullage.model.claim import Claim, Request
from ullage.model.nomination import Nomination
from ullage.model.part import Isolation


@contextmanager
def reserving(fleet: Fleet, ahead: Sequence[Ahead]) -> Iterator[None]:
    """Charge the room of those `ahead` while others are judged.

    A reservation counts in no quota, unless others gave way to it: then it counts in that of its namespace, or the
    quota could refuse the winner. Nobody can evict a reservation. All is taken back at the end.
    """
    if not ahead:
        yield
        return
    mark = fleet.checkpoint()
    try:
        found, spare = [_enter(fleet, each) for each in ahead], Spare()
        if any(uid in fleet.ledger for each in found for uid in each.leaving):
            fleet.rollback(mark)
            mark = fleet.checkpoint()
            for each in _each_once(found):
                charge_beyond(fleet, each.places, each.leaving, spare)
        counted = [(each.namespace, each.usage) for each in found if each.namespace]
        with _with_slots(fleet, spare.slots), _counted(fleet, counted + spare.usage):
            yield
    finally:
        fleet.rollback(mark)


@contextmanager
def reserving_requests(fleet: Fleet, nominations: Nominations, cap: int) -> Iterator[None]:
    """Charge the room of nominated requests while sessions are judged, and a worker of each below the `cap`.

    A `cap` below 0 is none: nodes say themselves how many workers they take.
    """
    waiting = nominations.waiting(fleet)
    rows = {fleet.row_of[entry.node] for entry in waiting if entry.owed and entry.node in fleet.row_of}
    with reserving(fleet, waiting):
        left = {row: max(0, cap - fleet.workers(row)) for row in rows if cap >= 0}
        over = {row: min(0, most - fleet.slots_free.item(row)) for row, most in left.items()}
        with _with_slots(fleet, over):
            yield


@contextmanager
def _with_slots(fleet: Fleet, more: Mapping[int, int]) -> Iterator[None]:
    """Have nodes, which changed in the caller's trial, take so many allocations more."""
    for row, slots in more.items():
        fleet.slots_free[row] += slots
    try:
        yield
    finally:
        for row, slots in more.items():
            fleet.slots_free[row] -= slots


def release_terminating(fleet: Fleet, row: int) -> int:
    """Release those who leave a node anyway, within the caller's trial. Return how many they are."""
    node = fleet.nodes[row].name
    leaving = [uid for uid in sorted(fleet.leaving) if fleet.ledger[uid].node == node]
    for uid in leaving:
        fleet.release(uid)
    return len(leaving)


def _charge(fleet: Fleet, places: Iterable[Allocation]) -> None:
    for place in places:
        fleet.charge(place, force=True)


class _Reserved(NamedTuple):
    """What is reserved for one entry: its places, who leaves for them, and the usage of the quota of a namespace.

    Without a namespace it counts in no quota.
    """

    places: tuple[Allocation, ...]
    leaving: tuple[str, ...]
    namespace: str = ""
    usage: Usage = Usage()


def _enter(fleet: Fleet, ahead: Ahead) -> _Reserved:
    """Charge what is reserved for one entry, within the trial of the caller."""
    if isinstance(ahead, Promised):
        there = tuple(place for place in ahead.places if fleet.card_of.keys() >= set(place.gpus))
        found = _Reserved(there, ahead.leaving)
    else:
        keep = _keep(fleet, ahead)
        found = _Reserved(() if keep is None else (keep,), tuple(_leaving_for(fleet, ahead)))
        if keep is not None and ahead.owed:
            found = found._replace(namespace=ahead.request.claim.quota_name, usage=_usage_beyond(fleet, ahead, keep))
    _charge(fleet, found.places)
    return found


def _leaving_for(fleet: Fleet, nomination: Nomination) -> Iterator[str]:
    """Yield who leaves for a request: its victims, itself if it moves, and allocations that move off its whole cards.

    A place on a part of a card is free already, and waits for no allocation.
    """
    yield from (victim.uid for victim in nomination.victims)
    if nomination.hold and nomination.owed:
        whole = nomination.gpus if nomination.request.requirement.whole else ()
        holders = fleet.card_holders(fleet.card_of[uuid] for uuid in whole if uuid in fleet.card_of)
        yield from (uid for uid in (nomination.request.uid, *holders) if uid in fleet.leaving)


def _each_once(found: Sequence[_Reserved]) -> list[_Reserved]:
    """Have each who leaves do so for the first of those that count on it."""
    seen = set[str]()
    once = []
    for each in found:
        once.append(each._replace(leaving=tuple(uid for uid in dict.fromkeys(each.leaving) if uid not in seen)))
        seen.update(each.leaving)
    return once


def _usage_beyond(fleet: Fleet, nomination: Nomination, keep: Allocation) -> Usage:
    """Return what a request will add to the usage of its quota, without what its victims and itself use now."""
    claim = nomination.request.claim
    usage = fleet.usage_of(replace(keep, claim=claim))
    leaving = (nomination.request.uid, *(victim.uid for victim in nomination.victims))
    for held in (fleet.ledger[uid] for uid in leaving if uid in fleet.ledger):
        if held.claim is not None and held.claim.quota_name == claim.quota_name:
            usage = usage.minus(fleet.usage_of(held))
    return Usage(*(max(0, amount) for amount in usage))


@contextmanager
def _counted(fleet: Fleet, more: Sequence[tuple[str, Usage]]) -> Iterator[None]:
    """Have quotas of namespaces count so much more."""
    if not more:
        yield
        return
    before = dict(fleet.usage)
    for namespace, usage in more:
        fleet.usage[namespace] = fleet.usage.get(namespace, Usage()).plus(usage)
    try:
        yield
    finally:
        fleet.usage.clear()
        fleet.usage.update(before)


def _keep(fleet: Fleet, nomination: Nomination) -> Allocation | None:
    """Return the allocation that reserves the room of a nominated request; None if its node has no place for it."""
    request, row = nomination.request, fleet.row_of.get(nomination.node)
    if row is None:
        return None
    here = fleet.cards_on(row)
    if nomination.gpus and all(fleet.card_of.get(uuid, -1) in here for uuid in nomination.gpus):
        gpus = nomination.gpus
        charges = tuple(
            charge.on(gpu) for gpu, charge in zip(fleet.gpus(gpus), nomination.charges, strict=bool(nomination.charges))
        )
    else:
        gpus, charges = _best_fit(fleet, row, request)
    if not gpus:
        return None
    # Its limit is promised too; of no namespace, so that it counts in no quota here.
    claim = None if request.claim.limit is None else Claim(namespace="", limit=request.claim.limit)
    # Others are said to wait for the uid, so it has another name only while the ledger has its present place.
    uid, asked = f"{request.uid} at its next place" if request.uid in fleet.ledger else request.uid, request.requirement
    with trial(fleet) if fleet.leaving else nullcontext():  # what it is to have in zones is with those who leave
        release_terminating(fleet, row)
        placement = placement_on(fleet, asked, nomination.node, [fleet.card_of[uuid] for uuid in gpus])
    return Allocation(uid, nomination.node, asked, gpus, charges=charges, claim=claim, placement=placement)


def _best_fit(fleet: Fleet, row: int, request: Request) -> tuple[tuple[str, ...], tuple[Charge, ...]]:
    """Return the cards of a node with the least free room after the request, counting leaving allocations as gone.

    If fewer cards fit than are requested, the cards with the most room represent the others.
    """
    asked = request.requirement
    with trial(fleet):
        release_terminating(fleet, row)
        cards = [card for card in fleet.cards_on(row) if exclusion_of(fleet, card, asked) is None]
        fits = {card for card in cards if refusal_of(fleet, card, asked) is None}
        left = {card: _left_beside(fleet, card, request) for card in cards}
        order = sorted(cards, key=lambda c: (c not in fits, left[c] if c in fits else -left[c], fleet.cards[c].uuid))
        picked = [card for card in order if card in fits or asked.cards.isolation is not Isolation.PARTITIONED]
        picked = picked[: asked.gpu_count]
        charges = () if asked.whole else tuple(charge_on(fleet, card, asked) for card in picked)
    return fleet.uuids(picked), charges


def _left_beside(fleet: Fleet, card: int, request: Request) -> float:
    """Return the free room of a card after the request: the sum of both fractions, below 0 if it does not fit."""
    (compute, vram), _ = amounts_on(fleet, card, request)
    compute_left = (int(fleet.compute_free[card]) - compute) / int(fleet.compute_total[card])
    return compute_left + (int(fleet.vram_free[card]) - vram) / int(fleet.vram_total[card])
