"""Promised places of sessions, and executors whose eviction may be cancelled, charged in the outlook."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from math import inf
from operator import attrgetter
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.books.modes import mixed
from ullage.core.books.trial import trial
from ullage.core.sharing.world import Eviction, ExecutorPhase, World
from ullage.model.allocation import Allocation
from ullage.model.error import Conflict, NotFound
from ullage.model.part import IsolationPolicy

Unit = tuple[Allocation, ...]
"""The places of one executor, or of a whole batch."""


class Promises:
    """Places that are promised to sessions, in the order of the promises; all are charged in the outlook.

    A promise relies on what is free and on executors that leave, for whichever session: the first to be evicted leaves
    first, because the grace period is the same for all. Work that starts immediately may use its room in exchange for
    executors that leave later; then an earlier promise would wait longer. `delays` finds such cases.

    A unit on several nodes waits for nodes that have not reported since the start of the server. Its room on the other
    nodes is reserved until `due` says that those nodes are given up.
    """

    def __init__(self, world: World, due: Callable[[float], bool]) -> None:
        self._due, self._nodes_until = due, world.nodes_expected_until
        self._ledger = world.fleet.ledger
        self._units: dict[str, list[Unit]] = {}
        leaving = (
            each for each in world.executors if each.phase is ExecutorPhase.LEAVING and each.eviction is not None
        )
        self._evictions = {
            each.id: each.eviction for each in leaving if each.eviction is not None and each.id in self._ledger
        }

    def __contains__(self, session: object) -> bool:
        return bool(self._units.get(str(session)))

    def items(self) -> Iterator[tuple[str, tuple[Allocation, ...]]]:
        """Yield the places of each session that has any."""
        for session, units in self._units.items():
            if units:
                yield session, tuple(place for unit in units for place in unit)

    def expect(self, session: str) -> None:
        """Append a session to the order of promises, even if it has no place yet."""
        self._units.setdefault(session, [])

    def add(self, session: str, unit: Unit) -> None:
        """Add promised places that are charged in the outlook."""
        self._units.setdefault(session, []).append(unit)

    def hold(self, session: str, unit: Unit, outlook: Fleet) -> bool:
        """Charge and add promised places. Return False, and charge nothing, if one of them has no room."""
        known = tuple(place for place in unit if place.node in outlook.row_of)
        awaits = len(known) < len(unit)
        if awaits and (not known or self._due(self._nodes_until)):
            return False
        held = charge_all(outlook, known)
        if held:
            self.add(session, unit)
        return held

    def take_out(self, session: str, outlook: Fleet) -> list[Unit]:
        """Release the places of a session, which keeps its position in the order."""
        units = self._units.get(session, [])
        for place in (place for unit in units for place in unit):
            if place.node in outlook.row_of:
                outlook.release(place.id)
        self._units[session] = []
        return units

    def gives_way(self, executor: str, eviction: Eviction | None) -> None:
        """Record the eviction of an executor, or with None that it stays."""
        if eviction is None:
            self._evictions.pop(executor, None)
        else:
            self._evictions[executor] = eviction

    def delays(self, places: Unit, outlook: Fleet, session: str | None = None) -> frozenset[str]:
        """Return the nodes where an earlier promise would wait for executors that leave later.

        `places` are charged in the outlook. They are for work of a promised `session`, or of any other one.
        """
        earlier = list(takewhile(lambda name: name != session, self._units))
        nodes = {place.node for place in places}
        return frozenset(node for node in nodes if self._delays_on(node, places, outlook, earlier))

    def _delays_on(self, node: str, places: Unit, outlook: Fleet, earlier: list[str]) -> bool:
        starts = {place.id for place in _on(node, places)}
        leaving = self._leaving_from(node, outlook, starts)
        units = [_on(node, unit) for name in earlier for unit in self._units[name]]
        if not leaving or not any(units):
            return False
        with trial(outlook):
            for place in (place for units in self._units.values() for unit in units for place in _on(node, unit)):
                outlook.release(place.id)
            after = _waits(units, [leaver for leaver in leaving if leaver.place.id not in starts], outlook)
            for name in starts:
                outlook.release(name)
            before = _waits(units, leaving, outlook)
        return any(later > sooner for later, sooner in zip(after, before, strict=True))

    def _leaving_from(self, node: str, outlook: Fleet, starts: Container[str]) -> list[_Leaver]:
        """Return the executors that leave a node, the first evicted first, those of one time by their winners' order.

        An executor that may stay is among `starts`.
        """
        turns = {name: turn for turn, name in enumerate(self._units)}
        found = [
            _Leaver((eviction.since, turns.get(eviction.winner, len(turns))), place)
            for executor, eviction in self._evictions.items()
            if (place := self._ledger[executor]).node == node and (executor in starts or executor not in outlook.ledger)
        ]
        return sorted(found, key=attrgetter("turn"))


class _Leaver(NamedTuple):
    """An executor that leaves, and its position in the order of leaving."""

    turn: tuple[float, int]
    place: Allocation


def _on(node: str, places: Unit) -> Unit:
    return tuple(place for place in places if place.node == node)


def _waits(units: list[Unit], leaving: list[_Leaver], outlook: Fleet) -> list[tuple[float, int]]:
    """Return for each unit the turn of the last executor that it waits for, with earlier units in their places.

    The outlook contains neither the executors that leave nor the units. All are on one node.
    """
    waits, until, first = list[tuple[float, int]](), (-inf, 0), 0
    with trial(outlook):
        for leaver in leaving:
            outlook.charge(leaver.place, force=True)
        for unit in units:
            for place in unit:
                outlook.charge(place, force=True)
            while first < len(leaving) and _is_short(outlook, leaving[first].place.node):
                outlook.release(leaving[first].place.id)
                until = leaving[first].turn
                first += 1
            waits.append(until)
    return waits


def _is_short(fleet: Fleet, node: str) -> bool:
    """Return whether more of a node is held than it has."""
    row = fleet.row_of[node]
    if min(fleet.cpu_free[row], fleet.memory_free[row], fleet.slots_free[row]) < 0:
        return True
    for card in fleet.cards_on(row):
        held = fleet.holders[card]
        if len(held) > 1 and None in held.values():
            return True
        if min(fleet.compute_free[card], fleet.vram_free[card]) < 0:
            return True
    return False


def places_of(session: str, promised: tuple[Allocation, ...], batch: int) -> list[Unit]:
    """Return the places of each unit: one, or as many as a batch has. Their ids occur nowhere else in this cycle."""
    promised = tuple(replace(place, id=f"promised/{session}/{number}") for number, place in enumerate(promised))
    return [promised[first : first + batch] for first in range(0, len(promised) - batch + 1, batch)]


def charge_all(fleet: Fleet, places: Iterable[Allocation]) -> bool:
    """Charge all of these places, on nodes that take work. Return False, and charge none, if one has no room."""
    places = tuple(places)
    rows = [fleet.row_of.get(place.node, -1) for place in places]
    return all(row >= 0 and fleet.schedulable[row] for row in rows) and _charge(fleet, places)


def charge_back(outlook: Fleet, now: Fleet, executors: Iterable[str]) -> bool:
    """Count leaving executors as staying. Return False, and change nothing, if their room is reserved for others."""
    return _charge(outlook, tuple(now.ledger[executor] for executor in executors if executor in now.ledger))


def _charge(fleet: Fleet, places: tuple[Allocation, ...]) -> bool:
    mark = fleet.checkpoint()
    zones = fleet.board.supplies.copy() if any(place.placement for place in places) else None
    try:
        for place in places:
            if not _may_share(fleet, place):
                fleet.rollback(mark)
                return False
            fleet.charge(place)
    except (Conflict, NotFound):
        fleet.rollback(mark)
        return False
    rows = {row for place in places if (row := fleet.row_of.get(place.node)) is not None}
    columns = (fleet.cpu_free, fleet.memory_free, fleet.slots_free)
    short = any(column[row] < 0 for row in rows for column in columns)
    short = short or (zones is not None and bool(((fleet.board.supplies < 0) & (fleet.board.supplies < zones)).any()))
    if short:
        fleet.rollback(mark)
        return False
    fleet.keep(mark)
    return True


def _may_share(fleet: Fleet, place: Allocation) -> bool:
    """Return whether the isolation of the place is compatible with that of the holders of its cards."""
    for card in (fleet.card_of[uuid] for uuid in place.gpus if uuid in fleet.card_of):
        dynamic = fleet.cards[card].isolation_policy is IsolationPolicy.DYNAMIC
        if fleet.card_modes.item(card) & mixed(place.requirement, dynamic=dynamic):
            return False
    return True
