"""Finds the victims for several requests that belong together: for all of them at once, or for none.

Requests that fit without victims are placed first. Each other one takes the node where it costs least, as if it came
alone after those before it. If members are equal and each needs a node of its own, no other choice of nodes is cheaper:
the costs of the chosen nodes in ascending order are minimal, compared from the first on. The books stay as they were.
Times are seconds of the clock of the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.evicting.clearing import Clearing
from ullage.core.evicting.preemption import NoPreemption, Preemption, preempt
from ullage.core.evicting.victims import NO_BUDGETS, Budgets, Cost, victim_of
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.draft import Misfit, enter, place_run
from ullage.core.placing.feasibility import quota_allows, room, runs, summable
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.placement import table_of
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.verdict.cards import open_cards, refusal_of
from ullage.core.verdict.nodes import shortfalls
from ullage.core.verdict.zones import refusal_on
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.rejection import Code, Cure, Rejection


def preempt_together(
    fleet: Fleet,
    rules: Rules,
    requests: Sequence[Request],
    now: float,
    budgets: Budgets = NO_BUDGETS,
    nominations: Nominations = NO_NOMINATIONS,
) -> dict[str, Preemption] | Misfit:
    """Return the places of all these requests with their victims; or the first request for which none suffice."""
    if nominations.entries:
        nominations = nominations.without(*(request.uid for request in requests))
    found: dict[str, Preemption] = {}
    with trial(fleet):
        for run in runs(requests):
            had = int(room(fleet, rules, run[0]).sum())
            placed = place_run(fleet, rules, run[:had], now, nominations)[0] if had else []
            enter(fleet, run[: len(placed)], placed, now)
            found.update((request.uid, Preemption(choice)) for request, choice in zip(run, placed, strict=False))
            rest = run[len(placed) :]
            evicted = _evict(fleet, rules, rest, now, budgets, nominations) if rest else {}
            if isinstance(evicted, Refusal):
                return Misfit(rest[0].uid, evicted, len(found))
            found.update(evicted)
            if run[-1] is not requests[-1]:
                budgets = _leave(fleet, rest, evicted, now, budgets)
    return found


def _leave(
    fleet: Fleet, requests: Sequence[Request], found: dict[str, Preemption], now: float, budgets: Budgets
) -> Budgets:
    """Let the victims go and the requests come, within the caller's trial; what is left of the budgets."""
    gone = [fleet.release(uid) for each in found.values() for uid in each.uids]
    enter(fleet, requests, [found[request.uid].choice for request in requests], now)
    if not budgets.left:
        return budgets
    taken = Counter(map(budgets.key, gone))
    return Budgets({key: max(0, left - taken[key]) for key, left in budgets.left.items()}, budgets.of)


def _evict(
    fleet: Fleet, rules: Rules, run: Sequence[Request], now: float, budgets: Budgets, nominations: Nominations
) -> dict[str, Preemption] | Refusal:
    """Return the places and victims of equal requests, none of which fits without victims."""
    request = run[0]
    ahead = nominations.before(fleet, request)
    allowed = quota_allows(fleet, rules, request, len(run), ahead)
    if not (summable(rules, request) and allowed):
        return _one_by_one(fleet, rules, run, now, budgets, nominations)
    with reserving(fleet, ahead):
        return _together(fleet, rules, run, now, budgets)


def _one_by_one(
    fleet: Fleet, rules: Rules, run: Sequence[Request], now: float, budgets: Budgets, nominations: Nominations
) -> dict[str, Preemption] | Refusal:
    found: dict[str, Preemption] = {}
    with trial(fleet):
        for request in run:
            each = preempt(fleet, rules, request, now, budgets, nominations)
            if isinstance(each, NoPreemption):
                return each
            found[request.uid] = each
            budgets = _leave(fleet, [request], {request.uid: each}, now, budgets)
    return found


def _together(
    fleet: Fleet, rules: Rules, run: Sequence[Request], now: float, budgets: Budgets
) -> dict[str, Preemption] | Refusal:
    request, units = run[0], len(run)
    cleared = Clearing(fleet, rules, request, now, budgets).units(units)
    if len(cleared) < units:
        return Refusal((Rejection(Code.NO_VICTIMS, Cure.CAPACITY, units, len(cleared)),))
    table = table_of(fleet, request.requirement, rules.strategy_of(request), rules.cap)
    found: dict[str, Preemption] = {}
    for each, (row, cards, victims, paid, since) in zip(run, cleared, strict=True):
        node = fleet.nodes[row].name
        choice = Choice(node, fleet.uuids(cards), table.charges(cards))
        violations, highest, priorities, number = paid
        cost = Cost(violations, highest, priorities, number, now - since, node) if victims else None
        gone = tuple(victim_of(fleet, victim, _reason(fleet, request, row, victim)) for victim in victims)
        found[each.uid] = Preemption(choice, gone, cost)
    return found


def _reason(fleet: Fleet, request: Request, row: int, victim: Allocation) -> Rejection:
    """Return why the request does not fit while this victim stays: by one of its cards, else by the node."""
    asked, node = request.requirement, fleet.nodes[row].name
    for uuid in victim.gpus:
        against = refusal_of(fleet, fleet.card_of[uuid], asked)
        if against is not None and against.cure is Cure.CAPACITY:
            return against
    short = shortfalls(fleet, row, asked)
    if short:
        return short[0]
    zones = refusal_on(fleet, asked, row, open_cards(fleet, row, asked))
    if zones is not None:
        return zones
    workers = fleet.workers(row)
    return Rejection(Code.WORKER_CAP, Cure.CAPACITY, workers + 1, workers, node)
