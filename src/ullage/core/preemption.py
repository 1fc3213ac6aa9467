"""Who gives way to a request of higher priority that finds no room: looks at the books.

Victims are of one node. All that may be evicted there is released in a trial; if the request fits then,
they are put back one by one, the dearest first, as long as it still fits. Released allocations never take
room away, so whoever is left is needed, and no part of the set would do. Of all nodes the one with the
cheapest set is taken (`Cost`). Every trial is rolled back: after each function the books are as before it.

Times are seconds of the caller's clock. A shield (`Claim.protected_until`) holds absolutely while it
lasts; that shielded work costs more is for whoever bills it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from ullage.core.filters import CAPACITY, EXCLUSION, Kind, Stage
from ullage.core.fleet import Fleet, Usage
from ullage.core.nomination import NO_NOMINATIONS, Nominations, choose_beside, kept, let_leave
from ullage.core.quota import Quotas, Used
from ullage.core.selection import (
    Candidates,
    Choice,
    Refusal,
    Rules,
    find,
    same_on_all_cards,
    select,
)
from ullage.core.trial import trial
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.error import Conflict, NotFound, invalid
from ullage.model.nomination import Nomination
from ullage.model.part import IsolationPolicy
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.victim import Gives, Victim

_LOCK = next(filter_ for filter_ in CAPACITY.filters if filter_.name == "isolation-lock")

# --- values ---


class Shield(StrEnum):
    """Why an allocation is no victim for a request, in the order in which it is judged."""

    EXECUTOR = "executor-of-a-session"
    NOT_BOUND = "not-bound"
    PRIORITY = "no-lower-priority"
    NAMESPACE = "other-namespace"
    PROTECTED = "protected"


@dataclass(frozen=True, slots=True)
class Budgets:
    """How many workers of a (namespace, workload) may still be disrupted; any number of those not named.

    Budgets are kept wherever possible: who would break one is put back first, and a node where none is
    broken comes before all others. They do not make a request of higher priority wait.
    """

    left: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def broken(self, victims: Iterable[Allocation]) -> Counter[tuple[str, str]]:
        """Workers beyond the budget, per workload that has one."""
        taken = Counter(_workload(victim) for victim in victims) if self.left else Counter()
        return Counter({key: n - self.left[key] for key, n in taken.items() if n > self.left.get(key, n)})


class Cost(NamedTuple):
    """What a set of victims costs; the smallest is taken, compared from the first field on.

    Workers beyond their budgets, the highest priority, the sum of the priorities (those below 0 count
    as 0, so that no set is cheaper for being larger), how many there are, for how many seconds the
    oldest of the highest priority is bound, and the name of the node.
    """

    violations: int
    highest: int
    priorities: int
    number: int
    age_s: float
    node: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was tried on one node: how many could be evicted, who could not be and why, and what came of it.

    Either `refusal` says why the request does not fit with all of them gone, or `victims` and their
    `cost` say what it takes; no part of these victims would do. With `up_to` only those of at most that
    priority were tried: a set with others would be dearer than that of another node.
    """

    node: str
    eligible: int
    shielded: dict[Shield, int]
    victims: tuple[Victim, ...] = ()
    cost: Cost | None = None
    refusal: Refusal | None = None
    up_to: int | None = None


@dataclass(frozen=True, slots=True)
class Preemption:
    """Where the request goes once the victims are gone; without victims it fits as it is.

    `without` says why it does not fit without them, `attempts` what was tried on each node, by name.
    """

    choice: Choice
    victims: tuple[Victim, ...] = ()
    cost: Cost | None = None
    attempts: tuple[Attempt, ...] = ()
    without: Refusal | None = None

    @property
    def uids(self) -> tuple[str, ...]:
        """The victims' identities, dearest first."""
        return tuple(victim.uid for victim in self.victims)

    def nomination(self, request: Request, now: float) -> Nomination:
        """The room that the victims give, kept for whom they give it."""
        choice = self.choice
        return Nomination(request, choice.node, now, choice.gpus, choice.charges, self.victims)


