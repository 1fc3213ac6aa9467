"""Finds the victims for a request that has no room. Nothing changes in the books.

All victims are on one node: that with the cheapest set (`Cost`). `core/evicting/attempt.py` searches one node. Every
trial is rolled back. Times are seconds of the clock of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.books.slices import Slices, at_once
from ullage.core.books.trial import trial
from ullage.core.evicting.attempt import (
    Attempt,
    EvictionContext,
    attempt_on,
    choice_of,
    eligible_of,
    find_open,
    lock_stays,
    refusal_of,
)
from ullage.core.evicting.victims import NO_BUDGETS, Budgets, Cost, Shield, claim_of, cost_of, victim_of
from ullage.core.placing.decision import Candidates, Choice, Refusal
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
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

# --- values ---


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
        return Nomination(request, choice.node, now, choice.gpus, choice.charges, self.victims, owed=owed)


@dataclass(frozen=True, slots=True)
class NoPreemption(Refusal):
    """Why the request does not fit, and the attempts to make room on the nodes, by name."""

    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class Released(Candidates):
    """Candidates with victims gone, and what each would have free then: (compute, vram), units of the card."""

    free: dict[str, tuple[int, int]] = field(default_factory=dict)


# --- with victims that somebody else chose ---


PreemptionAnswer = Preemption | NoPreemption


def filter_with_preempt(
    fleet: Fleet, rules: Rules, request: Request, victims: Sequence[str], nodes: Sequence[str] | None = None
) -> Released | Refusal:
    """Cards of the victims' nodes, or of the named ones, that would do if the victims were gone. Asks no quota.

    Raises:
        NotFound: a victim, its card, or a node is unknown.

    """
    gone = _named(fleet, victims)
    rows = {_row(fleet, name) for name in (nodes or [allocation.node for allocation in gone])}
    if not rows:
        return Refusal((Rejection(Code.NO_AFFECTED_NODE, Cure.OWNER),))
    cards = [card for row in sorted(rows) for card in fleet.cards_on(row)]
    open_cards, lock = lock_stays(fleet, request, cards)
    with trial(fleet):
        for allocation in gone:
            fleet.release(allocation.id)
        found = find_open(fleet, replace(rules, quotas=Quotas()), request, open_cards, lock)
        if not found.by_node:
            return refusal_of(found)
        held = [fleet.card_of[uuid] for uuids in found.by_node.values() for uuid in uuids]
        free = {fleet.cards[card].uuid: _free(fleet, card) for card in held}
        return Released(found.by_node, found.stages, free=free)


def check_single_node_preempt(
    fleet: Fleet,
    rules: Rules,
    request: Request,
    node: str,
    victims: Sequence[str],
    now: float,
    budgets: Budgets = NO_BUDGETS,
    nominations: Nominations = NO_NOMINATIONS,
) -> Preemption | NoPreemption:
    """Return whether the request fits on a node without the evictable ones of these victims, and who must leave.

    Raises:
        NotFound: a victim or the node is unknown. InvalidRequest: a victim is on another node.

    """
    named, row = _named(fleet, victims), _row(fleet, node)
    for victim in named:
        if victim.node != node:
            raise invalid("victims", victim.id, f"name workers of node {node}; this one is on {victim.node}")
    with reserving(fleet, nominations.before(fleet, request)):
        context = EvictionContext.of(fleet, rules, request, now, budgets)
        attempt = attempt_on(context, row, *eligible_of(context, named))
        if attempt.refusal is not None:
            return _nobody_helps(attempt.refusal, (attempt,))
        return Preemption(choice_of(context, attempt), attempt.victims, attempt.cost, (attempt,))


def check_nodes_preempt(
    fleet: Fleet,
    rules: Rules,
    request: Request,
    candidates: Mapping[str, Sequence[str]],
    now: float,
    budgets: Budgets = NO_BUDGETS,
    nominations: Nominations = NO_NOMINATIONS,
) -> dict[str, Preemption]:
    """Per node who must go, of those named there if that is enough, else all of these and as few others as possible.

    Those named go in any case, so others are looked for as if the named had gone. Those who leave a node anyway count
    as gone. Nodes that are not known, or where nobody helps, are left out.
    """
    rows = {node: row for node in candidates if (row := fleet.row_of.get(node)) is not None}
    found: dict[str, Preemption] = {}
    with trial(fleet):
        for row in rows.values():
            release_terminating(fleet, row)
        holders = {node: fleet.card_holders(fleet.cards_on(row)) for node, row in rows.items()}
        with reserving(fleet, nominations.before(fleet, request)):
            context = EvictionContext.of(fleet, rules, request, now, budgets)
            for node, row in rows.items():
                there = [fleet.ledger[uid] for uid in holders[node]]
                first = frozenset(candidates[node])
                named = [each for each in there if each.id in first]
                attempt = attempt_on(context, row, *eligible_of(context, named)) if named else None
                if attempt is None or attempt.refusal is not None:
                    attempt = _with_others(context, row, named, [each for each in there if each.id not in first])
                if attempt.refusal is None:
                    choice = choice_of(context, attempt)
                    found[node] = Preemption(choice, attempt.victims, attempt.cost, (attempt,))
    return found


def _with_others(
    context: EvictionContext, row: int, named: Sequence[Allocation], others: Sequence[Allocation]
) -> Attempt:
    """Return the result on a node if the named ones leave, and as few others as possible."""
    fleet = context.fleet
    given, _ = eligible_of(context, named)
    if not given:
        return attempt_on(context, row, *eligible_of(context, others))
    with trial(fleet):
        for each in given:
            fleet.release(each.id)
        after = EvictionContext.of(fleet, context.rules, context.request, context.now, context.budgets)
        attempt = attempt_on(after, row, *eligible_of(after, others))
    if attempt.refusal is not None:
        return attempt
    goes_anyway = Rejection(Code.NO_VICTIMS, Cure.CAPACITY, node=attempt.node)
    victims = (*(victim_of(fleet, each, goes_anyway) for each in given), *attempt.victims)
    gone = [fleet.ledger[victim.uid] for victim in victims]
    return replace(attempt, victims=victims, cost=cost_of(context.budgets, context.now, attempt.node, gone))


def fits_after(fleet: Fleet, rules: Rules, request: Request, row: int, nominations: Nominations) -> int:
    """Return how many allocations are leaving a node, if the request fits there without them; else 0."""
    with trial(fleet):
        leaving = release_terminating(fleet, row)
        with reserving(fleet, nominations.before(fleet, request)):
            fits = leaving and choose(fleet, rules, request, np.array([row])) is not None
    return leaving if fits else 0


def choice_after(fleet: Fleet, rules: Rules, request: Request, row: int, nominations: Nominations) -> Choice | None:
    """Return the cards of a node that a request gets once leaving allocations are gone; None if it does not fit."""
    with trial(fleet):
        release_terminating(fleet, row)
        with reserving(fleet, nominations.before(fleet, request)):
            return choose(fleet, rules, request, np.array([row]))


# --- over all nodes ---


def preempt(
    fleet: Fleet,
    rules: Rules,
    request: Request,
    now: float,
    budgets: Budgets = NO_BUDGETS,
    nominations: Nominations = NO_NOMINATIONS,
) -> Preemption | NoPreemption:
    """Return the answer of `preempting` at once; raises as it."""
    return at_once(preempting(fleet, rules, request, now, budgets=budgets, nominations=nominations))


def place_or_wait(
    fleet: Fleet, rules: Rules, request: Request, nominations: Nominations
) -> Choice | NoPreemption | Refusal:
    """Return the cards of a request that fits as it is, what a nominated one waits for, or why it does not fit."""
    without = place(fleet, rules, request, ahead=nominations.before(fleet, request))
    if isinstance(without, Choice):
        return without
    waits = _waits(fleet, rules, request, nominations)
    return without if waits is None else NoPreemption((waits,), without.stages, without.helps)


def preempting(
    fleet: Fleet,
    rules: Rules,
    request: Request,
    now: float,
    budgets: Budgets = NO_BUDGETS,
    nominations: Nominations = NO_NOMINATIONS,
) -> Slices[PreemptionAnswer]:
    """Find the cheapest victims on one node that make the request fit, none if it fits as it is; or why nobody helps.

    Nobody more is evicted for a request that is nominated and fits when those who leave are gone. Between the slices
    trials are open: nobody else may use these books before the end.

    Raises:
        Conflict: the request is placed.

    """
    if request.uid in fleet.ledger:
        raise Conflict(f"{request.uid} holds cards already; nobody gives way to it", code="already-bound")
    without = place_or_wait(fleet, rules, request, nominations)
    if isinstance(without, Choice):
        return Preemption(without)
    if isinstance(without, NoPreemption):
        return without
    with reserving(fleet, nominations.before(fleet, request)):
        context = EvictionContext.of(fleet, rules, request, now, budgets)
        best, attempts = (yield from _attempts(context)) if without.curable else (None, ())
        if best is None:
            return _nobody_helps(without, attempts)
        return Preemption(choice_of(context, best), best.victims, best.cost, attempts, without)


def _nobody_helps(refusal: Refusal, attempts: tuple[Attempt, ...]) -> NoPreemption:
    return NoPreemption(refusal.rejections, refusal.stages, refusal.helps, attempts)


# --- steps ---


def _attempts(context: EvictionContext) -> Slices[tuple[Attempt | None, tuple[Attempt, ...]]]:
    """Find the cheapest way, if there is one, and what comes of each node that has enough cards of the right kind."""
    attempts: list[Attempt] = []
    best: Attempt | None = None
    for row, eligible, shielded in (yield from _rows(context)):
        yield
        if not eligible:
            attempts.append(_nobody(context.fleet.nodes[row].name, shielded))
            continue
        attempt = attempt_on(context, row, eligible, shielded, _up_to(best))
        attempts.append(attempt)
        if attempt.cost is not None and (best is None or best.cost is None or attempt.cost < best.cost):
            best = attempt
    return best, tuple(sorted(attempts, key=lambda attempt: attempt.node))


def _up_to(best: Attempt | None) -> int | None:
    """Return the highest priority of a set that can cost less than the best so far; None for any."""
    return None if best is None or best.cost is None or best.cost.violations else best.cost.highest


def _rows(context: EvictionContext) -> Slices[list[tuple[int, list[Allocation], dict[Shield, int]]]]:
    """Find the nodes worth a try with those who may go and those who may not, promising ones first."""
    fleet, asked = context.fleet, context.request.requirement
    on_row: dict[int, list[Allocation]] = {}
    for allocation in fleet.ledger.values():
        row = fleet.row_of.get(allocation.node)
        if row is not None:
            on_row.setdefault(row, []).append(allocation)
    found = []
    for row, node in enumerate(fleet.nodes):
        if row % _NODES_AT_ONCE == 0:
            yield
        able = (exclusion_of(fleet, card, asked) is None for card in fleet.cards_on(row))
        if node.schedulable and sum(able) >= asked.gpu_count:
            found.append((row, *eligible_of(context, on_row.get(row, ()))))
    return sorted(found, key=lambda entry: (max((claim_of(a).priority for a in entry[1]), default=0), entry[0]))


def _nobody(node: str, shielded: dict[Shield, int]) -> Attempt:
    refused = Rejection(Code.NO_VICTIMS, Cure.CAPACITY, 1, 0, node)
    return Attempt(node, 0, shielded, refusal=Refusal((refused,)))


def _waits(fleet: Fleet, rules: Rules, request: Request, nominations: Nominations) -> Rejection | None:
    """Return what a nominated request waits for: allocations leaving its node, if it fits without them; else None."""
    nomination = nominations.of(request.uid)
    row = None if nomination is None else fleet.row_of.get(nomination.node)
    if row is None:
        return None
    leaving = fits_after(fleet, rules, request, row, nominations)
    return Rejection(Code.EVICTING, Cure.CAPACITY, leaving, 0, fleet.nodes[row].name) if leaving else None


def _free(fleet: Fleet, card: int) -> tuple[int, int]:
    return max(0, int(fleet.compute_free[card])), max(0, int(fleet.vram_free[card]))


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
