"""What zones say to a request on one node: where in it it would lie, or why it may not be there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.kernel import board as at
from ullage.core.kernel import columns
from ullage.core.kernel.alignment import align
from ullage.core.kernel.alignment import choose_aligned as settle
from ullage.core.kernel.columns import Rows
from ullage.core.verdict.shape import shape_of
from ullage.model.alignment import Level
from ullage.model.rejection import Code, Cure, Rejection, ZoneNeed, ZoneRoom
from ullage.model.request import ResourceRequirement
from ullage.model.topology import CARD, CPU
from ullage.model.zone_placement import ZonePlacement

_CODES = {
    at.UNKNOWN: Code.TOPOLOGY_UNKNOWN,
    at.WEAKER: Code.NODE_POLICY_WEAKER,
    at.TOO_MANY: Code.ZONES_TOO_MANY,
    at.NOT_ALIGNED: Code.NOT_ALIGNED,
    at.SHORT: Code.SHORT_ALLOCATION,
    at.BROKEN_CORES: Code.BROKEN_CORES,
    at.APART: Code.NOT_LINKED,
    at.OFF_SWITCH: Code.OFF_SWITCH,
}


def placement_on(fleet: Fleet, asked: ResourceRequirement, node: str, cards: Sequence[int]) -> ZonePlacement | None:
    """Return what a unit has in the zones of a node with exactly these cards; None where zones are not known apart."""
    row = fleet.row_of.get(node)
    seated = _matters(fleet, asked) and fleet.board.seats(asked)
    if row is None or not seated or not _settle(fleet, asked, row, cards):
        return None
    return fleet.board.placement(row, fleet.uuids(cards), fleet.zones_of(cards))


def refusal_on(fleet: Fleet, asked: ResourceRequirement, row: int, cards: Sequence[int]) -> Rejection | None:
    """Return why zones keep a unit from a node where it could have these cards, which must be enough of them."""
    if not _matters(fleet, asked) or len(cards) < asked.gpu_count or _settle(fleet, asked, row, cards):
        return None
    code = _CODES[fleet.board.code]
    if code in (Code.NOT_LINKED, Code.OFF_SWITCH):
        return _not_linked(fleet, asked, row, [card - fleet.cards_on(row).start for card in cards])
    refused = _Refused.of(fleet, asked, row, cards)
    zones, needs, had = refused.zones, refused.needs, refused.had
    if code is Code.BROKEN_CORES:
        needs = tuple(need for need in refused.asked if need.resource == CPU)
        zones, had = (), fleet.board.on_whole_cores(row)
    cure = Cure.CAPACITY if fits_when_empty(fleet, asked, row) else Cure.NODE_CHANGE
    rule = fleet.board.width_rules[fleet.board.machine_of[row]] if code is Code.NOT_ALIGNED else ""
    needed = next((need.amount for need in needs), 0)
    node = fleet.nodes[row].name
    return Rejection(
        code, cure, needed, had, node=node, zones=zones, needs=needs, container=refused.container, rule=rule
    )


def _not_linked(fleet: Fleet, asked: ResourceRequirement, row: int, cards: Sequence[int]) -> Rejection:
    """Return the rejection of a node whose cards are not linked with each other, or with devices, as requested."""
    code, board = _CODES[fleet.board.code], fleet.board
    near = tuple(pair.resource for pair in asked.alignment.pairs if pair.level is Level.SWITCH)
    had = board.on_switch(row, cards, near) if code is Code.OFF_SWITCH else board.largest_island(row, cards)
    cure = Cure.CAPACITY if fits_when_empty(fleet, asked, row) else Cure.NODE_CHANGE
    resource = ", ".join(near) if code is Code.OFF_SWITCH else ""
    return Rejection(code, cure, asked.gpu_count, had, node=fleet.nodes[row].name, resource=resource)


def refusal_when_empty(fleet: Fleet, asked: ResourceRequirement, row: int) -> Rejection | None:
    """Return why zones keep a unit from a node that has nothing else to do, so that no freed capacity could help."""
    if fits_when_empty(fleet, asked, row):
        return None
    empty = fleet.emptied()
    refused = refusal_on(empty, asked, row, [card for card in empty.cards_on(row) if empty.card_usable[card]])
    return None if refused is None else replace(refused, when_empty=True)


def fits_when_empty(fleet: Fleet, asked: ResourceRequirement, row: int) -> bool:
    """Return whether zones allow a unit on a node that has nothing else to do."""
    if not _matters(fleet, asked):
        return True
    empty = fleet.emptied()
    usable = [card for card in empty.cards_on(row) if empty.card_usable[card]]
    return len(usable) >= asked.gpu_count and _settle(empty, asked, row, usable)


def _matters(fleet: Fleet, asked: ResourceRequirement) -> bool:
    return bool(shape_of(fleet, asked).rows[0, columns.NEEDS])


def _settle(fleet: Fleet, asked: ResourceRequirement, row: int, cards: Iterable[int]) -> bool:
    shape, units = shape_of(fleet, asked).rows, _marked(fleet, row, cards)
    return bool(settle(fleet.node_rows, fleet.card_rows, row, shape, units, fleet.board.store))


class _Refused(NamedTuple):
    """The container that the last decision refused: what it asked for, and what the zones had left for it.

    `needs` are those of `asked` that no zone has enough of, or all of them if only together they do not fit;
    `zones` has their room, and that of what the cards must be near to.
    """

    container: str | None
    asked: tuple[ZoneNeed, ...]
    needs: tuple[ZoneNeed, ...]
    zones: tuple[ZoneRoom, ...]

    @property
    def had(self) -> int:
        """The most of the first need that one zone has."""
        return max(
            (room.free for room in self.zones if self.needs and room.resource == self.needs[0].resource), default=0
        )

    @classmethod
    def of(cls, fleet: Fleet, asked: ResourceRequirement, row: int, cards: Sequence[int]) -> _Refused:
        board = fleet.board
        number, containers = board.container, asked.alignment.containers
        amounts = {code: amount for _, of, _, code, amount, _ in board.needs(asked) if of == number and amount}
        wanted = tuple(
            ZoneNeed(board.resource_of(code), amount) for code, amount in sorted(amounts.items(), key=_order)
        )
        near = {pair.resource for pair in asked.alignment.pairs if pair.level is not Level.PREFERRED}
        resources = dict.fromkeys((*(need.resource for need in wanted), *sorted(near)))
        rooms = _rooms(fleet, asked, row, cards, names=resources)
        short = [
            need for need in wanted if need.amount > max((r.free for r in rooms.get(need.resource, ())), default=0)
        ]
        needs = tuple(short[:1]) or wanted
        named = [need.resource for need in needs]
        shown = (*named, *sorted(near - set(named)))
        zones = tuple(room for resource in shown for room in rooms.get(resource, ()))
        name = (containers[number].name or str(number + 1)) if number < len(containers) > 1 else None
        return cls(name, wanted, needs, zones)


def _order(amount: tuple[int, int]) -> tuple[bool, int]:
    """Sort key: cards first, then CPUs, memory and other devices."""
    code, _ = amount
    return code != at.CARDS, code


def _rooms(
    fleet: Fleet, asked: ResourceRequirement, row: int, cards: Sequence[int], names: Iterable[str]
) -> dict[str, list[ZoneRoom]]:
    """Return per resource and zone of a node how much is left for the container that was refused, of how much.

    Of cards only these count, and those that are counted without ids. Earlier containers have what they took.
    """
    machine = fleet.board.machine_of[row]
    if machine < 0:
        return {}
    masks = {zone: 1 << bit for bit, zone in enumerate(fleet.board.topologies[machine].zone_ids)}
    found: dict[str, list[ZoneRoom]] = {}
    for name, (rows, left) in fleet.board.left_of(machine, names).items():
        one_by_one = _cards_in(fleet, asked, row, cards, masks=masks.values()) if name == CARD else {}
        found[name] = []
        for zone, mask in masks.items():
            inside = rows[:, at.ZONES] & mask != 0
            free, there = one_by_one.get(mask, (0, 0))
            free += int(np.maximum(left[inside], 0).sum())
            found[name].append(ZoneRoom(zone, name, free, there + int(rows[inside, at.TOTAL].sum())))
    return found


def _cards_in(
    fleet: Fleet, asked: ResourceRequirement, row: int, cards: Sequence[int], masks: Iterable[int]
) -> dict[int, tuple[int, int]]:
    """Return per mask of a zone how many of these cards are left for the refused container there, and of how many."""
    here = fleet.cards_on(row)
    units, zones = _units_left(fleet, asked, row, cards), fleet.card_rows[here.start : here.stop, columns.ZONES]
    left = (units == at.OPEN) | (units == at.REUSABLE)
    inside = {mask: zones & mask != 0 for mask in masks}
    return {mask: (int((there & left).sum()), int(there.sum())) for mask, there in inside.items()}


def _units_left(fleet: Fleet, asked: ResourceRequirement, row: int, cards: Sequence[int]) -> Rows:
    """Return the marks of the cards of a node where the decision stopped (`OPEN` and others of the board)."""
    shape = shape_of(fleet, asked).rows
    behind = len(shape) - shape[0, columns.NAMED]
    needs = shape[behind - shape[0, columns.NEEDS] : behind]
    units = _marked(fleet, row, cards) * at.OPEN
    align(fleet.node_rows, fleet.card_rows, row, needs, units, fleet.board.store, int(shape[0, columns.POLICY]), 0)
    return units


def _marked(fleet: Fleet, row: int, cards: Iterable[int]) -> Rows:
    """Return 1 for each card of a node that is one of these, else 0."""
    here = fleet.cards_on(row)
    units: Rows = np.zeros(len(here), np.int64)
    units[[card - here.start for card in cards]] = 1
    return units
