"""What PodDisruptionBudgets leave of the pods that hold cards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ullage.core.victims import Budgets
from ullage.kube.client.objects import PodDisruptionBudget
from ullage.model.affinity import Term
from ullage.model.allocation import Allocation
from ullage.model.error import InvalidRequest
from ullage.wire.selector import read_selector

_NO_WORKLOAD = "budget/"
"""Before the name of a budget: no workload is called so."""


def budgets_of(found: Iterable[PodDisruptionBudget], held: Iterable[Allocation]) -> Budgets:
    """How many more of these pods may be disrupted; of several budgets that a pod has the tightest counts.

    One that cannot be read, or has no selector, is for no pod.
    """
    by_namespace: defaultdict[str, list[tuple[Term, PodDisruptionBudget]]] = defaultdict(list)
    for budget in sorted(found, key=lambda each: (each.status.disruptions_allowed, each.key)):
        try:
            term = read_selector(budget.spec.selector, "spec.selector")
        except InvalidRequest:
            continue
        if term is not None:
            by_namespace[budget.metadata.namespace].append((term, budget))
    left: dict[tuple[str, str], int] = {}
    of: dict[str, tuple[str, str]] = {}
    for each in held if by_namespace else ():
        claim = each.claim
        for term, budget in by_namespace.get(claim.namespace, ()) if claim is not None else ():
            if claim is not None and all(condition.holds(None, claim.labels) for condition in term):
                key = budget.metadata.namespace, _NO_WORKLOAD + budget.metadata.name
                left[key], of[each.id] = max(0, budget.status.disruptions_allowed), key
                break
    return Budgets(left, of)
