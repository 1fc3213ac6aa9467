"""Preemption: the victims for a request that has no room. The books stay as they are.

All victims are on one node: that with the cheapest set (`Cost`). `VictimSearch` searches one node. Times are seconds
of the clock of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.books.slices import Slices, at_once, slice_begins
from ullage.core.books.trial import trial
from ullage.core.evicting.protection import Shield
from ullage.core.evicting.victim_search import (
    Attempt,
    VictimSearch,
    locks_of,
    refusal_in,
    with_stage,
    without_locked,
)
from ullage.core.evicting.victims import Cost, EvictionContext, claim_of, cost_of, victim_of
from ullage.core.placing.candidates import find
from ullage.core.placing.decision import Candidates, Choice, Refusal
from ullage.core.placing.nomination import Nominations
from ullage.core.placing.reserving import release_terminating, reserving
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import choose, place
from ullage.core.verdict.cards import exclusion_of
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.error import Conflict, NotFound, invalid
from ullage.model.nomination import Nomination
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.victim import Victim

_NODES_AT_ONCE = 64
"""Nodes that one slice looks at before any is tried."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """The place of the request once the victims are gone. Without victims, it fits as it is.

    `without` is the refusal without victims. `attempts` are the results on the nodes, by name.
    """

    choice: Choice
    victims: tuple[Victim, ...] = ()
    cost: Cost | None = None
    attempts: tuple[Attempt, ...] = ()
    without: Refusal | None = None

    @property
    def uids(self) -> tuple[str, ...]:
        """The uids of the victims, the most expensive first."""
        return tuple(victim.uid for victim in self.victims)

    def nomination(self, request: Request, now: float) -> Nomination:
        """Return the nomination that reserves the room of the victims for the request."""
        choice = self.choice
        owed = bool(self.victims)
        return Nomination(
            request, choice.node, now, choice.gpus, charges=choice.charges, victims=self.victims, owed=owed
        )


@dataclass(frozen=True, slots=True)
class NoPreemption(Refusal):
    """Why the request does not fit, and the attempts to make room on the nodes, by name."""

    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class Released(Candidates):
    """Candidates with victims gone, and what each would have free then: (compute, vram), units of the card."""

    free: dict[str, tuple[int, int]] = field(default_factory=dict)


PreemptionAnswer = Preemption | NoPreemption

# --- with victims that somebody else chose ---


def filter_with_preempt(
    fleet: Fleet, rules: Rules, request: Request, victims: Sequence[str], nodes: Sequence[str] | None = None
) -> Released | Refusal:
    """Return the cards of the victims' nodes, or of the named ones, that fit without the victims. Quotas do not count.

    Raises:
        NotFound: a victim, its card, or a node is unknown.

    """
    gone = _named(fleet, victims)
    rows = {_row(fleet, name) for name in (nodes or [allocation.node for allocation in gone])}
    if not rows:
        return Refusal((Rejection(Code.NO_AFFECTED_NODE, Cure.OWNER),))
    cards = [card for row in sorted(rows) for card in fleet.cards_on(row)]
    kept, lock = without_locked(fleet, cards, locks_of(fleet, request))
    with trial(fleet):
        for allocation in gone:
            fleet.release(allocation.id)
        found = with_stage(lock, find(fleet, replace(rules, quotas=Quotas()), request, kept))
        if not found.by_node:
            return refusal_in(found)
        held = [fleet.card_of[uuid] for uuids in found.by_node.values() for uuid in uuids]
        free = {fleet.cards[card].uuid: _free(fleet, card) for card in held}
        return Released(found.by_node, found.stages, free=free)


def check_single_node_preempt(
    context: EvictionContext, request: Request, node: str, victims: Sequence[str]
) -> PreemptionAnswer:
    """Return whether the request fits on a node without the evictable ones of these victims, and who must leave.

    Raises:
        NotFound: a victim or the node is unknown. InvalidRequest: a victim is on another node.

    """
    named, row = _named(context.fleet, victims), _row(context.fleet, node)
    for victim in named:
        if victim.node != node:
            raise invalid("victims", victim.id, f"name workers of node {node}; this one is on {victim.node}")
    with context.reserving(request):
        search = VictimSearch(context, request)
        attempt = search.on(row, named)
        if attempt.refusal is not None:
            return _nobody_helps(attempt.refusal, (attempt,))
        return Preemption(search.place(attempt), attempt.victims, attempt.cost, (attempt,))


def check_nodes_preempt(
    context: EvictionContext, request: Request, candidates: Mapping[str, Sequence[str]]
) -> dict[str, Preemption]:
    """Return per node who must leave: of those named if they suffice, else all of these and as few others as possible.

    Those named go in any case, so others are looked for as if the named had gone. Those who leave a node anyway count
    as gone. Nodes that are not known, or where nobody helps, are left out.
    """
    fleet = context.fleet
    rows = {node: row for node in candidates if (row := fleet.row_of.get(node)) is not None}
    found: dict[str, Preemption] = {}
    with trial(fleet):
        for row in rows.values():
            release_terminating(fleet, row)
        holders = {node: fleet.card_holders(fleet.cards_on(row)) for node, row in rows.items()}
        with context.reserving(request):
            search = VictimSearch(context, request)
            for node, row in rows.items():
                there = [fleet.ledger[uid] for uid in holders[node]]
                first = frozenset(candidates[node])
                named = [each for each in there if each.id in first]
                attempt = search.on(row, named) if named else None
                if attempt is None or attempt.refusal is not None:
                    attempt = _with_others(search, row, named, [each for each in there if each.id not in first])
                if attempt.refusal is None:
                    found[node] = Preemption(search.place(attempt), attempt.victims, attempt.cost, (attempt,))
    return found


def _with_others(search: VictimSearch, row: int, named: Sequence[Allocation], others: Sequence[Allocation]) -> Attempt:
    """Return the result on a node if the named ones leave, and as few others as possible."""
    fleet, context = search.fleet, search.context
    given, _ = search.split(named)
    if not given:
        return search.on(row, others)
    with trial(fleet):
        for each in given:
            fleet.release(each.id)
        attempt = VictimSearch(context, search.request, search.locks).on(row, others)
    if attempt.refusal is not None:
        return attempt
    goes_anyway = Rejection(Code.NO_VICTIMS, Cure.CAPACITY, node=attempt.node)
    victims = (*(victim_of(fleet, each, goes_anyway) for each in given), *attempt.victims)
    gone = [fleet.ledger[victim.uid] for victim in victims]
    return replace(attempt, victims=victims, cost=cost_of(context.budgets, context.now, attempt.node, gone))


# --- once those who leave have left ---


def choice_after(fleet: Fleet, rules: Rules, request: Request, row: int, *, nominations: Nominations) -> Choice | None:
    """Return the cards of a node that a request gets once leaving allocations are gone; None if it does not fit."""
    with trial(fleet):
        release_terminating(fleet, row)
        with reserving(fleet, nominations.before(fleet, request)):
            return choose(fleet, rules, request, np.array([row]))


# --- over all nodes ---


def preempt(context: EvictionContext, request: Request) -> Preemption | NoPreemption:
    """Return the answer of `preempting` at once; raises as it."""
    return at_once(preempting(context, request))


def place_or_wait(
    fleet: Fleet, rules: Rules, request: Request, nominations: Nominations
) -> Choice | NoPreemption | Refusal:
    """Return the cards of a request that fits as it is, what a nominated one waits for, or why it does not fit."""
    without = place(fleet, rules, request, ahead=nominations.before(fleet, request))
    if isinstance(without, Choice):
        return without
    waits = _waits(fleet, rules, request, nominations)
    return without if waits is None else NoPreemption((waits,), without.stages, without.helps)


def preempting(context: EvictionContext, request: Request) -> Slices[PreemptionAnswer]:
    """Find the cheapest victims on one node that make the request fit, none if it fits as it is; or why nobody helps.

    Nobody more is evicted for a request that is nominated and fits when those who leave are gone. Between the slices
    trials are open: nobody else may use these books before the end.

    Raises:
        Conflict: the request is placed.

    """
    if request.uid in context.fleet.ledger:
        raise Conflict(f"{request.uid} holds cards already; nobody gives way to it", code="already-bound")
    without = place_or_wait(context.fleet, context.rules, request, context.nominations)
    if isinstance(without, Choice):
        return Preemption(without)
    if isinstance(without, NoPreemption):
        return without
    with context.reserving(request):
        search = VictimSearch(context, request)
        best, attempts = (yield from _attempts(search)) if without.curable else (None, ())
        if best is None:
            return _nobody_helps(without, attempts)
        return Preemption(search.place(best), best.victims, best.cost, attempts, without=without)


def _nobody_helps(refusal: Refusal, attempts: tuple[Attempt, ...]) -> NoPreemption:
    return NoPreemption(refusal.rejections, refusal.stages, refusal.helps, attempts)


def _attempts(search: VictimSearch) -> Slices[tuple[Attempt | None, tuple[Attempt, ...]]]:
    """Find the cheapest way, if there is one, and what comes of each node that has enough cards of the right kind."""
    attempts: list[Attempt] = []
    best: Attempt | None = None
    for row, eligible, shielded in (yield from _rows(search)):
        yield
        if not eligible:
            node = search.fleet.nodes[row].name
            refused = Refusal((Rejection(Code.NO_VICTIMS, Cure.CAPACITY, 1, 0, node=node),))
            attempts.append(Attempt(node, 0, shielded, refusal=refused))
            continue
        attempt = search.among(row, eligible, shielded, _highest(best))
        attempts.append(attempt)
        if attempt.cost is not None and (best is None or best.cost is None or attempt.cost < best.cost):
            best = attempt
    return best, tuple(sorted(attempts, key=attrgetter("node")))


def _highest(best: Attempt | None) -> int | None:
    """Return the highest priority of a set that can cost less than the best so far; None for any."""
    return None if best is None or best.cost is None or best.cost.violations else best.cost.highest


def _rows(search: VictimSearch) -> Slices[list[tuple[int, list[Allocation], dict[Shield, int]]]]:
    """Find the nodes worth a try with those who may go and those who may not, promising ones first."""
    fleet, asked = search.fleet, search.request.requirement
    on_row: dict[int, list[Allocation]] = {}
    for allocation in fleet.ledger.values():
        row = fleet.row_of.get(allocation.node)
        if row is not None:
            on_row.setdefault(row, []).append(allocation)
    found, may_take = [], fleet.schedulable & fleet.exclusion.allowed(asked.nodes)
    for row in range(len(fleet.nodes)):
        if slice_begins(row, _NODES_AT_ONCE):
            yield
        able = (exclusion_of(fleet, card, asked) is None for card in fleet.cards_on(row))
        if may_take[row] and sum(able) >= asked.gpu_count:
            eligible, shielded = search.split(on_row.get(row, ()))
            highest = max((claim_of(each).priority for each in eligible), default=0)
            found.append((highest, row, eligible, shielded))
    found.sort(key=itemgetter(slice(2)))
    return [(row, eligible, shielded) for _, row, eligible, shielded in found]


def _waits(fleet: Fleet, rules: Rules, request: Request, nominations: Nominations) -> Rejection | None:
    """Return what a nominated request waits for: allocations leaving its node, if it fits without them; else None."""
    nomination = nominations.of(request.uid)
    row = None if nomination is None else fleet.row_of.get(nomination.node)
    if row is None:
        return None
    node = fleet.nodes[row].name
    leaving = sum(fleet.ledger[uid].node == node for uid in fleet.leaving)
    if not leaving or choice_after(fleet, rules, request, row, nominations=nominations) is None:
        return None
    return Rejection(Code.EVICTING, Cure.CAPACITY, leaving, 0, node=node)


def _free(fleet: Fleet, card: int) -> tuple[int, int]:
    return fleet.compute_free.item(card), fleet.vram_free.item(card)


def _row(fleet: Fleet, node: str) -> int:
    row = fleet.row_of.get(node)
    if row is None:
        raise NotFound(f"node {node} is not known", code="node-unknown", field="nodes")
    return row


def _named(fleet: Fleet, uids: Sequence[str]) -> list[Allocation]:
    """Return the allocations of these uids, each once."""
    for uid in uids:
        known = fleet.ledger.get(uid)
        if known is None:
            raise NotFound(f"victim {uid} is not in the ledger", field="victims")
        missing = [uuid for uuid in known.gpus if uuid not in fleet.card_of]
        if missing:
            raise NotFound(f"card {missing[0]} of victim {uid} is not known", code="unknown-gpu", field="victims")
    return [fleet.ledger[uid] for uid in dict.fromkeys(uids)]
