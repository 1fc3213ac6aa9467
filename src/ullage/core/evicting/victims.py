"""What evicting requests costs: budgets of workloads, and the order in which sets of victims are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import start
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.rejection import Rejection
from ullage.model.victim import FreedAmounts, Victim


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


@dataclass(frozen=True, slots=True)
class EvictionContext:
    """The books on which evictions are looked for, at what time, and what is reserved for others there."""

    fleet: Fleet
    rules: Rules
    now: float
    budgets: Budgets = NO_BUDGETS
    nominations: Nominations = NO_NOMINATIONS

    def reserving(self, request: Request) -> AbstractContextManager[None]:
        """Charge what is reserved for those who come before a request, meanwhile."""
        return reserving(self.fleet, self.nominations.before(self.fleet, request))


def budgets_of(fleet: Fleet, min_available: Mapping[tuple[str, str], int]) -> Budgets:
    """Return the budgets of workloads with a minimum of bound workers, by the present ledger."""
    if not min_available:
        return NO_BUDGETS
    bound = Counter(workload_of(a) for a in fleet.ledger.values() if a.claim and a.state is AllocationState.BOUND)
    return Budgets({workload: max(0, bound[workload] - least) for workload, least in min_available.items()})


def cost_of(budgets: Budgets, now: float, node: str, victims: Sequence[Allocation]) -> Cost:
    """Return the cost of evicting these, on one node."""
    priorities = [claim_of(victim).priority for victim in victims]
    highest = max(priorities, default=0)
    oldest = min((start(victim) for victim in victims if claim_of(victim).priority == highest), default=now)
    return Cost(
        violations=budgets.broken(victims).total(),
        highest=highest,
        priorities=sum(max(0, priority) for priority in priorities),
        number=len(victims),
        age_s=now - oldest,
        node=node,
    )


def victim_of(fleet: Fleet, allocation: Allocation, reason: Rejection) -> Victim:
    """Somebody who gives way, and what that gives; `reason` is why the request does not fit otherwise."""
    claim = claim_of(allocation)
    charges: Collection[Charge | None] = allocation.charges or [None] * len(allocation.gpus)
    gives = tuple(_gives(fleet, uuid, charge) for uuid, charge in zip(allocation.gpus, charges, strict=True))
    return Victim(allocation.id, claim.namespace, claim.workload, claim.priority, gives=gives, reason=reason)


def _gives(fleet: Fleet, uuid: str, charge: Charge | None) -> FreedAmounts:
    if charge is not None:
        return FreedAmounts(uuid, charge.compute, charge.vram)
    card = fleet.card_of[uuid]
    return FreedAmounts(uuid, int(fleet.compute_total[card]), int(fleet.vram_total[card]))


def claim_of(allocation: Allocation) -> Claim:
    """Return the claim of an evictable allocation."""
    assert allocation.claim is not None, "only requests are victims"
    return allocation.claim


def workload_of(allocation: Allocation) -> tuple[str, str]:
    """Return its namespace and workload, which budgets are for."""
    claim = claim_of(allocation)
    return claim.namespace, claim.workload
