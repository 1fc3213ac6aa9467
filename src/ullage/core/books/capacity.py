"""What a node has, what is left of it, and what it may still promise: derived from the books, kept nowhere else.

Requests are charged to cards and never exceed them. Limits are promises: their sum over a node's cards
may exceed the cards up to the virtual capacity that the pool's oversubscription allows, and never more.
Sums are over managed cards: healthy, of known capacity, not given to another device plugin. Of a card
that says only one of compute and vram, only that one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.amounts import NOTHING, Amounts
from ullage.model.error import NotFound
from ullage.model.gpu import Gpu
from ullage.model.oversubscription import Oversubscription
from ullage.model.part import Part
from ullage.model.quantity import PPM
from ullage.model.rejection import Code, Cure, Rejection

_NO_SECTIONS: Mapping[str, Oversubscription] = {}
_NO_DISKS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """The state of one node.

    `available` is the capacity less bound and releasing charges, `effective` less assumed ones too;
    `virtual_available` is `virtual` less the limits of all of them. None is below zero: `deficit` says how
    much more is held than the cards now have, `virtual_deficit` how much more is promised than may be.
    `cards` are all of the node, `managed` those that count. A worker is an allocation with cards.
    """

    node: str
    total: Part
    available: Part
    effective: Part
    virtual: Part
    virtual_available: Part
    deficit: Part
    virtual_deficit: Part
    cards: int
    managed: int
    models: tuple[str, ...]
    workers_per_card: dict[str, int]
    workers: int

    @property
    def idle(self) -> bool:
        """Whether nobody holds a card of it, also nobody assumed."""
        return not self.workers


class CardRoom(NamedTuple):
    """What is free of one card, and how many hold it or parts of it.

    GFLOPS and bytes are None where the card does not say what it has. `share` is the smaller free fraction of the two,
    from 0 to 1. Where `open` is false the card takes no new work, whatever is free.
    """

    node: str
    compute_gflops: int | None
    vram_bytes: int | None
    share: float
    users: int
    open: bool


def room_of(fleet: Fleet, card: int) -> CardRoom:
    """Return what is free of a card given by its flat position."""
    gpu, row = fleet.cards[card], int(fleet.card_row[card])
    free = Amounts(max(0, int(fleet.compute_free[card])), max(0, int(fleet.vram_free[card])))
    share = min(left / total if total else 0.0 for left, total in zip(free, (gpu.compute, gpu.vram), strict=True))
    return CardRoom(
        node=fleet.nodes[row].name,
        compute_gflops=None if gpu.compute_gflops is None else free.compute,
        vram_bytes=None if gpu.vram_bytes is None else free.vram,
        share=share,
        users=len(fleet.holders[card]),
        open=gpu.usable and fleet.nodes[row].schedulable,
    )


def node_capacity(
    fleet: Fleet,
    node: str,
    sections: Mapping[str, Oversubscription] = _NO_SECTIONS,
    disks: Mapping[str, int] = _NO_DISKS,
) -> NodeCapacity:
    """Return the capacity of a node; without a section (see `Rules`) the virtual capacity is the physical one.

    Raises:
        NotFound: there is no such node.

    """
    row = fleet.row_of.get(node)
    if row is None:
        raise NotFound(f"node {node} is not known", code="node-unknown", field="node")
    cards = fleet.cards_on(row)
    managed = [card for card in cards if is_managed(fleet.cards[card])]
    total = _total(fleet, row)
    virtual = _virtual(fleet, row, sections, disks)
    promised = limits_on(fleet, row)
    return NodeCapacity(
        node=node,
        total=Part(*total),
        available=Part(
            *Amounts.sum_of(_known(fleet, card).above(_held(fleet, card, assumed=False)) for card in managed)
        ),
        effective=Part(*Amounts.sum_of(_known(fleet, card).above(_held(fleet, card)) for card in managed)),
        virtual=Part(*virtual),
        virtual_available=Part(*virtual.above(promised)),
        deficit=Part(*Amounts.sum_of(_held(fleet, card).above(_known(fleet, card)) for card in managed)),
        virtual_deficit=Part(*promised.above(virtual)),
        cards=len(cards),
        managed=len(managed),
        models=tuple(sorted({gpu.model for card in managed if (gpu := fleet.cards[card]).model is not None})),
        workers_per_card={fleet.cards[card].uuid: len(fleet.holders[card]) for card in cards},
        workers=len({holder for card in cards for holder in fleet.holders[card]}),
    )


def is_managed(gpu: Gpu) -> bool:
    """Return whether a card counts as capacity of its node."""
    return gpu.healthy and not gpu.used_by and (gpu.compute_gflops is not None or gpu.vram_bytes is not None)


# --- promises ---


def refuses_limit(
    fleet: Fleet,
    row: int,
    sections: Mapping[str, Oversubscription],
    disks: Mapping[str, int],
    limit: Amounts,
    held: Amounts = NOTHING,
) -> Rejection | None:
    """Return why a node may not promise so much more, or None; `limit` is the sum over all cards of one request.

    `sections` and `disks` are as in `Rules`. On a node whose cards are in several pools all their sections
    must hold. `held` is what the same allocation has been promised before: a dimension
    that does not grow refuses nothing.
    """
    if not _sections(fleet, row, sections):
        return None
    promised, virtual = limits_on(fleet, row), _virtual(fleet, row, sections, disks)
    for most, before, old, new in zip(virtual, promised, held, limit, strict=True):
        if new > old and before - old + new > most:
            cure = Cure.CAPACITY if new <= most else Cure.NODE_CHANGE
            return Rejection(Code.OVERSUBSCRIPTION, cure, new, max(0, most - before + old), node=fleet.nodes[row].name)
    return None


def limit_on(fleet: Fleet, card: int, limit: Part | None, charge: Amounts) -> Amounts:
    """Return what a request is promised of a card: the larger of its limit there and what it is charged."""
    gpu = fleet.cards[card]
    held = _where_known(gpu, charge)
    if limit is None:
        return held
    compute = limit.compute_gflops or limit.compute_ppm * (gpu.compute_gflops or 0) // PPM
    vram = limit.vram_bytes or limit.vram_ppm * (gpu.vram_bytes or 0) // PPM
    return held.most(Amounts(compute, vram))


def limits_of(fleet: Fleet, allocation: Allocation) -> Amounts:
    """Return what an allocation is promised of all its cards together."""
    limit = allocation.claim.limit if allocation.claim else None
    charges = allocation.charges or (None,) * len(allocation.gpus)
    cards = [fleet.card_of[uuid] for uuid in allocation.gpus]
    return Amounts.sum_of(
        limit_on(fleet, card, limit, _taken(fleet, card, charge)) for card, charge in zip(cards, charges, strict=True)
    )


def limits_on(fleet: Fleet, row: int) -> Amounts:
    """Return the sum of all promises on a node: limits times cards, of whatever state."""
    table = fleet.tables.get(_Promises)
    if not isinstance(table, _Promises):
        table = fleet.tables[_Promises] = _Promises(fleet)
    return table.of(row)


class _Promises:
    """Promises per node, computed again only for nodes that were touched."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._clock = fleet.clock
        self._rows: dict[int, Amounts] = {}

    def of(self, row: int) -> Amounts:
        """Return the sum on one node, up to date."""
        if self._clock != self._fleet.clock:
            for old in self._fleet.touched_since(self._clock):
                self._rows.pop(old, None)
            self._clock = self._fleet.clock
        if row not in self._rows:
            self._rows[row] = self._sum(row)
        return self._rows[row]

    def _sum(self, row: int) -> Amounts:
        fleet = self._fleet
        holders = {holder for card in fleet.cards_on(row) for holder in fleet.holders[card]}
        return Amounts.sum_of(limits_of(fleet, fleet.ledger[holder]) for holder in holders)


