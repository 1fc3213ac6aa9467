"""The allocator: requests for cards, from the first look to the last card given back.

Usable on its own, without a server: it keeps the books of one fleet, changes them all at once or not at
all, and does no I/O. Identity is the request's uid; a repeated operation is answered, not repeated. What
capacity, quotas or rules refuse is a `Refusal`; malformed input, unknown names and wrong states raise.
Times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ullage.core.books.departed import HISTORY
from ullage.core.books.fleet import Column, Fleet
from ullage.core.books.slices import Slices, at_once
from ullage.core.books.trial import trial
from ullage.core.evicting.consolidation import check_consolidation, consolidating
from ullage.core.evicting.gang_eviction import preempt_together
from ullage.core.evicting.moves import Consolidation, MoveQuestion, NoConsolidation
from ullage.core.evicting.preemption import (
    NoPreemption,
    Preemption,
    PreemptionAnswer,
    Released,
    check_nodes_preempt,
    check_single_node_preempt,
    filter_with_preempt,
    place_or_wait,
    preempting,
)
from ullage.core.evicting.victims import NO_BUDGETS, Budgets, EvictionContext, budgets_of
from ullage.core.holdings import Holdings
from ullage.core.learning.learned import Learning
from ullage.core.placing.adjust import Adjustment, AmountsChange, change_of
from ullage.core.placing.candidates import find, refusals_on
from ullage.core.placing.decision import Candidates, Choice, Decision, Refusal, Scores
from ullage.core.placing.draft import by_size
from ullage.core.placing.nomination import Ahead
from ullage.core.placing.offers import Offers, offers
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import Taken, held_place, place, placement_of, score, select, take, terms
from ullage.core.placing.uneven import NO_AMOUNTS, uneven
from ullage.core.verdict.cards import charges_on
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Request
from ullage.model.error import Conflict, NotFound, Unavailable, invalid


class FleetAllocator(Holdings):
    """Operations on one fleet; `learning` counts each uid that asks, once, for the strategy `leftover`."""

    def __init__(self, fleet: Fleet, rules: Rules | None = None, learning: Learning | None = None) -> None:
        super().__init__(fleet, learning)
        self.rules = rules or Rules()
        self._ready = False
        self._seen: OrderedDict[str, None] = OrderedDict()

    # --- readiness ---

    @property
    def is_ready(self) -> bool:
        """Whether it may decide: inventory, quotas and the ledger are loaded."""
        return self._ready

    def set_ready(self, ready: bool = True) -> None:
        """Open or close the gate; saying it twice is harmless."""
        self._ready = ready

    def _require_ready(self) -> None:
        if not self._ready:
            raise Unavailable("the allocator is not ready: its inventory or ledger is not loaded yet", code="not-ready")

    def _check_request(self, request: Request) -> None:
        self._require_ready()
        self.check_names(request)

    # --- what arrives ---

    def see(self, request: Request) -> None:
        """Count a request that arrived, placed or not; a repeated request counts once.

        Whatever places or reserves does so by itself.
        """
        if request.uid not in self._seen:
            self._seen[request.uid] = None
            if len(self._seen) > HISTORY:
                self._seen.popitem(last=False)
            self.learning.see(request.requirement)

    def check_names(self, request: Request) -> None:
        """Refuse a request that names what there is not, or has a limit below what it asks.

        Raises:
            InvalidRequest: its strategy or its limit. NotFound: its pool.

        """
        request.check()
        self.rules.strategy_of(request)
        pool = request.requirement.cards.pool
        if pool is not None and not self.rules.any_pool and pool not in self.pools:
            known = ", ".join(sorted(self.pools)) or "none"
            raise NotFound(f"pool {pool!r} is not known; known are {known}", code="unknown-pool", field="pool")

    @property
    def pools(self) -> frozenset[str]:
        """Pools that cards are in, and those that have a strategy."""
        return self._card_pools | frozenset(self.rules.strategies)

    # --- looks ---

    def check_quota_and_filter(self, request: Request) -> Candidates | Refusal:
        """Return the cards per node that would do, with what is reserved charged, or why none would.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        self._require_ready()
        request.requirement.check_not_empty()
        self.check_names(request)
        found = find(self.fleet, self.rules, request, ahead=self._ahead(request))
        return found if found.by_node else found.refusal

    def filter(self, request: Request, gpus: Sequence[str]) -> Candidates:
        """Return the cards among these that fit, with what each stage removed. Change nothing.

        Raises:
            NotFound: a card is unknown.

        """
        return find(self.fleet, self.rules, request, self._cards(gpus))

    def score(self, request: Request, candidates: Candidates) -> Scores:
        """Scores of candidate nodes and cards."""
        return score(self.fleet, self.rules, request, candidates.by_node)

    def select(self, request: Request, candidates: Candidates) -> Choice | Refusal:
        """Return the best node and its best cards."""
        return select(self.fleet, self.rules, request, candidates.by_node)

    def offers(self, request: Request, rows: Column | None = None) -> Offers:
        """Return what nodes, by their rows in the books, offer a request that is not placed. Change nothing.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        self._check_request(request)
        return offers(self.fleet, self.rules, request, rows, nominations=self.nominations)

    def simulate(self, request: Request) -> Decision:
        """Return what `alloc` would do now, with every step. Change and count nothing.

        A uid that holds cards is answered with them, without any step.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known. Conflict: the uid is an executor's.

        """
        self._require_ready()
        known = self.held(request.uid)
        if known is not None:
            there = Candidates({known.node: known.gpus}, ())
            return Decision(there, Scores({}, {}), Choice(known.node, known.gpus, known.charges))
        request.requirement.check_not_empty()
        self.check_names(request)
        ahead = self._ahead(request)
        candidates = find(self.fleet, self.rules, request, ahead=ahead)
        with reserving(self.fleet, ahead):
            scores = self.score(request, candidates)
        if not candidates.by_node:
            return Decision(candidates, scores, candidates.refusal)
        outcome = self._choose(request)
        if isinstance(outcome, Refusal):
            return Decision(candidates, scores, outcome)
        with reserving(self.fleet, ahead):
            return Decision(candidates, scores, outcome, terms(self.fleet, self.rules, request, outcome.node))

    # --- eviction ---

    def filter_with_preempt(
        self, request: Request, victims: Sequence[str], nodes: Sequence[str] | None = None
    ) -> Released | Refusal:
        """Return the cards of the victims' nodes, or of the named ones, that would fit without the victims.

        Raises:
            Unavailable: not ready. NotFound: a victim, its card, a node, or the pool is not known.

        """
        self._check_request(request)
        return filter_with_preempt(self.fleet, self.rules, request, victims, nodes=nodes)

    def check_single_node_preempt(
        self,
        request: Request,
        node: str,
        victims: Sequence[str],
        now: float,
        budgets: Budgets = NO_BUDGETS,
    ) -> Preemption | NoPreemption:
        """Return which of the victims must leave the node so that the request fits, if they may be evicted.

        Raises:
            Unavailable: not ready.
            NotFound: a victim, the node or the pool is not known.
            InvalidRequest: a victim is on another node.

        """
        self._check_request(request)
        context = EvictionContext(self.fleet, self.rules, now, budgets, nominations=self.nominations)
        return check_single_node_preempt(context, request, node, victims)

    def check_nodes_preempt(
        self, request: Request, candidates: Mapping[str, Sequence[str]], now: float, budgets: Budgets = NO_BUDGETS
    ) -> dict[str, Preemption]:
        """Return per node who must leave so that the request fits: of those named if they suffice, else of all there.

        Those who leave anyway count as gone; nodes that are not known, or where nobody helps, are left out.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        self._check_request(request)
        context = EvictionContext(self.fleet, self.rules, now, budgets, nominations=self.nominations)
        return check_nodes_preempt(context, request, candidates)

    def preempt_gang(self, requests: Sequence[Request], now: float, budgets: Budgets) -> dict[str, Preemption]:
        """Return the places of all these requests, by uid, with who must leave; nothing if that does not suffice.

        Those who leave anyway count as gone. Raises as `check_nodes_preempt`.
        """
        for request in requests:
            self._check_request(request)
        context = EvictionContext(self.fleet, self.rules, now, budgets, nominations=self.nominations)
        with trial(self.fleet):
            for uid in sorted(self.fleet.leaving):
                self.fleet.release(uid)
            found = preempt_together(context, by_size(self.fleet, requests))
        return found if isinstance(found, dict) else {}

    def preempt(self, request: Request, now: float, budgets: Budgets = NO_BUDGETS) -> Preemption | NoPreemption:
        """Return the victims without which the request fits. Change nothing: the caller evicts them.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known. Conflict: the request is placed.

        """
        return at_once(self.preempting(self.fleet, request, now, budgets))

    def preempting(self, books: Fleet, request: Request, now: float, budgets: Budgets) -> Slices[PreemptionAnswer]:
        """Do the same as `preempt` in slices, on a copy of the books."""
        self._check_request(request)
        context = EvictionContext(books, self.rules, now, budgets, nominations=self.nominations)
        return preempting(context, request)

    def place_or_wait(self, request: Request) -> Choice | NoPreemption | Refusal:
        """Return what `preempt` decides before it searches; raise as it does. Victims may cure any other refusal."""
        self._check_request(request)
        return place_or_wait(self.fleet, self.rules, request, self.nominations)

    def consolidate(self, request: Request, units: int, now: float) -> Consolidation | NoConsolidation:
        """Return the moves that make room for so many such requests; raise as `move_question`. Change nothing."""
        return at_once(consolidating(self.fleet, self.rules, self.move_question(request, units, now)))

    def move_question(self, request: Request, units: int, now: float, up_to: int | None = None) -> MoveQuestion:
        """Return the question that `consolidating` answers; nobody above the priority `up_to` moves.

        Raises: Unavailable: not ready. NotFound: the pool is not known. InvalidRequest: as `consolidating`.
        """
        self._check_request(request)
        check_consolidation(request, units)
        budgets, kept_for = budgets_of(self.fleet, self.rules.min_available), self.nominations.without(request.uid)
        return MoveQuestion(request, units, now, up_to, budgets=budgets, nominations=kept_for)

    # --- decisions ---

    def alloc(self, request: Request, now: float) -> Allocation | Refusal:
        """Place a request and bind it; the recorded allocation if the uid has one.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        self._require_ready()
        known = self.held(request.uid)
        if known is not None:
            return known
        request.requirement.check_not_empty()
        if request.requirement.cards.pool is not None or request.strategy is not None:
            self.check_names(request)
        else:
            request.check()
        placed = self._place(request, now)
        self.see(request)  # afterwards: what `simulate` said of it holds
        return placed

    def assume(self, request: Request, gpus: Sequence[str], now: float) -> Allocation | Refusal:
        """Reserve these cards for a request, until `commit` or `forget`.

        Raises:
            InvalidRequest: the cards are not as many as asked, repeated, or not on one node. NotFound: a
            card is unknown. Conflict: the uid holds other cards. Unavailable: not ready.

        """
        self._require_ready()
        request.requirement.check_not_empty()
        self.check_names(request)
        cards = self._check_cards(request, gpus)
        known = self.held(request.uid)
        if known is not None:
            if set(known.gpus) == set(gpus):
                return known
            code = "already-assumed" if known.state is AllocationState.ASSUMED else "already-bound"
            raise Conflict(f"{request.uid} holds {', '.join(known.gpus)}; release it first", code=code)
        self.see(request)
        ahead = self._ahead(request)
        against = refusals_on(self.fleet, self.rules, request, cards, ahead=ahead)
        if against:
            return Refusal(against)
        node = self.fleet.nodes[self.fleet.card_row.item(next(iter(cards)))].name
        with reserving(self.fleet, ahead):
            choice = Choice(node, self.fleet.uuids(cards), charges_on(self.fleet, cards, request.requirement))
        return self._enter(self._allocation(request, choice, now))

    def choose_on(self, request: Request, node: str) -> Choice | Refusal:
        """Return the cards that a request would get on a node. Change nothing.

        Raises:
            NotFound: the node or the pool is not known. Unavailable: not ready.

        """
        self._check_request(request)
        row = self.fleet.row_of.get(node)
        if row is None:
            raise NotFound(f"node {node} is not known", code="unknown-node", field="node")
        held = held_place(self.fleet, self.rules, request, self.nominations)
        if held is not None and held.node == node:
            return held
        ahead = self.nominations.before(self.fleet, request, (node,))
        return place(self.fleet, self.rules, request, rows=np.array([row]), ahead=ahead)

    def assume_on(self, request: Request, node: str, now: float) -> Allocation | Refusal:
        """Reserve the best cards of a node for a request, until `commit` or `forget`; a repeat has the same.

        Raises:
            NotFound, Unavailable: as `choose_on`. Conflict: the uid holds cards of another node, or is an executor's.

        """
        known = self.held(request.uid)
        if known is not None and known.node != node:
            raise Conflict(f"{request.uid} has its place on {known.node}; release it first", code="already-bound")
        if known is not None:
            return known
        choice = self.choose_on(request, node)
        return choice if isinstance(choice, Refusal) else self.take(request, choice, now, AllocationState.ASSUMED)

    def bind(self, request: Request, gpus: Sequence[str], now: float) -> Allocation | Refusal:
        """`assume` and `commit` in one step: all of it, or nothing. It raises what `assume` raises."""
        assumed = self.assume(request, gpus, now)
        return assumed if isinstance(assumed, Refusal) else self.commit(request.uid, now)

    def take(self, request: Request, choice: Choice, now: float, state: AllocationState) -> Allocation:
        """Enter what was chosen for a request on the books as they are: it is not judged again."""
        self.see(request)
        return self._enter(self._allocation(request, choice, now, state))

    # --- changes ---

    def adjust(self, uid: str, change: AmountsChange, *, dry_run: bool = False) -> Adjustment | Refusal:
        """Change what a bound allocation takes of each of its cards, all of them or none.

        Raises:
            Conflict: the uid is not bound.
            InvalidRequest: the new request has no amount.

        """
        known = self.held(uid)
        if known is None or known.state is not AllocationState.BOUND:
            raise Conflict(f"{uid} is not bound; only a bound allocation can be adjusted", code="not-allocated")
        assert known.claim is not None
        replace(known.requirement, part=change.request).check_not_empty("request", "free its cards")
        asker = Request(uid, known.requirement, known.claim)
        with reserving(self.fleet, self._ahead(asker)):
            outcome = change_of(self.fleet, self.rules, known, change)
        if isinstance(outcome, Adjustment) and not dry_run:
            self._enter(outcome.allocation)
        return outcome

    def charge_unevenly(
        self, uid: str, vram: Mapping[str, int], compute_ppm: Mapping[str, int] = NO_AMOUNTS
    ) -> Allocation | Refusal:
        """Have a reservation take these amounts of each card that is named, all of them or none.

        `vram` is in bytes. `compute_ppm` is in millionths of the card, and at most what is reserved of it.

        Raises:
            Conflict: the uid is not assumed.

        """
        known = self.held(uid)
        if known is None or known.state is not AllocationState.ASSUMED:
            raise Conflict(f"{uid} is not assumed; assume cards for it first", code="not-assumed")
        assert known.claim is not None
        asker = Request(uid, known.requirement, known.claim)
        with reserving(self.fleet, self._ahead(asker)):
            found = uneven(self.fleet, self.rules, known, vram, compute_ppm=compute_ppm)
        return found if isinstance(found, Refusal) else self._enter(found)

    def set_workers_per_node(self, most: int) -> None:
        """Allocations a node may have, 0 for any number; nobody is evicted.

        Raises:
            InvalidRequest: it is negative.

        """
        if most < 0:
            raise invalid("workers_per_node", most, "0 (no cap) or more is needed")
        self.rules = replace(self.rules, workers_per_node=most)

    # --- steps ---

    def _place(self, request: Request, now: float) -> Allocation | Refusal:
        taken = None if self.nominations else take(self.fleet, self.rules, request)
        if taken is not None:
            return self._enter_taken(request, taken, now)
        choice = self._choose(request)
        if isinstance(choice, Refusal):
            return choice
        allocation = self._allocation(request, choice, now, AllocationState.BOUND)
        self.withdraw(request.uid)
        self.fleet.charge(allocation, force=True, cards=choice.cards)
        return self._changed(allocation)

    def _choose(self, request: Request) -> Choice | Refusal:
        """Return the place that is reserved for the request, or the best one."""
        held = held_place(self.fleet, self.rules, request, self.nominations)
        return held or place(self.fleet, self.rules, request, ahead=self._ahead(request))

    def _ahead(self, request: Request) -> list[Ahead]:
        """Return those whose reserved room this request leaves alone."""
        return self.nominations.before(self.fleet, request)

    def _allocation(
        self, request: Request, choice: Choice, now: float, state: AllocationState = AllocationState.ASSUMED
    ) -> Allocation:
        claim = request.claim
        if self.nominations.owed((request.uid,)):
            claim = claim.protected(now + self.rules.protected_s)
        return Allocation(
            request.uid,
            choice.node,
            request.requirement,
            choice.gpus,
            state=state,
            charges=choice.charges,
            claim=claim,
            assumed_at=now,
            bound_at=now if state is AllocationState.BOUND else None,
            cards=self.fleet.gpus(choice.gpus) if choice.cards is None else self.fleet.at(choice.cards),
            placement=placement_of(self.fleet, request.requirement, choice),
        )

    def _enter_taken(self, request: Request, taken: Taken, now: float) -> Allocation:
        row, cards, charges, placement, case = taken
        gpus = self.fleet.at(cards)
        allocation = Allocation(
            request.uid,
            self.fleet.nodes[row].name,
            request.requirement,
            tuple([gpu.uuid for gpu in gpus]),
            state=AllocationState.BOUND,
            charges=charges,
            claim=request.claim,
            assumed_at=now,
            bound_at=now,
            cards=gpus,
            placement=placement,
        )
        self.fleet.enter(allocation, row, cards, case.usage_of(allocation, cards))
        return self._changed(allocation)

    def _check_cards(self, request: Request, gpus: Sequence[str]) -> list[int]:
        cards, count = self._cards(gpus), request.requirement.gpu_count
        if len(set(cards)) != len(cards) or len(cards) != count:
            raise invalid("gpus", list(gpus), f"name {count} different cards, as many as are asked")
        if len({int(self.fleet.card_row[card]) for card in cards}) != 1:
            raise invalid("gpus", list(gpus), "name cards of one node")
        pool = request.requirement.cards.pool
        if pool is not None and any(self.fleet.cards[card].pool != pool for card in cards):
            raise invalid("gpus", list(gpus), f"name cards of pool {pool}")
        return cards
