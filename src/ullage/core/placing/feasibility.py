"""Counts how many units of a request fit, from the table of its shape, without placing any.

The count is an upper bound, so a gang with more members never fits. It is exact if a unit takes whole cards or one
card. Units that take parts of several cards may hinder each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ullage.core.books.fleet import Column, Fleet
from ullage.core.books.usage import Usage
from ullage.core.placing.nomination import Ahead
from ullage.core.placing.placement import table_of
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.verdict.counted import asked_on
from ullage.core.verdict.quota import with_pre_scheduled
from ullage.core.verdict.shape import shape_of
from ullage.model.claim import Request
from ullage.model.part import Isolation
from ullage.model.rejection import Rejection


def room(fleet: Fleet, rules: Rules, request: Request) -> Column:
    """Return per node how many such requests fit now. Quotas do not count."""
    return table_of(fleet, request.requirement, rules.strategy_of(request), rules.cap).refreshed().room


def ever(fleet: Fleet, rules: Rules, request: Request) -> int:
    """Return how many such requests fit on the empty fleet."""
    return int(room(fleet.emptied(), rules, request).sum())


def runs(requests: Iterable[Request]) -> Iterator[list[Request]]:
    """Yield runs of consecutive requests that are equal in all that decides their placement."""
    run: list[Request] = []
    asked = claim = strategy = None
    for request in requests:
        if request.requirement is not asked or request.claim is not claim or request.strategy is not strategy:
            if run and what_decides(run[-1]) != what_decides(request):
                yield run
                run = []
            asked, claim, strategy = request.requirement, request.claim, request.strategy
        run.append(request)
    if run:
        yield run


def what_decides(request: Request) -> tuple[object, ...]:
    """Return all of a request that decides its placement: equal for equivalent requests."""
    claim = request.claim
    return request.requirement, request.strategy, claim.quota_name, claim.counted_limit, claim.priority


def quota_allows(fleet: Fleet, rules: Rules, request: Request, units: int, ahead: Sequence[Ahead] = ()) -> bool:
    """Return whether the quotas certainly allow so many more of a request, whatever cards they get.

    Where its amounts depend on the card, as if all cards were of the kind that counts most. What others gave way to
    for those `ahead` counts in the quota of its namespace.
    """
    if not rules.quotas.levels(request.claim.quota_name):
        return True
    with reserving(fleet, ahead):
        return _quota_allows(fleet, rules, request, units)


def _quota_allows(fleet: Fleet, rules: Rules, request: Request, units: int) -> bool:
    namespace, count = request.claim.quota_name, request.requirement.gpu_count
    for asked in {asked_on(fleet, request, [card] * count) for card in shape_of(fleet, request.requirement).kinds}:
        before = Usage(*(amount * (units - 1) for amount in asked.total))
        used = with_pre_scheduled(fleet.usage, {namespace: before})
        if rules.quotas.check(used, namespace, asked):
            return False
    return True


def over_quota(fleet: Fleet, rules: Rules, request: Request, places: Iterable[Sequence[str]]) -> tuple[Rejection, ...]:
    """Return why the quota of a namespace refuses such requests at all of these places; empty if it does not."""
    namespace, more = request.claim.quota_name, Usage()
    if not rules.quotas.levels(namespace):
        return ()
    for gpus in places:
        asked = asked_on(fleet, request, [fleet.card_of[uuid] for uuid in gpus])
        over = rules.quotas.check(with_pre_scheduled(fleet.usage, {namespace: more}), namespace, asked)
        if over:
            return over
        more = more.plus(asked.total)
    return ()


def summable(rules: Rules, request: Request) -> bool:
    """Return whether room for such a request follows from sums over the columns of the books."""
    return not rules.oversubscription and request.requirement.cards.isolation is not Isolation.PARTITIONED


def countable(rules: Rules, request: Request) -> bool:
    """Return whether several such requests can be placed at once: by sums, with independent scores of nodes."""
    return summable(rules, request) and rules.strategy_of(request).stateless