@dataclass(frozen=True, slots=True)
class NoPreemption(Refusal):
    """Why the request does not fit, and what was tried on each node, by name, to make it fit."""

    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class Released(Candidates):
    """Candidates with victims gone, and what each would have free then: (compute, vram), units of the card."""

    free: dict[str, tuple[int, int]] = field(default_factory=dict)


NO_BUDGETS = Budgets()


def budgets_of(fleet: Fleet, min_available: Mapping[tuple[str, str], int]) -> Budgets:
    """What workloads of which so many workers are to stay bound can lose now; the ledger says how many are."""
    if not min_available:
        return NO_BUDGETS
    bound = Counter(_workload(a) for a in fleet.ledger.values() if a.claim and a.state is AllocationState.BOUND)
    return Budgets({workload: max(0, bound[workload] - least) for workload, least in min_available.items()})


# --- with victims that somebody else chose ---


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
    open_cards, lock = _lock_stays(fleet, request, cards)
    with trial(fleet):
        for allocation in gone:
            fleet.release(allocation.id)
        found = _find(fleet, replace(rules, quotas=Quotas()), request, open_cards, lock)
        if not found.by_node:
            return _refusal(found)
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
    """Whether the request fits on the node when those of the victims that may be evicted go; and who must.

    Raises:
        NotFound: a victim or the node is unknown. InvalidRequest: a victim is on another node.

    """
    named, row = _named(fleet, victims), _row(fleet, node)
    for victim in named:
        if victim.node != node:
            raise invalid("victims", victim.id, f"name workers of node {node}; this one is on {victim.node}")
    with kept(fleet, nominations.before(fleet, request)):
        look = _Look.of(fleet, rules, request, now, budgets)
        attempt = _attempt(look, row, *_eligible(look, named))
        if attempt.refusal is not None:
            return _nobody_helps(attempt.refusal, (attempt,))
        return Preemption(_choice_of(look, attempt), attempt.victims, attempt.cost, (attempt,))


# --- over all nodes ---


def preempt(
    fleet: Fleet,
    rules: Rules,
    request: Request,
    now: float,
    budgets: Budgets = NO_BUDGETS,
    nominations: Nominations = NO_NOMINATIONS,
) -> Preemption | NoPreemption:
    """The cheapest victims on one node that make the request fit, none if it fits as it is; or why nobody helps.

    Nobody more is evicted for a request that is nominated and fits when those who leave are gone.

    Raises:
        Conflict: the request is placed.

    """
    if request.uid in fleet.ledger:
        raise Conflict(f"{request.uid} holds cards already; nobody gives way to it", code="already-bound")
    without = choose_beside(fleet, rules, request, nominations)
    if isinstance(without, Choice):
        return Preemption(without)
    with kept(fleet, nominations.before(fleet, request)):
        look = _Look.of(fleet, rules, request, now, budgets)
        waits = _waits(look, nominations.of(request.uid))
        if waits is not None:
            return NoPreemption((waits,), without.stages, without.helps)
        best, attempts = _attempts(look) if without.curable else (None, ())
        if best is None:
            return _nobody_helps(without, attempts)
        return Preemption(_choice_of(look, best), best.victims, best.cost, attempts, without)


def _nobody_helps(refusal: Refusal, attempts: tuple[Attempt, ...]) -> NoPreemption:
    return NoPreemption(refusal.rejections, refusal.stages, refusal.helps, attempts)


def shield(rules: Rules, request: Request, allocation: Allocation, now: float) -> Shield | None:
    """Why this allocation may not be evicted for the request; None if it may."""
    claim, own = allocation.claim, request.claim
    if claim is None:
        return Shield.EXECUTOR
    if allocation.state is not AllocationState.BOUND:
        return Shield.NOT_BOUND
    if claim.priority >= own.priority:
        return Shield.PRIORITY
    if not rules.preempt_cluster_wide and claim.namespace != own.namespace:
        return Shield.NAMESPACE
    return Shield.PROTECTED if claim.protected_until > now else None


# --- steps ---


