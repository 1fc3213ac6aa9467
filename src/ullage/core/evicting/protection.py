"""Which allocations may be touched to make room for a request, and why the others may not.

Times are seconds of the clock of the caller. Protection (`Claim.protected_until`) is absolute while it lasts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

import numpy as np
import numpy.typing as npt

from ullage.core.books.occupancy import Occupancy
from ullage.core.kernel import occupants as at
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Request


class Shield(StrEnum):
    """Why an allocation is not touched, in the order of the checks. The last three apply to moves only."""

    FOREIGN = "owner-not-known"
    EXECUTOR = "executor-of-a-session"
    NOT_BOUND = "not-bound"
    PRIORITY = "priority"
    GANG = "gang-member"
    NAMESPACE = "other-namespace"
    PROTECTED = "protected"
    SCATTERED = "cards-not-on-its-node"
    BUDGET = "disruption-budget"
    NOWHERE = "no-room-elsewhere"


@dataclass(frozen=True, slots=True)
class Protection:
    """What protects allocations from one request.

    Only requests may be touched that are bound, whose priority is lower than `below`, and whose protection is over
    `now`. `gang` is the gang of which no member is touched, "" for every gang; None protects no gang. With a
    `namespace` only its requests are touched.
    """

    now: float
    below: float = inf
    gang: str | None = None
    namespace: str | None = None

    @classmethod
    def against(cls, rules: Rules, request: Request, now: float) -> Protection:
        """Return what protects allocations from being evicted for a request."""
        claim = request.claim
        gang, within = claim.gang.key if claim.gang else None, None if rules.preempt_cluster_wide else claim.namespace
        return cls(now, claim.priority, gang, within)

    def shield(self, allocation: Allocation) -> Shield | None:
        """Return why an allocation is not touched; None if it may be."""
        claim = allocation.claim
        if claim is None:
            return Shield.EXECUTOR if allocation.of_session else Shield.FOREIGN
        if allocation.state is not AllocationState.BOUND:
            return Shield.NOT_BOUND
        if claim.priority >= self.below:
            return Shield.PRIORITY
        if claim.gang is not None and self.gang in ("", claim.gang.key):
            return Shield.GANG
        if self.namespace not in (None, claim.namespace):
            return Shield.NAMESPACE
        return Shield.PROTECTED if claim.protected_until > self.now else None

    def may_go(self, occupancy: Occupancy) -> npt.NDArray[np.bool_]:
        """Return for each occupant whether it may be touched: `shield` on columns."""
        there = occupancy.columns()
        may: npt.NDArray[np.bool_] = there.entries[:, at.BOUND] == 1
        may &= there.entries[:, at.PRIORITY] < self.below
        may &= there.protected_until <= self.now
        if self.gang is not None:
            may &= there.entries[:, at.GANG] != occupancy.number("", "", self.gang)
        if self.namespace is not None:
            may &= there.entries[:, at.NAMESPACE] == occupancy.number(self.namespace)
        return may
