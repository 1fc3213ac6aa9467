"""Who may be evicted for a request, and the cost.

Times are seconds of the clock of the caller. Protection (`Claim.protected_until`) is absolute while it lasts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import start
from ullage.core.placing.rules import Rules
from ullage.core.verdict.cards import refusal_of
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.rejection import Code, Rejection
from ullage.model.victim import Gives, Victim


class Shield(StrEnum):
    """Why an allocation is no victim for a request, in the order of the checks."""

    FOREIGN = "owner-not-known"
    EXECUTOR = "executor-of-a-session"
    NOT_BOUND = "not-bound"
    PRIORITY = "no-lower-priority"
    GANG = "own-gang"
    NAMESPACE = "other-namespace"
    PROTECTED = "protected"


@dataclass(frozen=True, slots=True)
class Budgets:
    """The number of workers of a (namespace, workload) that may still be disrupted; any number if it is not named.

    Budgets are respected if possible: victims beyond a budget are put back first, and a node without violations comes
    before all others. They do not make a request of higher priority wait.
    """

    left: Mapping[tuple[str, str], int] = field(default_factory=dict)
    of: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Allocations by id that count for another one than that of their workload."""

    def broken(self, victims: Iterable[Allocation]) -> Counter[tuple[str, str]]:
        """Workers beyond the budget, per workload that has one."""
        taken = Counter(map(self.key, victims)) if self.left else Counter()
        return Counter({key: n - self.left[key] for key, n in taken.items() if n > self.left.get(key, n)})

    def key(self, allocation: Allocation) -> tuple[str, str]:
        """By which its budget is found in `left`."""
        return self.of.get(allocation.id) or workload_of(allocation)


class Cost(NamedTuple):
    """The cost of a set of victims, compared from the first field on.

    Workers beyond their budgets, the highest priority, the sum of the priorities (those below 0 count as 0, so that no
    larger set is cheaper), the number of victims, the seconds for which the oldest of the highest priority is bound,
    and the name of the node.
    """

    violations: int
    highest: int
    priorities: int
    number: int
    age_s: float
    node: str


NO_BUDGETS = Budgets()


def budgets_of(fleet: Fleet, min_available: Mapping[tuple[str, str], int]) -> Budgets:
    """Return the budgets of workloads with a minimum of bound workers, by the present ledger."""
    if not min_available:
        return NO_BUDGETS
    bound = Counter(workload_of(a) for a in fleet.ledger.values() if a.claim and a.state is AllocationState.BOUND)
    return Budgets({workload: max(0, bound[workload] - least) for workload, least in min_available.items()})


def shield(rules: Rules, request: Request, allocation: Allocation, now: float) -> Shield | None:
    """Return why an allocation may not be evicted for the request; None if it may."""
    claim, own = allocation.claim, request.claim
    if claim is None:
        return Shield.EXECUTOR if allocation.of_session else Shield.FOREIGN
    if allocation.state is not AllocationState.BOUND:
        return Shield.NOT_BOUND
    if claim.priority >= own.priority:
        return Shield.PRIORITY
    if claim.gang is not None and own.gang is not None and claim.gang.key == own.gang.key:
        return Shield.GANG
    if not rules.preempt_cluster_wide and claim.namespace != own.namespace:
        return Shield.NAMESPACE
    return Shield.PROTECTED if claim.protected_until > now else None


def cost_of(budgets: Budgets, now: float, node: str, victims: Sequence[Allocation]) -> Cost:
    """Return the cost of evicting these, on one node."""
    priorities = [claim_of(victim).priority for victim in victims]
    highest = max(priorities, default=0)
    oldest = min((start(victim) for victim in victims if claim_of(victim).priority == highest), default=now)
    violations = budgets.broken(victims).total()
    return Cost(violations, highest, sum(max(0, p) for p in priorities), len(victims), now - oldest, node)


def victim_of(fleet: Fleet, allocation: Allocation, reason: Rejection) -> Victim:
    """Somebody who gives way, and what that gives; `reason` is why the request does not fit otherwise."""
    claim = claim_of(allocation)
    charges: Collection[Charge | None] = allocation.charges or [None] * len(allocation.gpus)
    gives = tuple(_gives(fleet, uuid, charge) for uuid, charge in zip(allocation.gpus, charges, strict=True))
    return Victim(allocation.id, claim.namespace, claim.workload, claim.priority, gives, reason)


def _gives(fleet: Fleet, uuid: str, charge: Charge | None) -> Gives:
    if charge is not None:
        return Gives(uuid, charge.compute, charge.vram)
    card = fleet.card_of[uuid]
    return Gives(uuid, int(fleet.compute_total[card]), int(fleet.vram_total[card]))


def claim_of(allocation: Allocation) -> Claim:
    """Return the claim of an evictable allocation."""
    assert allocation.claim is not None, "only requests are victims"
    return allocation.claim


def workload_of(allocation: Allocation) -> tuple[str, str]:
    """Its namespace and workload: what budgets are made for."""
    claim = claim_of(allocation)
    return claim.namespace, claim.workload


def lock_on(fleet: Fleet, request: Request, card: int) -> Rejection | None:
    """Return why the request does not get this dynamic card even if all its users are evicted; None if it does."""
    found = refusal_of(fleet, card, request.requirement)
    return found if found is not None and found.code in (Code.ISOLATION_LOCKED, Code.ISOLATION_CONFLICT) else None