@dataclass(frozen=True, slots=True)
class _Look:
    """One request on one set of books, the usage at the start, and whether node and quota judge all cards alike."""

    fleet: Fleet
    rules: Rules
    request: Request
    now: float
    budgets: Budgets
    before: Used
    same_on_all_cards: bool

    @classmethod
    def of(cls, fleet: Fleet, rules: Rules, request: Request, now: float, budgets: Budgets) -> _Look:
        bound = bool(rules.quotas.levels(request.claim.namespace)) or bool(rules.oversubscription)
        same = not bound or same_on_all_cards(request)
        return cls(fleet, rules, request, now, budgets, dict(fleet.usage), same)

    def used(self) -> Used:
        """Usage with what the victims gave back; only those of the request's own namespace count."""
        own = self.request.claim.namespace
        return {**self.before, own: self.fleet.usage.get(own, Usage())}

    def find(self, cards: Sequence[int], lock: Stage | None = None) -> Candidates:
        return _find(self.fleet, self.rules, self.request, cards, lock, self.used())


def _attempts(look: _Look) -> tuple[Attempt | None, tuple[Attempt, ...]]:
    """The cheapest way, if there is one, and what comes of each node that has enough cards of the right kind."""
    attempts: list[Attempt] = []
    best: Attempt | None = None
    for row, eligible, shielded in _rows(look):
        if not eligible:
            attempts.append(_nobody(look.fleet.nodes[row].name, shielded))
            continue
        attempt = _attempt(look, row, eligible, shielded, _up_to(best))
        attempts.append(attempt)
        if attempt.cost is not None and (best is None or best.cost is None or attempt.cost < best.cost):
            best = attempt
    return best, tuple(sorted(attempts, key=lambda attempt: attempt.node))


def _up_to(best: Attempt | None) -> int | None:
    """The highest priority with which a set can still be cheaper than the best so far; None for any."""
    return None if best is None or best.cost is None or best.cost.violations else best.cost.highest


def _rows(look: _Look) -> list[tuple[int, list[Allocation], dict[Shield, int]]]:
    """The nodes worth a try with those who may go and those who may not, promising ones first."""
    fleet, asked = look.fleet, look.request.requirement
    on_row: dict[int, list[Allocation]] = {}
    for allocation in fleet.ledger.values():
        row = fleet.row_of.get(allocation.node)
        if row is not None:
            on_row.setdefault(row, []).append(allocation)
    found = [
        (row, *_eligible(look, on_row.get(row, ())))
        for row, node in enumerate(fleet.nodes)
        if node.schedulable
        and sum(EXCLUSION.first(fleet, card, asked) is None for card in fleet.cards_on(row)) >= asked.gpu_count
    ]
    return sorted(found, key=lambda entry: (max((_claim(a).priority for a in entry[1]), default=0), entry[0]))


def _nobody(node: str, shielded: dict[Shield, int]) -> Attempt:
    refused = Rejection(Code.NO_VICTIMS, Cure.CAPACITY, 1, 0, node)
    return Attempt(node, 0, shielded, refusal=Refusal((refused,)))


def _attempt(
    look: _Look,
    row: int,
    eligible: Sequence[Allocation],
    shielded: dict[Shield, int],
    up_to: int | None = None,
) -> Attempt:
    """All that may go is released; if that is enough, as many as possible are put back."""
    fleet, node = look.fleet, look.fleet.nodes[row].name
    tried = [allocation for allocation in eligible if up_to is None or _claim(allocation).priority <= up_to]
    cards, lock = _lock_stays(fleet, look.request, fleet.cards_on(row))
    with trial(fleet):
        for allocation in tried:
            fleet.release(allocation.id)
        found = look.find(cards, lock)
        if not found.by_node:
            limit = up_to if len(tried) < len(eligible) else None
            return Attempt(node, len(eligible), shielded, refusal=_refusal(found), up_to=limit)
        needed = _fill_back(look, [fleet.card_of[uuid] for uuid in found.by_node[node]], tried)
    victims = tuple(_victim(fleet, allocation, reason) for allocation, reason in needed)
    return Attempt(node, len(eligible), shielded, victims, _cost(look, node, [a for a, _ in needed]))


