"""Finds the victims for several requests that belong together: for all of them at once, or for none.

Requests that fit without victims are placed first. Each other one takes the node where it costs least, as if it came
alone after those before it. If members are equal and each needs a node of its own, no other choice of nodes is cheaper:
the costs of the chosen nodes in ascending order are minimal, compared from the first on. The books stay as they were.
Times are seconds of the clock of the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.evicting.preemption import NoPreemption, Preemption, preempt
from ullage.core.evicting.victim_search import VictimSearch
from ullage.core.evicting.victims import Budgets, EvictionContext, victim_of
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.draft import Misfit, enter, place_run
from ullage.core.placing.feasibility import quota_allows, room, runs, summable
from ullage.core.placing.placement import table_of
from ullage.core.verdict.cards import open_cards, refusal_of
from ullage.core.verdict.nodes import shortfalls
from ullage.core.verdict.zones import refusal_on
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.rejection import Code, Cure, Rejection

Answer = dict[str, Preemption] | Refusal


def preempt_together(context: EvictionContext, requests: Sequence[Request]) -> dict[str, Preemption] | Misfit:
    """Return the places of all these requests with their victims; or the first request for which none suffice."""
    if context.nominations.entries:
        others = context.nominations.without(*(request.uid for request in requests))
        context = replace(context, nominations=others)
    fleet, rules, now, waiting = context.fleet, context.rules, context.now, len(requests)
    found: dict[str, Preemption] = {}
    with trial(fleet):
        for run in runs(requests):
            had = int(room(fleet, rules, run[0]).sum())
            placed = place_run(fleet, rules, run[:had], now, nominations=context.nominations)[0] if had else []
            enter(fleet, run[: len(placed)], placed, now)
            found.update((request.uid, Preemption(choice)) for request, choice in zip(run, placed, strict=False))
            rest = run[len(placed) :]
            evicted = _evict(context, rest) if rest else {}
            if isinstance(evicted, Refusal):
                return Misfit(run[len(placed)].uid, evicted, len(found))
            found.update(evicted)
            waiting -= len(run)
            if waiting:
                context = _enter(context, rest, evicted)
    return found


def _enter(context: EvictionContext, requests: Sequence[Request], found: dict[str, Preemption]) -> EvictionContext:
    """Let the victims go and the requests come, within the caller's trial; the budgets of what is returned are less."""
    fleet, budgets = context.fleet, context.budgets
    gone = [fleet.release(uid) for each in found.values() for uid in each.uids]
    enter(fleet, requests, [found[request.uid].choice for request in requests], context.now)
    if not budgets.left:
        return context
    taken = Counter(map(budgets.key, gone))
    left = {key: max(0, left - taken[key]) for key, left in budgets.left.items()}
    return replace(context, budgets=Budgets(left, budgets.of))


def _evict(context: EvictionContext, run: Sequence[Request]) -> Answer:
    """Return the places and victims of equal requests, none of which fits without victims."""
    request, fleet, rules = next(iter(run)), context.fleet, context.rules
    ahead = context.nominations.before(fleet, request)
    if summable(rules, request) and quota_allows(fleet, rules, request, len(run), ahead=ahead):
        with context.reserving(request):
            return _at_once(context, run)
    found: dict[str, Preemption] = {}
    with trial(fleet):
        for each in run:
            answer = preempt(context, each)
            if isinstance(answer, NoPreemption):
                return answer
            found[each.uid] = answer
            context = _enter(context, [each], {each.uid: answer})
    return found


def _at_once(context: EvictionContext, run: Sequence[Request]) -> Answer:
    request, units, fleet, rules = next(iter(run)), len(run), context.fleet, context.rules
    placed = VictimSearch(context, request).units(units)
    if len(placed) < units:
        return Refusal((Rejection(Code.NO_VICTIMS, Cure.CAPACITY, units, len(placed)),))
    table = table_of(fleet, request.requirement, rules.strategy_of(request), rules.cap)
    found: dict[str, Preemption] = {}
    for each, (row, cards, victims, cost) in zip(run, placed, strict=True):
        choice = Choice(fleet.nodes[row].name, fleet.uuids(cards), table.charges(cards))
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
    return Rejection(Code.WORKER_CAP, Cure.CAPACITY, workers + 1, workers, node=node)
