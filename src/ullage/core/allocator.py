"""The allocator: requests for cards, from the first look to the last card given back.

Usable on its own, without a server: it keeps the books of one fleet, changes them all at once or not at
all, and does no I/O. Identity is the request's uid; a repeated operation is answered, not repeated. What
capacity, quotas or rules refuse is a `Refusal`; malformed input, unknown names and wrong states raise.
Times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ullage.core.books.bind_handlers import BindHandlers, Handler
from ullage.core.books.capacity import CardRoom, limits_of, refuses_limit, room_of
from ullage.core.books.departed import HISTORY, Departed, Freed
from ullage.core.books.fleet import Column, Fleet, OtherUsage
from ullage.core.books.following import (
    as_they_are,
    contradiction,
    followed,
    found_mixed,
    remembering,
    still_mixed,
    with_missing,
)
from ullage.core.books.inventory_check import check_inventory
from ullage.core.books.observation import Observation, foreign_id, is_unconfirmed, observe
from ullage.core.books.places import check_places
from ullage.core.books.slices import Slices, at_once
from ullage.core.evicting.consolidation import check_consolidation, consolidating
from ullage.core.evicting.moving import Consolidation, MoveQuestion, NoConsolidation
from ullage.core.evicting.preemption import (
    NoPreemption,
    Preemption,
    PreemptionAnswer,
    Released,
    check_nodes_preempt,
    check_single_node_preempt,
    filter_with_preempt,
    preempting,
)
from ullage.core.evicting.victims import NO_BUDGETS, Budgets, budgets_of
from ullage.core.learning.learned import Learning
from ullage.core.placing.adjust import Adjustment, Change, change_of
from ullage.core.placing.candidates import find, refusals_on
from ullage.core.placing.decision import Candidates, Choice, Refusal, Scores
from ullage.core.placing.nomination import NO_NOMINATIONS, Ahead, Promised
from ullage.core.placing.offers import Offers, offers
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import Taken, held_place, place, placement_of, score, select, take, terms
from ullage.core.placing.uneven import NO_AMOUNTS, uneven
from ullage.core.verdict.filters import charges_on
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Request
from ullage.model.error import Conflict, NotFound, Unavailable, invalid
from ullage.model.holding import Use
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.rejection import Rejection

ASSUMED_TTL_S = 1800.0
"""How long an allocation may stay assumed before it is swept."""


@dataclass(frozen=True, slots=True)
class Decision:
    """All that `simulate` knows: candidates with their stages, scores, and the choice or the refusal.

    `terms` are what the strategy's decision for the chosen node is made of, where that is more than its score.
    """

    candidates: Candidates
    scores: Scores
    outcome: Choice | Refusal
    terms: Mapping[str, float] = field(default_factory=dict)


class Allocator:
    """Operations on one fleet; `learning` counts each uid that asks, once, for the strategy `leftover`."""

    def __init__(self, fleet: Fleet, rules: Rules | None = None, learning: Learning | None = None) -> None:
        self.learning = learning or Learning()
        self._adopt(fleet)
        self.rules = rules or Rules()
        self.nominations = NO_NOMINATIONS
        self.version = 0
        self._ready = False
        self._dirty: set[str] = set()
        self._departed = Departed()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._handlers = BindHandlers()
        self._observed_at: dict[str, float] = {}

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
        """Count a request that arrived, placed or not; whoever asks again and again arrived once.

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

    # --- looks ---

    def check_quota_and_filter(self, request: Request) -> Candidates | Refusal:
        """Return the cards per node that would do, with what is reserved charged, or why none would.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        self._require_ready()
        request.requirement.check_asks()
        self.check_names(request)
        found = find(self.fleet, self.rules, request, ahead=self._ahead(request))
        return found if found.by_node else found.refusal

    def filter(self, request: Request, gpus: Sequence[str]) -> Candidates:
        """The cards among these that would do, with what each stage removed. Changes nothing.

        Raises:
            NotFound: a card is unknown.

        """
        return find(self.fleet, self.rules, request, self._cards(gpus))

    def score(self, request: Request, candidates: Candidates) -> Scores:
        """Scores of candidate nodes and cards."""
        return score(self.fleet, self.rules, request, candidates.by_node)

    def select(self, request: Request, candidates: Candidates) -> Choice | Refusal:
        """The best node and its best cards."""
        return select(self.fleet, self.rules, request, candidates.by_node)

    def offers(self, request: Request, rows: Column | None = None) -> Offers:
        """What nodes, by their rows in the books, offer a request that is not placed; nothing is changed.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        self._check_request(request)
        return offers(self.fleet, self.rules, request, rows, self.nominations)

    def simulate(self, request: Request) -> Decision:
        """What `alloc` would do now, with every step; nothing is changed and nothing is counted.

        A uid that holds cards is answered with them, without any step.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known. Conflict: the uid is an executor's.

        """
        self._require_ready()
        known = self.held(request.uid)
        if known is not None:
            there = Candidates({known.node: known.gpus}, ())
            return Decision(there, Scores({}, {}), Choice(known.node, known.gpus, known.charges))
        request.requirement.check_asks()
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

    # --- preemption ---

    def filter_with_preempt(
        self, request: Request, victims: Sequence[str], nodes: Sequence[str] | None = None
    ) -> Released | Refusal:
        """Cards of the victims' nodes, or of the named ones, that would do if the victims were gone.

        Raises:
            Unavailable: not ready. NotFound: a victim, its card, a node, or the pool is not known.

        """
        self._check_request(request)
        return filter_with_preempt(self.fleet, self.rules, request, victims, nodes)

    def check_single_node_preempt(
        self,
        request: Request,
        node: str,
        victims: Sequence[str],
        now: float,
        budgets: Budgets = NO_BUDGETS,
    ) -> Preemption | NoPreemption:
        """Whether the request fits on the node when those of the victims that may be evicted go; and who must.

        Raises:
            Unavailable: not ready. NotFound: a victim, the node or the pool is not known. InvalidRequest: a
            victim is on another node.

        """
        self._check_request(request)
        return check_single_node_preempt(self.fleet, self.rules, request, node, victims, now, budgets, self.nominations)

    def check_nodes_preempt(
        self, request: Request, candidates: Mapping[str, Sequence[str]], now: float, budgets: Budgets = NO_BUDGETS
    ) -> dict[str, Preemption]:
        """Per node who must go so that the request fits, of those named there if that is enough, else of all there.

        Those who leave anyway count as gone; nodes that are not known, or where nobody helps, are left out.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        self._check_request(request)
        return check_nodes_preempt(self.fleet, self.rules, request, candidates, now, budgets, self.nominations)

    def preempt(self, request: Request, now: float, budgets: Budgets = NO_BUDGETS) -> Preemption | NoPreemption:
        """Whom to evict so that the request fits. Changes nothing: evicting them is for whoever runs them.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known. Conflict: the request is placed.

        """
        return at_once(self.preempting(self.fleet, request, now, budgets))

    def preempting(self, books: Fleet, request: Request, now: float, budgets: Budgets) -> Slices[PreemptionAnswer]:
        """As `preempt`, in slices, on a copy of the books."""
        self._check_request(request)
        return preempting(books, self.rules, request, now, budgets, self.nominations)

    def consolidate(self, request: Request, units: int, now: float) -> Consolidation | NoConsolidation:
        """Whom to move so that so many like this request fit; raises as `move_question`. Changes nothing."""
        return at_once(consolidating(self.fleet, self.rules, self.move_question(request, units, now)))

    def move_question(self, request: Request, units: int, now: float, up_to: int | None = None) -> MoveQuestion:
        """What `consolidating` answers; none above the priority `up_to` moves.

        Raises: Unavailable: not ready. NotFound: the pool is not known. InvalidRequest: as `consolidating`.
        """
        self._check_request(request)
        check_consolidation(request, units)
        budgets, kept_for = budgets_of(self.fleet, self.rules.min_available), self.nominations.without(request.uid)
        return MoveQuestion(request, units, now, up_to, budgets=budgets, nominations=kept_for)

    def nominate(self, nomination: Nomination) -> None:
        """Keep room for a request, until it is placed or `withdraw` ends it; a second time replaces the first."""
        known = self.nominations.of(nomination.request.uid)
        self.nominations = self.nominations.with_(nomination)
        self.version += known is None or replace(known, since=nomination.since) != nomination

    def withdraw(self, uid: str) -> Nomination | None:
        """Keep no room for a request any more; what was kept, if there was anything."""
        known = self.nominations.of(uid) if self.nominations.entries else None
        if known is not None:
            self.nominations = self.nominations.without(uid)
            self.version += 1
        return known

    def promise_to_sessions(self, promised: tuple[Promised, ...]) -> None:
        """Keep these places from all requests, in place of those that were kept for sessions before."""
        if promised != self.nominations.sessions:
            self.nominations = replace(self.nominations, sessions=promised)
            self.version += 1

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
        request.requirement.check_asks()
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
        request.requirement.check_asks()
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
        against = refusals_on(self.fleet, self.rules, request, cards, ahead)
        if against:
            return Refusal(against)
        node = self.fleet.nodes[int(self.fleet.card_row[cards[0]])].name
        with reserving(self.fleet, ahead):
            choice = Choice(node, self.fleet.uuids(cards), charges_on(self.fleet, cards, request.requirement))
        return self._enter(self._allocation(request, choice, now))

    def choose_on(self, request: Request, node: str) -> Choice | Refusal:
        """The cards that a request would get on a node; changes nothing.

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
        return place(self.fleet, self.rules, request, rows=np.array([row]), ahead=self._ahead(request))

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

    def commit(self, uid: str, now: float) -> Allocation:
        """Make an assumed allocation bound; a bound one is answered as it is.

        Raises:
            Conflict: the uid is not assumed.

        """
        known = self.held(uid)
        if known is None or known.state is AllocationState.RELEASING:
            raise Conflict(f"{uid} is not assumed; assume cards for it first", code="not-assumed")
        if known.state is AllocationState.BOUND:
            return known
        return self._enter(replace(known, state=AllocationState.BOUND, bound_at=now))

    def bind(self, request: Request, gpus: Sequence[str], now: float) -> Allocation | Refusal:
        """`assume` and `commit` in one step: all of it, or nothing.

        Raises:
            As `assume`.

        """
        assumed = self.assume(request, gpus, now)
        return assumed if isinstance(assumed, Refusal) else self.commit(request.uid, now)

    def take(self, request: Request, choice: Choice, now: float, state: AllocationState) -> Allocation:
        """Enter what was chosen for a request on the books as they are: it is not judged again."""
        self.see(request)
        return self._enter(self._allocation(request, choice, now, state))

    # --- giving back ---

    def forget(self, uid: str, now: float) -> Allocation | None:
        """Undo an assumption, and keep no room; anything else is left as it is."""
        known = self.held(uid)
        self.withdraw(uid)
        return self._drop(uid, now) if known is not None and known.state is AllocationState.ASSUMED else None

    def rollback(self, uid: str, now: float) -> Allocation | None:
        """Undo a binding; anything else is left as it is."""
        known = self.held(uid)
        return self._drop(uid, now) if known is not None and known.state is AllocationState.BOUND else None

    def unreserve(self, uid: str, now: float) -> Allocation | None:
        """Undo whatever the uid holds, and keep no room for it."""
        known = self.held(uid)
        self.withdraw(uid)
        return None if known is None else self._drop(uid, now)

    def dealloc(self, uid: str, now: float, gpus: Sequence[str] | None = None) -> Freed:
        """Free all cards of an owner that is known to be gone, and keep no room for it; the ledger says which.

        Whoever moves keeps the place that is held for it.

        A given list is only compared: names that are not of the allocation are told, missing ones freed
        all the same. Never refuses; the second call says so. Whoever only waited for room frees no cards.
        """
        moves = self.nominations.moving(self.fleet, uid)
        known, waited = self._drop(uid, now), None if moves else self.withdraw(uid)
        if known is None and waited is not None:
            return Freed(uid)
        if known is None:
            return Freed(uid, already_gone=uid in self._departed, unknown=uid not in self._departed)
        held = set(known.gpus)
        named = held if gpus is None else set(gpus)
        return Freed(uid, known.gpus, not_held=tuple(sorted(named - held)), not_named=tuple(sorted(held - named)))

    def release(self, uid: str, by: float | None = None, now: float | None = None) -> Allocation | None:
        """Mark an allocation as releasing: still charged, until its owner is known to be gone.

        That may be the caller's word, given at `now`, for the time `by`; of several the earliest counts, so that a
        repeat puts nothing off.
        """
        known = self.held(uid)
        if known is not None:
            if by is None or (known.release_by is not None and known.release_by <= by):
                by, now = known.release_by, known.released_at
            self._enter(replace(known, state=AllocationState.RELEASING, release_by=by, released_at=now))
        return self.fleet.ledger.get(uid)

    def leave(self, executor: str) -> None:
        """What is no request's is known to be gone, such as an executor: what it held is free for requests too.

        Raises:
            NotFound: the ledger has no such id.

        """
        self._dirty.update(self.fleet.release(executor).gpus)
        self.version += 1

    def dealloc_by_pod(self, namespace: str, pod: str, now: float, pod_uid: str | None = None) -> tuple[Freed, ...]:
        """Free what a pod holds or is kept for it: that of `pod_uid`, or of every pod of that name."""
        for entry in self.nominations.entries:
            claim = entry.request.claim
            if (claim.namespace, claim.pod) == (namespace, pod) and pod_uid in (None, entry.request.uid, claim.pod_uid):
                self.withdraw(entry.request.uid)
        return tuple(
            self.dealloc(allocation.id, now)
            for allocation in self.of_pod(namespace, pod)
            if pod_uid is None or pod_uid in (allocation.id, allocation.claim.pod_uid if allocation.claim else "")
        )

    def sweep(
        self,
        now: float,
        alive: Callable[[Allocation], bool],
        waits: Callable[[str], bool],
        ttl_s: float = ASSUMED_TTL_S,
    ) -> tuple[str, ...]:
        """Free what nobody owns any more: bound ones that are not `alive`, assumptions older than `ttl_s`.

        An assumption that still `waits` for its gang has its time renewed.
        """
        swept: list[str] = []
        for uid, allocation in sorted(self.fleet.ledger.items()):
            if allocation.claim is None:
                continue
            if allocation.state is not AllocationState.ASSUMED:
                gone = not alive(allocation)
            elif waits(uid) or allocation.assumed_at is None:
                self._enter(replace(allocation, assumed_at=now))
                gone = False
            else:
                gone = allocation.assumed_at + ttl_s < now
            if gone:
                self._drop(uid, now)
                swept.append(uid)
        return tuple(swept)

    # --- scaling ---

    def adjust(self, uid: str, change: Change, *, dry_run: bool = False) -> Adjustment | Refusal:
        """Change what a bound allocation takes of each of its cards, all of them or none.

        Raises:
            Conflict: the uid is not bound.

        """
        known = self.held(uid)
        if known is None or known.state is not AllocationState.BOUND:
            raise Conflict(f"{uid} is not bound; only a bound allocation can be adjusted", code="not-allocated")
        assert known.claim is not None
        asker = Request(uid, known.requirement, known.claim)
        with reserving(self.fleet, self._ahead(asker)):
            outcome = change_of(self.fleet, self.rules, known, change)
            if not isinstance(outcome, Adjustment):
                return outcome
            promised = self._refuses_limits(known, outcome.allocation)
        if promised is not None:
            return Refusal((promised,))
        if not dry_run:
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
            found = uneven(self.fleet, self.rules, known, vram, compute_ppm)
        return found if isinstance(found, Refusal) else self._enter(found)

    # --- the ledger from outside ---

    def reconcile(self, found: Iterable[Allocation], now: float) -> tuple[str, ...]:
        """Make the ledger what was found, assumptions kept; the uids that differed. Twice is no difference.

        What is releasing stays so for as long as it is found, and what its node has shown stays as that is.

        Raises:
            NotFound: a node that is known does not have a card of an allocation. Conflict: an id is that of
                an executor, or two have the same place on a card. Nothing is changed then.

        """
        wanted = {allocation.id: self._found(allocation) for allocation in found}
        others = [known for uid, known in sorted(self.fleet.ledger.items()) if known.claim and uid not in wanted]
        kept = [known for known in others if known.state is AllocationState.ASSUMED]
        check_places(self.fleet.profiles, (*kept, *wanted.values()))
        changed: list[str] = []
        for known in others:
            if known.state is not AllocationState.ASSUMED:
                self._drop(known.id, now)
                changed.append(known.id)
        for uid, allocation in sorted(wanted.items()):
            if self.fleet.ledger.get(uid) != allocation:
                self._enter(allocation)
                changed.append(uid)
        self._mark_mixed(wanted)
        return tuple(sorted(changed))

    def observe(self, node: str, use: Use, now: float) -> Observation:
        """Enter what a node itself shows of who holds what there; it is right, see `core/books/observation.py`.

        Raises:
            NotFound: the node is not known.

        """
        if node not in self.fleet.row_of:
            raise NotFound(f"node {node!r} is not known", code="unknown-node", field="node")
        found = observe(self.fleet, self._departed, node, use, now)
        for held in found.changed:
            before = self.fleet.ledger.get(held.id)
            self._dirty.update(() if before is None else before.gpus)
            self._enter(held)
        self._mark_mixed(held.id for held in found.changed)
        if found.foreign is None and foreign_id(node) in self.fleet.ledger:
            self.leave(foreign_id(node))
        self._observed_at[node] = now
        return replace(found, changed=tuple(self.fleet.ledger[held.id] for held in found.changed))

    def set_other_usage(self, node: str, has: OtherUsage) -> None:
        """What others have of a node, see `Fleet.set_other_usage`."""
        before = self.fleet.other_usage.get(node, OtherUsage())
        self.fleet.set_other_usage(node, has)
        if any(now < then for now, then in zip(has, before, strict=True)):
            self.version += 1  # who found no room may find some

    def unconfirmed(self, now: float) -> tuple[Allocation, ...]:
        """Bound allocations by uid that their node, which shows what it has, has not shown in time."""
        return tuple(held for _, held in sorted(self.fleet.ledger.items()) if self.is_unconfirmed(held, now))

    def is_unconfirmed(self, held: Allocation, now: float) -> bool:
        """Whether this is one of them."""
        return is_unconfirmed(held, self._observed_at, now)

    def observed_at(self, node: str) -> float | None:
        """When a node last showed what it has; None: never."""
        return self._observed_at.get(node)

    def recall_departed(self, uids: Mapping[str, float]) -> None:
        """After a restart: whose cards were given back lately, each with when, in that order."""
        self._departed.recall(uids)

    def resume_observed(self, node: str, at: float) -> None:
        """After a restart: when a node last showed what it has."""
        self._observed_at[node] = at

    def adopt(self, *allocations: Allocation) -> dict[str, Conflict]:
        """Enter allocations that were found, whatever the books said of their uids; by uid what one contradicts.

        What is held is held: a place that was given twice has two holders, and is free when both are gone. A card of
        a known node that nobody reports is missing there, as one that vanished while it was held; of a node that is
        not known the holder follows its cards.

        Raises:
            Conflict: an id is that of an executor, or of what is foreign; nothing is changed then.

        """
        for allocation in allocations:
            self.held(allocation.id)
        at_home = [self._at_home(allocation) for allocation in allocations]
        if inventory := with_missing(self.fleet, at_home):
            self.set_nodes(inventory)
        entered = [self._enter(self._found(allocation)) for allocation in at_home]
        self._mark_mixed(held.id for held in entered)
        return {held.id: error for held in entered if (error := contradiction(self.fleet, held)) is not None}

    def _at_home(self, allocation: Allocation) -> Allocation:
        fleet = self.fleet
        home = next((fleet.card_row.item(fleet.card_of[uuid]) for uuid in allocation.gpus if uuid in fleet.card_of), -1)
        if allocation.node in fleet.row_of or home < 0:
            return allocation
        return replace(allocation, node=fleet.nodes[home].name, placement=None)

    def set_nodes(self, nodes: Iterable[Node]) -> tuple[Allocation, ...]:
        """New facts about machines and cards; free capacity is derived again, nobody is evicted.

        A card that vanished while it is held stays on its node as a missing one, and an allocation follows
        its cards to another node. Returns the allocations, but executors', that follow or whose cards changed.

        Raises:
            InvalidRequest: the nodes cannot be, see `check_inventory`; nothing is changed then.

        """
        told = tuple(nodes)
        check_inventory(told)
        inventory, ledger = followed(self.fleet, told)
        before, fleet = self.fleet.ledger, self.fleet.rebuilt(inventory, ledger)
        entered = [remembering(fleet, held) for held in ledger if not held.of_session]
        changed = [held for held in entered if (held, held.cards) != (before[held.id], before[held.id].cards)]
        for held in changed:
            fleet.replace(held)
        self._adopt(fleet)
        marked = self._mark_mixed(fleet.ledger)
        changed = [fleet.ledger[held.id] for held in changed]
        changed += [held for held in marked if not held.of_session and all(held.id != one.id for one in changed)]
        self._observed_at = {node: at for node, at in self._observed_at.items() if node in fleet.row_of}
        self._dirty.update(gpu.uuid for gpu in fleet.cards)
        self.version += 1
        return tuple(changed)

    # --- whoever mirrors the state ---

    def register_bind_handler(self, handler: Handler) -> Callable[[], None]:
        """Call `handler` once for each allocation that is durably bound; call the answer to stop."""
        return self._handlers.register(handler)

    def notify_bound(self, uid: str) -> tuple[BaseException, ...]:
        """The binding is durable: tell the handlers, once per uid. Their faults are returned, and stop nobody."""
        return self._handlers.notify(self.fleet.ledger[uid]) if self.is_bound(uid) else ()

    def take_dirty(self) -> frozenset[str]:
        """Cards that changed since the last call; give back with `requeue` what could not be written."""
        dirty, self._dirty = frozenset(self._dirty), set()
        return dirty

    def requeue(self, gpus: Iterable[str]) -> None:
        """Cards whose state could not be mirrored; ones that are gone are left out."""
        self._dirty.update(uuid for uuid in gpus if uuid in self.fleet.card_of)

    # --- queries ---

    def of_pod(self, namespace: str, pod: str) -> tuple[Allocation, ...]:
        """Allocations of pods of that name."""
        return tuple(
            allocation
            for _, allocation in sorted(self.fleet.ledger.items())
            if allocation.claim is not None and (allocation.claim.namespace, allocation.claim.pod) == (namespace, pod)
        )

    def on_node(self, node: str) -> tuple[Allocation, ...]:
        """Allocations on a node by uid."""
        return tuple(a for _, a in sorted(self.fleet.ledger.items()) if a.node == node)

    def free(self, node: str | None = None) -> dict[str, CardRoom]:
        """What is free of each card by uuid, of all nodes or of one; what is assumed or releasing is not free.

        Raises:
            NotFound: the node is not known.

        """
        if node is not None and node not in self.fleet.row_of:
            raise NotFound(f"node {node} is not known", code="unknown-node", field="node")
        cards = range(len(self.fleet.cards)) if node is None else self.fleet.cards_on(self.fleet.row_of[node])
        return {self.fleet.cards[card].uuid: room_of(self.fleet, card) for card in cards}

    def unused_nodes(self) -> frozenset[str]:
        """Nodes with cards and nobody on them, also nobody assumed."""
        held = {allocation.node for allocation in self.fleet.ledger.values()}
        return frozenset(node.name for node in self.fleet.nodes if node.gpus and node.name not in held)

    def is_bound(self, uid: str) -> bool:
        """Whether the uid holds cards for good."""
        known = self.held(uid)
        return known is not None and known.state is AllocationState.BOUND

    def set_workers_per_node(self, most: int) -> None:
        """Allocations a node may have, 0 for any number; nobody is evicted.

        Raises:
            InvalidRequest: it is negative.

        """
        if most < 0:
            raise invalid("workers_per_node", most, "0 (no cap) or more is needed")
        self.rules = replace(self.rules, workers_per_node=most)

    def held(self, uid: str) -> Allocation | None:
        """What a request holds.

        Raises:
            Conflict: the id is that of an executor or of what is foreign, which is no request.

        """
        known = self.fleet.ledger.get(uid)
        if known is not None and known.claim is None:
            whose = "an executor of a session" if known.of_session else "what a node shows of others"
            raise Conflict(f"{uid} is {whose}; choose another uid", code="uid-taken", field="uid")
        return known

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
        """The place that is held for the request, or the best."""
        held = held_place(self.fleet, self.rules, request, self.nominations)
        return held or place(self.fleet, self.rules, request, ahead=self._ahead(request))

    def _ahead(self, request: Request) -> list[Ahead]:
        """Return those whose reserved room this request leaves alone."""
        return self.nominations.before(self.fleet, request)

    def _refuses_limits(self, known: Allocation, after: Allocation) -> Rejection | None:
        row = self.fleet.row_of.get(known.node)
        if row is None or not self.rules.oversubscription:
            return None
        held, wanted = limits_of(self.fleet, known), limits_of(self.fleet, after)
        return refuses_limit(self.fleet, row, self.rules.oversubscription, self.rules.disks, wanted, held)

    def _allocation(
        self, request: Request, choice: Choice, now: float, state: AllocationState = AllocationState.ASSUMED
    ) -> Allocation:
        claim = request.claim
        if self.nominations.owed((request.uid,)):
            claim = claim.shielded(now + self.rules.protected_s)
        return Allocation(
            request.uid,
            choice.node,
            request.requirement,
            choice.gpus,
            state,
            choice.charges,
            claim,
            now,
            now if state is AllocationState.BOUND else None,
            None,
            self.fleet.gpus(choice.gpus) if choice.cards is None else self.fleet.at(choice.cards),
            placement_of(self.fleet, request.requirement, choice),
        )

    def _adopt(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.learning.follow(fleet)
        self._card_pools = frozenset(gpu.pool for gpu in fleet.cards if gpu.pool)

    def _found(self, allocation: Allocation) -> Allocation:
        """An allocation as it is entered when it was found outside, charged on its cards as they are now."""
        known = self.held(allocation.id)
        if allocation.node in self.fleet.row_of:
            self._cards(allocation.gpus)
        allocation = still_mixed(as_they_are(allocation, self.fleet.last_known(allocation)), known)
        if known is None:
            return allocation
        cards = allocation.cards or known.cards
        if known.observed and not allocation.observed and known.node == allocation.node:
            allocation = replace(allocation, placement=known.placement)
            if set(allocation.gpus) != set(known.gpus):
                allocation = replace(allocation, gpus=known.gpus, charges=known.charges)
        if known.state is not AllocationState.RELEASING:
            return replace(allocation, cards=cards)
        released = known.release_by, known.released_at
        return replace(allocation, state=known.state, release_by=released[0], released_at=released[1], cards=cards)

    def _enter(self, allocation: Allocation) -> Allocation:
        """Put an allocation into the books, with its cards as they are; what the ledger has then."""
        if allocation.state is not AllocationState.RELEASING:  # who leaves may have its next place held
            self.withdraw(allocation.id)
        known = self.fleet.ledger.get(allocation.id)
        if known == allocation:
            return known
        allocation = remembering(self.fleet, allocation)
        if known is not None:
            self.fleet.replace(allocation)
        else:
            self.fleet.charge(allocation, force=True)
        return self._changed(allocation)

    def _enter_taken(self, request: Request, taken: Taken, now: float) -> Allocation:
        row, cards, charges, placement = taken
        gpus, node = self.fleet.at(cards), self.fleet.nodes[row].name
        allocation = Allocation(
            request.uid,
            node,
            request.requirement,
            tuple([gpu.uuid for gpu in gpus]),
            AllocationState.BOUND,
            charges,
            request.claim,
            now,
            now,
            None,
            gpus,
            placement,
        )
        self.fleet.enter(allocation, row, cards)
        return self._changed(allocation)

    def _mark_mixed(self, uids: Iterable[str]) -> list[Allocation]:
        """Mark those of these that share a dynamic card with users of another isolation, and their neighbours."""
        marked = found_mixed(self.fleet, uids)
        for held in marked:
            self.fleet.replace(held)
        return marked

    def _changed(self, allocation: Allocation) -> Allocation:
        """An allocation has entered the books, or changed in them."""
        self._dirty.update(allocation.gpus)
        self._departed.back(allocation.id)
        self.version += 1
        return allocation

    def _drop(self, uid: str, now: float) -> Allocation | None:
        if self.held(uid) is None:
            return None
        allocation = self.fleet.release(uid)
        self._dirty.update(allocation.gpus)
        self._handlers.forget(uid)
        self._departed.add(allocation, now)
        self.version += 1
        return allocation

    def _cards(self, gpus: Sequence[str]) -> list[int]:
        unknown = [uuid for uuid in gpus if uuid not in self.fleet.card_of]
        if unknown:
            raise NotFound(f"card {unknown[0]} is not known", code="unknown-gpu", field="gpus")
        return [self.fleet.card_of[uuid] for uuid in gpus]

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

    @property
    def pools(self) -> frozenset[str]:
        """Pools that cards are in, and those that have a strategy."""
        return self._card_pools | frozenset(self.rules.strategies)