def _fill_back(look: _Look, able: Sequence[int], released: Sequence[Allocation]) -> list[tuple[Allocation, Rejection]]:
    """Put back all but those needed, first the ones beyond their budget, each in order of `_worth`.

    `able` are the cards that would do with all of them gone. The needed ones, dearest first, with what
    the request lacks if that one stays.
    """
    count = look.request.requirement.gpu_count
    out = {allocation.id: allocation for allocation in sorted(released, key=_worth)}
    broken = look.budgets.broken(released)
    lacks: dict[str, Rejection] = {}
    for beyond_budget in (True, False):
        for uid, allocation in list(out.items()):
            if uid in lacks or (beyond_budget and broken[_workload(allocation)] <= 0):
                continue
            look.fleet.charge(allocation, force=True)
            still_able = _still_able(look, able, allocation)
            if len(still_able) >= count:
                able = still_able
                del out[uid]
                broken[_workload(allocation)] -= 1
            else:
                lacks[uid] = _refusal(look.find(able)).rejections[0]
                look.fleet.release(uid)
    return [(allocation, lacks[uid]) for uid, allocation in out.items()]


def _still_able(look: _Look, able: Sequence[int], added: Allocation) -> list[int]:
    """Those of the cards that still do beside one more allocation.

    Only its own cards are looked at, and one that stands for all others: on those nothing changed but
    what node and quota say, which is the same for each. Unless the quota depends on the card.
    """
    fleet, own = look.fleet, set(added.gpus)
    others = [card for card in able if fleet.cards[card].uuid not in own]
    looked_at = others[:1] if look.same_on_all_cards else others
    touched = [card for card in able if fleet.cards[card].uuid in own]
    stages = look.find([*looked_at, *touched]).stages
    kept_cards = frozenset(stages[-2 if look.request.requirement.gpu_count > 1 else -1].kept)
    if look.same_on_all_cards and others and fleet.cards[others[0]].uuid not in kept_cards:
        return []
    unseen = frozenset(others[len(looked_at) :])
    return [card for card in able if card in unseen or fleet.cards[card].uuid in kept_cards]


def _choice_of(look: _Look, attempt: Attempt) -> Choice:
    """The cards that the request gets on the node once the victims are gone."""
    fleet = look.fleet
    cards, _ = _lock_stays(fleet, look.request, fleet.cards_on(fleet.row_of[attempt.node]))
    with trial(fleet):
        for victim in attempt.victims:
            fleet.release(victim.uid)
        chosen = select(fleet, look.rules, look.request, look.find(cards).by_node)
    assert isinstance(chosen, Choice), "the request fits when its victims are gone"
    return chosen


def _waits(look: _Look, nomination: Nomination | None) -> Rejection | None:
    """What a nominated request waits for: those who leave its node, if it fits when they are gone."""
    fleet = look.fleet
    row = None if nomination is None else fleet.row_of.get(nomination.node)
    if row is None:
        return None
    with trial(fleet):
        leaving = let_leave(fleet, row)
        fits = leaving and find(fleet, look.rules, look.request, fleet.cards_on(row)).by_node
    return Rejection(Code.EVICTING, Cure.CAPACITY, leaving, 0, fleet.nodes[row].name) if fits else None


# --- who ---


def _eligible(look: _Look, allocations: Iterable[Allocation]) -> tuple[list[Allocation], dict[Shield, int]]:
    """Those who may be evicted, and how many may not for each reason."""
    eligible: list[Allocation] = []
    shielded: Counter[Shield] = Counter()
    for allocation in allocations:
        reason = shield(look.rules, look.request, allocation, look.now)
        if reason is None:
            eligible.append(allocation)
        else:
            shielded[reason] += 1
    return eligible, dict(sorted(shielded.items()))


def _worth(allocation: Allocation) -> tuple[int, float, str]:
    """Dearest first: the highest priority, then who runs longest, then by uid."""
    return -_claim(allocation).priority, _start(allocation), allocation.id


