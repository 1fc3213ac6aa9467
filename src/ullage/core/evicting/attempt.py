"""The search for victims on one node: all evictable allocations are released, then as many as possible are put back.

`core/evicting/clearing.py` finds the cheapest set. Where quotas or partitions decide, allocations are put back one by
one, the most expensive first, as long as the request still fits. Releasing never takes room away, so every remaining
victim is needed. Every function leaves the books as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import worth
from ullage.core.books.trial import trial
from ullage.core.books.usage import Usage
from ullage.core.evicting.clearing import Clearing
from ullage.core.evicting.victims import Budgets, Cost, Shield, claim_of, cost_of, lock_on, shield, victim_of
from ullage.core.placing.candidates import find, same_on_all_cards
from ullage.core.placing.decision import Candidates, Choice, Refusal
from ullage.core.placing.feasibility import quota_allows, summable
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import select
from ullage.core.verdict.quota import Used
from ullage.core.verdict.reasons import StageKind
from ullage.core.verdict.stages import Stage
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.victim import Victim

_BY_COUNT = ("same-node", "zones")
"""Stages that judge the cards of a node together."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result on one node: the number of evictable allocations, and of the others for each reason.

    Either `refusal` says why the request does not fit even without all of them, or `victims` are a minimal set with
    its `cost`. With `up_to`, only victims of at most that priority were tried: a set with others would cost more than
    that of another node.
    """

    node: str
    eligible: int
    shielded: dict[Shield, int]
    victims: tuple[Victim, ...] = ()
    cost: Cost | None = None
    refusal: Refusal | None = None
    up_to: int | None = None


@dataclass(frozen=True, slots=True)
class EvictionContext:
    """One request on one set of books.

    `before` is the usage of quotas at the start. `same_on_all_cards`: node and quota give all cards one verdict.
    """

    fleet: Fleet
    rules: Rules
    request: Request
    now: float
    budgets: Budgets
    before: Used
    same_on_all_cards: bool
    clearing: Clearing | None

    @classmethod
    def of(cls, fleet: Fleet, rules: Rules, request: Request, now: float, budgets: Budgets) -> EvictionContext:
        """Return the context for the present books."""
        bound = bool(rules.quotas.levels(request.claim.namespace)) or bool(rules.oversubscription)
        same = not bound or (same_on_all_cards(request) and not rules.quotas.count_cores(request.claim.namespace))
        sums = summable(rules, request) and quota_allows(fleet, rules, request, 1)
        clearing = Clearing(fleet, rules, request, now, budgets) if sums else None
        return cls(fleet, rules, request, now, budgets, dict(fleet.usage), same, clearing)

    def used(self) -> Used:
        """Return the usage without the victims; only victims in the namespace of the request count."""
        own = self.request.claim.namespace
        return {**self.before, own: self.fleet.usage.get(own, Usage())}

    def find(self, cards: Sequence[int], lock: Stage | None = None) -> Candidates:
        """Return those of the cards that fit now."""
        return find_open(self.fleet, self.rules, self.request, cards, lock, self.used())


def eligible_of(
    context: EvictionContext, allocations: Iterable[Allocation]
) -> tuple[list[Allocation], dict[Shield, int]]:
    """Return the evictable allocations, and the number of others for each reason."""
    eligible: list[Allocation] = []
    shielded: Counter[Shield] = Counter()
    for allocation in allocations:
        reason = shield(context.rules, context.request, allocation, context.now)
        if reason is None:
            eligible.append(allocation)
        else:
            shielded[reason] += 1
    return eligible, dict(sorted(shielded.items()))


def attempt_on(
    context: EvictionContext,
    row: int,
    eligible: Sequence[Allocation],
    shielded: dict[Shield, int],
    up_to: int | None = None,
) -> Attempt:
    """Release all evictable allocations. If the request fits then, put back as many as possible."""
    fleet, node = context.fleet, context.fleet.nodes[row].name
    tried = [allocation for allocation in eligible if up_to is None or claim_of(allocation).priority <= up_to]
    cards, lock = lock_stays(fleet, context.request, fleet.cards_on(row))
    with trial(fleet):
        for allocation in tried:
            fleet.release(allocation.id)
        found = context.find(cards, lock)
        if not found.by_node:
            limit = up_to if len(tried) < len(eligible) else None
            return Attempt(node, len(eligible), shielded, refusal=refusal_of(found), up_to=limit)
        needed = _needed(context, row, [fleet.card_of[uuid] for uuid in found.by_node[node]], tried)
    victims = tuple(victim_of(fleet, allocation, reason) for allocation, reason in needed)
    cost = cost_of(context.budgets, context.now, node, [allocation for allocation, _ in needed])
    return Attempt(node, len(eligible), shielded, victims, cost)


def _needed(
    context: EvictionContext, row: int, able: Sequence[int], released: Sequence[Allocation]
) -> list[tuple[Allocation, Rejection]]:
    """Return the victims, the most expensive first, each with what the request lacks if it stays. All are released."""
    victims = None if context.clearing is None else context.clearing.victims_on(row, released)
    if victims is None:
        return _fill_back(context, able, released)
    needed = []
    for allocation in released:
        if allocation not in victims:
            context.fleet.charge(allocation, force=True)
    for victim in victims:
        context.fleet.charge(victim, force=True)
        needed.append((victim, refusal_of(context.find(able)).rejections[0]))
        context.fleet.release(victim.id)
    return needed


def _fill_back(
    context: EvictionContext, able: Sequence[int], released: Sequence[Allocation]
) -> list[tuple[Allocation, Rejection]]:
    """Put back all but those needed, first the ones beyond their budget, each in order of `worth`.

    `able` are the cards that would do with all of them gone. The needed ones, dearest first, with what
    the request lacks if that one stays.
    """
    count = context.request.requirement.gpu_count
    out = {allocation.id: allocation for allocation in sorted(released, key=worth)}
    broken = context.budgets.broken(released)
    lacks: dict[str, Rejection] = {}
    for beyond_budget in (True, False):
        for uid, allocation in list(out.items()):
            if uid in lacks or (beyond_budget and broken[context.budgets.key(allocation)] <= 0):
                continue
            context.fleet.charge(allocation, force=True)
            still_able = _still_able(context, able, allocation)
            if len(still_able) >= count:
                able = still_able
                del out[uid]
                broken[context.budgets.key(allocation)] -= 1
            else:
                lacks[uid] = refusal_of(context.find(able)).rejections[0]
                context.fleet.release(uid)
    return [(allocation, lacks[uid]) for uid, allocation in out.items()]


def _still_able(context: EvictionContext, able: Sequence[int], added: Allocation) -> list[int]:
    """Return those of the cards that still fit with one more allocation.

    Only its own cards are examined, and one card for all others: there only the verdict of node and quota can change,
    which is the same for each. If the quota depends on the card, all are examined.
    """
    fleet, own = context.fleet, set(added.gpus)
    if fleet.board.decides(context.request.requirement):  # cards of a node are judged together then
        return [fleet.card_of[uuid] for uuids in context.find(able).by_node.values() for uuid in uuids]
    others = [card for card in able if fleet.cards[card].uuid not in own]
    looked_at = others[:1] if context.same_on_all_cards else others
    touched = [card for card in able if fleet.cards[card].uuid in own]
    stages = context.find([*looked_at, *touched]).stages
    kept_cards = frozenset(next(stage.kept for stage in reversed(stages) if stage.filter not in _BY_COUNT))
    if context.same_on_all_cards and others and fleet.cards[others[0]].uuid not in kept_cards:
        return []
    unseen = frozenset(others[len(looked_at) :])
    return [card for card in able if card in unseen or fleet.cards[card].uuid in kept_cards]


def choice_of(context: EvictionContext, attempt: Attempt) -> Choice:
    """Return the cards that the request gets on the node once the victims are gone."""
    fleet = context.fleet
    cards, _ = lock_stays(fleet, context.request, fleet.cards_on(fleet.row_of[attempt.node]))
    with trial(fleet):
        for victim in attempt.victims:
            fleet.release(victim.uid)
        chosen = select(fleet, context.rules, context.request, context.find(cards).by_node)
    assert isinstance(chosen, Choice), "the request fits when its victims are gone"
    return chosen


def find_open(
    fleet: Fleet,
    rules: Rules,
    request: Request,
    cards: Sequence[int],
    lock: Stage | None = None,
    used: Used | None = None,
) -> Candidates:
    """`find`, with what the lock of dynamic cards removed before it as the first stage."""
    found = find(fleet, rules, request, cards, used=used)
    if lock is None:
        return found
    stages = (lock, *(replace(stage, reached=stage.reached and lock.after > 0) for stage in found.stages))
    return replace(found, stages=stages)


def lock_stays(fleet: Fleet, request: Request, cards: Sequence[int]) -> tuple[list[int], Stage | None]:
    """Return the possible cards, and the stage that removed the others, if any.

    The isolation of a dynamic card stays that of its present users, even if all of them are evicted.
    """
    kept_cards: list[int] = []
    removed: list[Rejection] = []
    for card in cards:
        refused = lock_on(fleet, request, card)
        if refused is None:
            kept_cards.append(card)
        else:
            removed.append(refused)
    if not removed:
        return kept_cards, None
    names = fleet.uuids(kept_cards)
    return kept_cards, Stage("lock-stays", StageKind.CAPACITY, True, len(cards), len(kept_cards), tuple(removed), names)


def refusal_of(found: Candidates) -> Refusal:
    """Return why there is no candidate."""
    return replace(found.refusal, rejections=found.refusals or (Rejection(Code.NO_CANDIDATE, Cure.NODE_CHANGE),))
