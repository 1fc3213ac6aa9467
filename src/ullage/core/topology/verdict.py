"""What zones say to a request on one node: where in it it would lie, or why it may not be there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ullage.core.fleet import Fleet
from ullage.core.kernel import board as at
from ullage.core.kernel import columns
from ullage.core.kernel.alignment import settle
from ullage.core.kernel.columns import Rows
from ullage.core.shape import shape_of
from ullage.model.alignment import Level
from ullage.model.rejection import Code, Cure, Rejection, ZoneRoom
from ullage.model.request import ResourceRequirement
from ullage.model.topology import CARD, CPU, MEMORY
from ullage.model.zone_placement import ZonePlacement

_CODES = {
    at.UNKNOWN: Code.TOPOLOGY_UNKNOWN,
    at.WEAKER: Code.NODE_POLICY_WEAKER,
    at.TOO_MANY: Code.ZONES_TOO_MANY,
    at.NOT_ALIGNED: Code.NOT_ALIGNED,
    at.SHORT: Code.SHORT_ALLOCATION,
    at.BROKEN_CORES: Code.BROKEN_CORES,
}


def placement_on(fleet: Fleet, asked: ResourceRequirement, node: str, cards: Sequence[int]) -> ZonePlacement | None:
    """What a unit has in the zones of a node if it gets exactly these cards; None where they are not told apart."""
    row = fleet.row_of.get(node)
    seated = _matters(fleet, asked) and fleet.board.seats(asked)
    if row is None or not seated or not _settle(fleet, asked, row, cards):
        return None
    return fleet.board.placement(row, fleet.uuids(cards), fleet.zones_of(cards))


def refusal_on(fleet: Fleet, asked: ResourceRequirement, row: int, cards: Sequence[int]) -> Rejection | None:
    """Why zones keep a unit from a node where it could have these cards; enough of them, or they do not decide."""
    if not _matters(fleet, asked) or len(cards) < asked.gpu_count or _settle(fleet, asked, row, cards):
        return None
    code = _CODES[fleet.board.code]
    free = _room_in(fleet, row, asked, cards)
    needed, lies = _needed(fleet, asked, free)
    near = {pair.resource for pair in asked.alignment.pairs if pair.level is Level.REQUIRED}
    zones = tuple(room for room in free if room.resource == lies)
    had = max((room.free for room in zones), default=0)
    zones += tuple(room for room in free if room.resource in near - {lies})
    if code is Code.BROKEN_CORES:
        needed, zones, had = _amounts_of(fleet, asked).get(at.CPUS, 0), (), fleet.board.on_whole_cores(row)
    cure = Cure.CAPACITY if fits_when_empty(fleet, asked, row) else Cure.NODE_CHANGE
    rule = fleet.board.width_rules[fleet.board.machine_of[row]] if code is Code.NOT_ALIGNED else ""
    return Rejection(code, cure, needed, had, fleet.nodes[row].name, zones=zones, rule=rule)


def fits_when_empty(fleet: Fleet, asked: ResourceRequirement, row: int) -> bool:
    """Whether zones allow a unit on a node that has nothing else to do."""
    if not _matters(fleet, asked):
        return True
    empty = fleet.emptied()
    usable = [card for card in empty.cards_on(row) if empty.card_usable[card]]
    return len(usable) >= asked.gpu_count and _settle(empty, asked, row, usable)


def _matters(fleet: Fleet, asked: ResourceRequirement) -> bool:
    return bool(shape_of(fleet, asked).rows[0, columns.NEEDS])


def _settle(fleet: Fleet, asked: ResourceRequirement, row: int, cards: Iterable[int]) -> bool:
    first = fleet.cards_on(row).start
    units: Rows = np.zeros(len(fleet.cards_on(row)), np.int64)
    units[[card - first for card in cards]] = 1
    shape = shape_of(fleet, asked).rows
    return bool(settle(fleet.node_rows, fleet.card_rows, row, shape, units, fleet.board.store))


def _needed(fleet: Fleet, asked: ResourceRequirement, free: Sequence[ZoneRoom]) -> tuple[int, str]:
    """How much the container that was refused needs, of the first of cards and CPUs that no zone has enough of.

    Where each of them fits into some zone, of cards if it has any.
    """
    amounts = _amounts_of(fleet, asked)
    needed = [(amounts[code], name) for code, name in ((at.CARDS, CARD), (at.CPUS, CPU)) if code in amounts]
    most = {name: max((room.free for room in free if room.resource == name), default=0) for name in (CARD, CPU)}
    return min(needed, key=lambda each: each[0] <= most[each[1]], default=(0, CPU))


def _amounts_of(fleet: Fleet, asked: ResourceRequirement) -> dict[int, int]:
    """By resource, what the container that was refused needs."""
    container = fleet.board.container
    return {code: amount for _, of, _, code, amount, _ in fleet.board.needs(asked) if of == container}


def _room_in(fleet: Fleet, row: int, asked: ResourceRequirement, cards: Sequence[int]) -> list[ZoneRoom]:
    """Per zone of a node, how many of these cards are free, of how many; of CPUs and of what is in a pair too."""
    machine = fleet.board.machine_of[row]
    if machine < 0:
        return []
    found = []
    here = fleet.card_rows[fleet.cards_on(row).start : fleet.cards_on(row).stop, columns.ZONES]
    may = fleet.card_rows[list(cards), columns.ZONES]
    names = dict.fromkeys((CPU, *(pair.resource for pair in asked.alignment.pairs if pair.resource != MEMORY)))
    others = [(name, fleet.board.supplies_of(machine, name)) for name in names]
    counted = fleet.board.supplies_of(machine, CARD)
    for bit, zone in enumerate(fleet.board.topologies[machine].zone_ids):
        mask = 1 << bit
        free, there = _in(counted, mask)
        free, there = free + int((may & mask != 0).sum()), there + int((here & mask != 0).sum())
        found.append(ZoneRoom(zone, CARD, free, there))
        found += [ZoneRoom(zone, name, *_in(rows, mask)) for name, rows in others]
    return found


def _in(supplies: Rows, mask: int) -> tuple[int, int]:
    """What is free of supplies in a zone, and what is there."""
    inside = supplies[supplies[:, at.ZONES] & mask != 0]
    return int(np.maximum(inside[:, at.FREE], 0).sum()), int(inside[:, at.TOTAL].sum())
