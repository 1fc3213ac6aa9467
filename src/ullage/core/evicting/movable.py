"""Which allocations may be moved so that others fit, and why the others may not.

Times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from ullage.core.books.fleet import Fleet
from ullage.core.books.slices import Slices
from ullage.core.evicting.victims import Budgets
from ullage.model.allocation import Allocation, AllocationState


class Stays(StrEnum):
    """Why an allocation is not moved, in the order of the checks."""

    FOREIGN = "owner-not-known"
    EXECUTOR = "executor-of-a-session"
    NOT_BOUND = "not-bound"
    GANG = "gang-member"
    PROTECTED = "protected"
    PRIORITY = "priority"
    BUDGET = "disruption-budget"
    SCATTERED = "cards-not-on-its-node"
    NOWHERE = "no-room-elsewhere"


_AT_ONCE = 500
"""Allocations of one slice."""


def movable(
    fleet: Fleet, now: float, up_to: int | None, budgets: Budgets
) -> Slices[tuple[list[Allocation], dict[Stays, int]]]:
    """Return, in slices, those who may be moved, and how many may not for each reason."""
    found: list[Allocation] = []
    stays: Counter[Stays] = Counter()
    left = dict(budgets.left)
    everybody = sorted(fleet.ledger.items(), key=lambda entry: (len(entry[1].gpus), entry[0]))
    for number, (_, allocation) in enumerate(everybody):
        if number % _AT_ONCE == 0:
            yield
        if not allocation.gpus:
            continue
        reason = why_stays(fleet, allocation, now, up_to)
        workload = None if allocation.claim is None else (allocation.claim.namespace, allocation.claim.workload)
        if reason is None and workload in left:
            left[workload] -= 1
            reason = Stays.BUDGET if left[workload] < 0 else None
        if reason is None:
            found.append(allocation)
        else:
            stays[reason] += 1
    return found, dict(sorted(stays.items()))


def why_stays(fleet: Fleet, allocation: Allocation, now: float, up_to: int | None) -> Stays | None:
    """Return why an allocation is not moved, whatever the budgets; None if it may be."""
    claim, row = allocation.claim, fleet.row_of.get(allocation.node)
    if claim is None:
        return Stays.EXECUTOR if allocation.of_session else Stays.FOREIGN
    if allocation.state is not AllocationState.BOUND:
        return Stays.NOT_BOUND
    if claim.gang is not None:
        return Stays.GANG
    if claim.protected_until > now:
        return Stays.PROTECTED
    if up_to is not None and claim.priority > up_to:
        return Stays.PRIORITY
    cards = [fleet.card_of.get(uuid) for uuid in allocation.gpus]
    here = all(card is not None and fleet.card_row.item(card) == row for card in cards)
    return None if here else Stays.SCATTERED


def priority_of(allocation: Allocation) -> int:
    """Return the priority of its owner; 0 if there is none."""
    return allocation.claim.priority if allocation.claim is not None else 0