# --- parts ---


def _sections(fleet: Fleet, row: int, sections: Mapping[str, Oversubscription]) -> list[Oversubscription]:
    pools = {fleet.cards[card].pool or "" for card in fleet.cards_on(row)} if sections else ()
    found = (sections.get(pool, sections.get("")) for pool in pools)
    return [section for section in found if section is not None]


def _virtual(fleet: Fleet, row: int, sections: Mapping[str, Oversubscription], disks: Mapping[str, int]) -> Amounts:
    """Return what a node may promise: the least that a section of its cards' pools allows, in each dimension."""
    total, node = _total(fleet, row), fleet.nodes[row]
    allowed = [
        section.virtual(total, node.memory_bytes, disks.get(node.name, 0))
        for section in _sections(fleet, row, sections)
    ]
    compute, vram = zip(*(allowed or [total]), strict=True)
    return Amounts(min(compute), min(vram))


def _total(fleet: Fleet, row: int) -> Amounts:
    return Amounts.sum_of(_known(fleet, card) for card in fleet.cards_on(row) if is_managed(fleet.cards[card]))


def _known(fleet: Fleet, card: int) -> Amounts:
    return Amounts(fleet.cards[card].compute_gflops or 0, fleet.cards[card].vram_bytes or 0)


def _held(fleet: Fleet, card: int, *, assumed: bool = True) -> Amounts:
    """Charges on a card, in the dimensions whose capacity is known."""
    held = Amounts.sum_of(
        _taken(fleet, card, charge)
        for holder, charge in fleet.holders[card].items()
        if assumed or fleet.ledger[holder].shown_state is not AllocationState.ASSUMED
    )
    return _where_known(fleet.cards[card], held)


def _where_known(gpu: Gpu, held: Amounts) -> Amounts:
    return Amounts(0 if gpu.compute_gflops is None else held.compute, 0 if gpu.vram_bytes is None else held.vram)


def _taken(fleet: Fleet, card: int, charge: Charge | None) -> Amounts:
    if charge is None:
        return Amounts(int(fleet.compute_total[card]), int(fleet.vram_total[card]))
    return Amounts(charge.compute, charge.vram)
