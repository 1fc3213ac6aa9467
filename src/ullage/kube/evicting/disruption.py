"""The disruptions that PodDisruptionBudgets still allow for pods with cards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ullage.core.evicting.victims import Budgets
from ullage.kube.client.informer import Delta, Informer, Removed
from ullage.kube.client.objects import PodDisruptionBudget
from ullage.kube.controller import OnError
from ullage.model.affinity import Term
from ullage.model.allocation import Allocation
from ullage.model.error import InvalidRequest
from ullage.wire.selector import read_selector

_NO_WORKLOAD = "budget/"
"""Prefix of the name of a budget. No workload name starts with it."""


def report_unreadable(budgets: Informer[PodDisruptionBudget], on_error: OnError) -> None:
    """Report each PodDisruptionBudget whose selector cannot be parsed, as the informer delivers it."""

    def on_budget(delta: Delta[PodDisruptionBudget]) -> None:
        if not isinstance(delta, Removed):
            try:
                read_selector(delta.new.spec.selector, "spec.selector")
            except InvalidRequest as error:
                message = f"{error.message}; until it can be read, no pod of its namespace may be evicted"
                on_error("PodDisruptionBudget", "/".join(delta.new.key), InvalidRequest(message))

    budgets.subscribe(on_budget)


def budgets_of(found: Iterable[PodDisruptionBudget], held: Iterable[Allocation]) -> Budgets:
    """Return how many more of these pods may be disrupted. If several budgets select a pod, the tightest applies.

    A budget without a selector selects no pod. A budget with an invalid selector allows no eviction in its namespace,
    because it may protect any pod there.
    """
    by_namespace: defaultdict[str, list[_Limit]] = defaultdict(list)
    for budget in found:
        limit = _limit(budget)
        if limit is not None:
            by_namespace[budget.metadata.namespace].append(limit)
    left: dict[tuple[str, str], int] = {}
    of: dict[str, tuple[str, str]] = {}
    for limits in by_namespace.values():
        limits.sort(key=lambda limit: (limit.allowed, limit.name))
    for each in held if by_namespace else ():
        claim = each.claim
        for limit in by_namespace.get(claim.namespace, ()) if claim is not None else ():
            if claim is not None and all(condition.holds(None, claim.labels) for condition in limit.term):
                key = claim.namespace, _NO_WORKLOAD + limit.name
                left[key], of[each.id] = limit.allowed, key
                break
    return Budgets(left, of)


class _Limit(NamedTuple):
    """How many of the pods with these labels may be disrupted, according to the budget of that name."""

    allowed: int
    name: str
    term: Term


def _limit(budget: PodDisruptionBudget) -> _Limit | None:
    """Return what a budget allows; None if it selects no pod."""
    allowed, name = max(0, budget.status.disruptions_allowed), budget.metadata.name
    try:
        term = read_selector(budget.spec.selector, "spec.selector")
    except InvalidRequest:
        return _Limit(0, name, ())
    return None if term is None else _Limit(allowed, name, term)
