"""Which of those who are asked to give way have to: victims without any of whom a unit of the claimant would not fit.

Where executors of one requirement never hinder each other, room is counted on columns: a victim changes only that of
its own nodes. Else a unit is placed on trial.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np

from ullage.core.entitlement import place_unit
from ullage.core.fleet import Fleet
from ullage.core.kernel import victims as kernel
from ullage.core.kernel.columns import UNREACHABLE
from ullage.core.kernel.reclaim import Leaving
from ullage.core.modes import mode_of, modes_of
from ullage.core.placement import Placer
from ullage.core.trial import trial
from ullage.core.world import Demand, ExecutorView
from ullage.model.allocation import Allocation, Charge
from ullage.model.part import Isolation

_FEW = 16
"""Victims that are looked at first; twice as many as before wherever they are not enough."""


class Victim(NamedTuple):
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


def fewest(outlook: Placer, claimant: Demand, victims: Iterable[Victim], name: str) -> list[Victim] | None:
    """As few of these as make a unit fit, in their order: no more than needed go, the last stay first.

    None if it does not fit without all of them. The books are as before.
    """
    asked = claimant.requirement
    if asked.cards.isolation is Isolation.PARTITIONED or not (asked.whole or asked.gpu_count <= 1):
        return _on_trial(outlook, claimant, victims, name)
    waiting, asked_so_far, table = iter(victims), list[Victim](), outlook.table(asked)
    while more := list(islice(waiting, len(asked_so_far) or _FEW)):
        asked_so_far += more
        go = table.fewest(_columns(outlook.fleet, asked_so_far), claimant.batch_size)
        if go is not None:
            return [asked_so_far[at] for at in go]
    return None


def _on_trial(outlook: Placer, claimant: Demand, victims: Iterable[Victim], name: str) -> list[Victim] | None:
    fleet, counted = outlook.fleet, claimant.requirement.gpu_count <= 1

    def fits() -> bool:
        if counted:
            return int(outlook.room(claimant.requirement).sum()) >= claimant.batch_size
        with trial(fleet):
            return place_unit(outlook, claimant, name, claimant.batch_size) is not None

    gone: list[tuple[Victim, list[Allocation]]] = []
    with trial(fleet):
        for victim in victims:
            gone.append((victim, [fleet.release(member.id) for member in victim.members]))
            if fits():
                break
        else:
            return None
        needed: list[Victim] = []
        for victim, allocations in reversed(gone):
            for allocation in allocations:
                fleet.charge(allocation, force=True)
            if not fits():
                for allocation in allocations:
                    fleet.release(allocation.id)
                needed.append(victim)
    return needed[::-1]


def _columns(fleet: Fleet, victims: list[Victim]) -> Leaving:
    """Victims as the kernel looks at them, in their order."""
    members = [fleet.ledger[member.id] for victim in victims for member in victim.members]
    row_of, card_of = fleet.row_of, fleet.card_of
    rows = [row_of.get(allocation.node, -1) for allocation in members]
    held = [allocation.gpus if row >= 0 else () for allocation, row in zip(members, rows, strict=True)]
    entries = np.zeros((len(members), kernel.ENTRY_COLUMNS), np.int64)
    entries[:, kernel.CPU] = [min(allocation.requirement.cpu_milli, UNREACHABLE) for allocation in members]
    entries[:, kernel.MEMORY] = [min(allocation.requirement.memory_bytes, UNREACHABLE) for allocation in members]
    entries[:, kernel.AFTER_CHARGE] = np.cumsum([len(uuids) for uuids in held])
    entries[1:, kernel.FIRST_CHARGE] = entries[:-1, kernel.AFTER_CHARGE]
    cards = np.array([card_of[uuid] for uuids in held for uuid in uuids], np.int64)
    charges, stay = np.empty((len(cards), kernel.CHARGE_COLUMNS), np.int64), np.zeros(len(cards), np.int64)
    charges[:, kernel.CARD], charges[:, kernel.MODE] = cards, mode_of(None)
    charges[:, kernel.COMPUTE], charges[:, kernel.VRAM] = fleet.compute_total[cards], fleet.vram_total[cards]
    left: dict[int, dict[str, Charge | None]] = {}
    of = np.repeat(np.arange(len(members)), np.diff(entries[:, kernel.AFTER_CHARGE], prepend=0))
    partly = np.array([bool(allocation.charges) for allocation in members])[of]
    for place in (partly | (fleet.card_users[cards] > 1)).nonzero()[0].tolist():
        allocation, card = members[of[place]], cards.item(place)
        holders = left.setdefault(card, dict(fleet.holders[card]))
        charge = holders.pop(allocation.id)
        if charge is not None:
            charges[place, kernel.COMPUTE :] = charge.compute, charge.vram, mode_of(charge)
        stay[place] = modes_of(holders.values())
    first = np.cumsum([0, *(len(victim.members) for victim in victims)])
    return first, np.array(rows), entries, charges, stay
