"""Executors as victims, and which of those in a given order have to go so that a unit of the claimant fits.

If executors of one requirement never hinder each other, room is counted on columns, where a victim changes only its own
nodes. Otherwise a unit is placed on trial.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice, repeat
from math import inf
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ullage.core.books.fleet import Column, Fleet
from ullage.core.books.modes import WHOLE, mode_of, modes_of
from ullage.core.books.trial import trial
from ullage.core.evicting.put_back import Held, put_back
from ullage.core.kernel import occupants as kernel
from ullage.core.kernel.columns import UNREACHABLE, Rows
from ullage.core.kernel.fewest import Leaving
from ullage.core.placing.placement import Placer, warming_fleet
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import place_unit
from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView
from ullage.model.allocation import Allocation, Charge
from ullage.model.part import Isolation
from ullage.model.request import ResourceRequirement

_FEW = 8
"""Victims that are looked at first; as many again wherever they are not enough."""

_AT_WORK = frozenset({ExecutorPhase.STARTING, ExecutorPhase.BUSY})
"""Phases in which the protection of an executor counts."""


class ExecutorVictim(NamedTuple):
    """Executors that give way together: one, or a whole gang.

    `busy` if a running task stands in the way; `protected_until` is when the last such task may be claimed.
    """

    members: tuple[ExecutorView, ...]
    session: str | None
    busy: bool = False
    protected_until: float = -inf

    def units(self, demand: Demand) -> int:
        """Units of its session that go with it."""
        return len(self.members) // demand.batch_size

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(member.id for member in self.members)


def victims_of(session: str, executors: Iterable[ExecutorView]) -> list[ExecutorVictim]:
    """Return the executors of a session as victims, in their order: vacant before busy, newest first, gangs whole."""
    gangs: dict[str, list[ExecutorView]] = {}
    for executor in executors:
        gangs.setdefault(executor.gang or executor.id, []).append(executor)
    turns = []
    for members in gangs.values():
        members.sort(key=attrgetter("id"))
        busy = any(member.phase is ExecutorPhase.BUSY for member in members)
        working = any(member.phase in _AT_WORK for member in members)
        until = max(member.protected_until for member in members) if working else -inf
        newest = -max(member.bound_at for member in members)
        first, *_ = members
        turns.append((busy, newest, first.id, ExecutorVictim(tuple(members), session, busy, until)))
    turns.sort()
    return [victim for *_, victim in turns]


def fewest(
    outlook: Placer, claimant: Demand, victims: Iterable[ExecutorVictim], name: str
) -> list[ExecutorVictim] | None:
    """Return as few of these as make a unit fit, in their order; the last ones are put back first.

    Return None if it does not fit even without all of them. The books stay as they were.
    """
    asked = claimant.requirement
    if not _counted(outlook, asked):
        return _on_trial(outlook, claimant, victims, name)
    waiting, table, leaving = iter(victims), outlook.table(asked), _Leaving(outlook.fleet)
    while more := list(islice(waiting, max(_FEW, len(leaving.victims)))):
        known = len(leaving.victims)
        go = table.fewest(leaving.columns(more), claimant.batch_size, known)
        if go is not None:
            return [leaving.victims[at] for at in go]
    return None


def room_without(outlook: Placer, claimant: Demand, victims: list[ExecutorVictim]) -> Column:
    """Units of the claimant that fit on each node once all of these have left. The books are as before."""
    asked = claimant.requirement
    if not _counted(outlook, asked):
        with trial(outlook.fleet):
            leave(outlook.fleet, victims)
            return outlook.room(asked).copy()
    table = outlook.table(asked)
    room = table.room.copy()
    table.fewest(_Leaving(outlook.fleet).columns(victims), UNREACHABLE, room=room)
    return room


def leave(fleet: Fleet, victims: Iterable[ExecutorVictim]) -> list[Held]:
    """Release what victims hold, and return it."""
    return [tuple(fleet.release(member.id) for member in victim.members) for victim in victims]


def _counted(outlook: Placer, asked: ResourceRequirement) -> bool:
    """Return whether executors of one requirement never hinder each other."""
    return not (asked.cards.isolation is Isolation.PARTITIONED or outlook.fleet.board.held) and (
        asked.whole or asked.gpu_count <= 1
    )


def warm() -> None:
    """Have the counting compiled, or what was compiled before read back."""
    outlook, asked = Placer(warming_fleet(), Policy()), ResourceRequirement.of(gpu=1)
    placed = outlook.place("held", asked)
    assert placed is not None
    victim = ExecutorVictim((ExecutorView(placed.id, ExecutorPhase.BUSY, asked),), None)
    fewest(outlook, Demand("warm", 0, ResourceRequirement.of(gpu=2)), [victim], "warm")


def _on_trial(
    outlook: Placer, claimant: Demand, victims: Iterable[ExecutorVictim], name: str
) -> list[ExecutorVictim] | None:
    fleet, counted = outlook.fleet, claimant.requirement.gpu_count <= 1

    def fits(_held: Held = ()) -> bool:
        if counted:
            return int(outlook.room(claimant.requirement).sum()) >= claimant.batch_size
        with trial(fleet):
            return place_unit(outlook, claimant, name, claimant.batch_size) is not None

    gone: dict[str, ExecutorVictim] = {}
    released: list[Held] = []
    with trial(fleet):
        for victim in victims:
            gone[victim.members[0].id] = victim
            released += leave(fleet, [victim])
            if fits():
                break
        else:
            return None
        needed = put_back(fleet, reversed(released), fits)
    return [gone[first.id] for first, *_ in reversed(needed)]


class _Leaving:
    """Victims as the kernel looks at them, in their order."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.victims: list[ExecutorVictim] = []
        self._columns: Leaving | None = None
        self._left: dict[int, dict[str, Charge | None]] = {}

    def columns(self, more: list[ExecutorVictim]) -> Leaving:
        """Return the columns of those so far, followed by these."""
        members = [self._fleet.ledger[each.id] for victim in more for each in victim.members]
        entries, cards = self._entries(members)
        charges, stay = self._charges(members, entries, cards)
        first = np.cumsum([0, *[len(victim.members) for victim in more]])
        self.victims += more
        if self._columns is not None:
            before = self._columns
            entries[:, [kernel.FIRST_CHARGE, kernel.AFTER_CHARGE]] += len(before.charges)
            first = np.concatenate((before.first[:-1], first + len(before.entries)))
            entries = np.concatenate((before.entries, entries))
            charges = np.concatenate((before.charges, charges))
            stay = np.concatenate((before.modes_left, stay))
        self._columns = Leaving(first, entries, charges, stay)
        return self._columns

    def _entries(self, members: list[Allocation]) -> tuple[Rows, Rows]:
        """Return their entries, and their cards one after the other."""
        fleet, count = self._fleet, len(members)
        rows = np.fromiter(map(fleet.row_of.get, [member.node for member in members], repeat(-1)), np.int64, count)
        held, asked = [member.gpus for member in members], [member.requirement for member in members]
        for entry in np.flatnonzero(rows < 0).tolist():
            held[entry] = ()
        entries = np.zeros((count, kernel.ENTRY_COLUMNS), np.int64)
        entries[:, kernel.ROW] = rows
        entries[:, kernel.CPU] = [min(each.cpu_milli, UNREACHABLE) for each in asked]
        entries[:, kernel.MEMORY] = [min(each.memory_bytes, UNREACHABLE) for each in asked]
        entries[:, kernel.AFTER_CHARGE] = np.cumsum(np.fromiter(map(len, held), np.int64, count))
        entries[1:, kernel.FIRST_CHARGE] = entries[:-1, kernel.AFTER_CHARGE]
        return entries, np.fromiter(map(fleet.card_of.__getitem__, chain.from_iterable(held)), np.int64)

    def _charges(self, members: list[Allocation], entries: Rows, cards: Rows) -> tuple[Rows, Rows]:
        """Return what they hold of their cards, and the isolation modes left on these once they are gone."""
        fleet = self._fleet
        charges, stay = np.empty((len(cards), kernel.CHARGE_COLUMNS), np.int64), np.zeros(len(cards), np.int64)
        charges[:, kernel.CARD], charges[:, kernel.MODE] = cards, WHOLE
        charges[:, kernel.COMPUTE], charges[:, kernel.VRAM] = fleet.compute_total[cards], fleet.vram_total[cards]
        shared = np.flatnonzero((fleet.card_modes[cards] != WHOLE) | (fleet.card_users[cards] > 1))
        of = np.searchsorted(entries[:, kernel.AFTER_CHARGE], shared, side="right").tolist()
        for place, entry in zip(shared.tolist(), of, strict=True):
            card = cards.item(place)
            holders = self._left.setdefault(card, dict(fleet.holders[card]))
            charge = holders.pop(members[entry].id)
            if charge is not None:
                charges[place, kernel.COMPUTE :] = charge.compute, charge.vram, mode_of(charge)
            stay[place] = modes_of(holders.values())
        return charges, stay