def _cost(look: _Look, node: str, victims: Sequence[Allocation]) -> Cost:
    priorities = [_claim(victim).priority for victim in victims]
    highest = max(priorities, default=0)
    oldest = min((_start(victim) for victim in victims if _claim(victim).priority == highest), default=look.now)
    violations = look.budgets.broken(victims).total()
    return Cost(violations, highest, sum(max(0, p) for p in priorities), len(victims), look.now - oldest, node)


def _victim(fleet: Fleet, allocation: Allocation, reason: Rejection) -> Victim:
    claim = _claim(allocation)
    charges: Collection[Charge | None] = allocation.charges or [None] * len(allocation.gpus)
    gives = tuple(_gives(fleet, uuid, charge) for uuid, charge in zip(allocation.gpus, charges, strict=True))
    return Victim(allocation.id, claim.namespace, claim.workload, claim.priority, gives, reason)


def _gives(fleet: Fleet, uuid: str, charge: Charge | None) -> Gives:
    if charge is not None:
        return Gives(uuid, charge.compute, charge.vram)
    card = fleet.card_of[uuid]
    return Gives(uuid, int(fleet.compute_total[card]), int(fleet.vram_total[card]))


def _claim(allocation: Allocation) -> Claim:
    assert allocation.claim is not None, "executors of sessions are no victims"
    return allocation.claim


def _start(allocation: Allocation) -> float:
    """When it was bound, or what is known nearest to that."""
    for at in (allocation.bound_at, allocation.assumed_at):
        if at is not None:
            return at
    return _claim(allocation).created_at


def _workload(allocation: Allocation) -> tuple[str, str]:
    claim = _claim(allocation)
    return claim.namespace, claim.workload


# --- what fits ---


def _find(
    fleet: Fleet,
    rules: Rules,
    request: Request,
    cards: Sequence[int],
    lock: Stage | None = None,
    used: Used | None = None,
) -> Candidates:
    """`find`, with what the lock of dynamic cards removed before it as the first stage."""
    found = find(fleet, rules, request, cards, used)
    if lock is None:
        return found
    stages = (lock, *(replace(stage, reached=stage.reached and lock.after > 0) for stage in found.stages))
    return replace(found, stages=stages)


def _lock_stays(fleet: Fleet, request: Request, cards: Sequence[int]) -> tuple[list[int], Stage | None]:
    """The cards that may be candidates, and the stage that removed the others, if there are any.

    The isolation of a dynamic card is that of its present users, also if all of them were to go.
    """
    kept_cards: list[int] = []
    removed: list[Rejection] = []
    for card in cards:
        dynamic = fleet.cards[card].isolation_policy is IsolationPolicy.DYNAMIC
        refused = _LOCK.check(fleet, card, request.requirement) if dynamic else None
        if refused is None:
            kept_cards.append(card)
        else:
            removed.append(refused)
    if not removed:
        return kept_cards, None
    names = fleet.uuids(kept_cards)
    return kept_cards, Stage("lock-stays", Kind.CAPACITY, True, len(cards), len(kept_cards), tuple(removed), names)


def _refusal(found: Candidates) -> Refusal:
    return replace(found.refusal, rejections=found.refusals or (Rejection(Code.NO_CANDIDATE, Cure.NODE_CHANGE),))


def _free(fleet: Fleet, card: int) -> tuple[int, int]:
    return max(0, int(fleet.compute_free[card])), max(0, int(fleet.vram_free[card]))


def _row(fleet: Fleet, node: str) -> int:
    row = fleet.row_of.get(node)
    if row is None:
        raise NotFound(f"node {node} is not known", code="node-unknown", field="nodes")
    return row


def _named(fleet: Fleet, uids: Sequence[str]) -> list[Allocation]:
    """The allocations of these uids, each once."""
    for uid in uids:
        known = fleet.ledger.get(uid)
        if known is None:
            raise NotFound(f"victim {uid} is not in the ledger", field="victims")
        missing = [uuid for uuid in known.gpus if uuid not in fleet.card_of]
        if missing:
            raise NotFound(f"card {missing[0]} of victim {uid} is not known", code="unknown-gpu", field="victims")
    return [fleet.ledger[uid] for uid in dict.fromkeys(uids)]
