"""The search for those who give way to one request, on one node after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import worth
from ullage.core.books.trial import trial
from ullage.core.books.usage import Usage
from ullage.core.evicting.compiled_search import CompiledSearch, PlacedUnit
from ullage.core.evicting.protection import Protection, Shield
from ullage.core.evicting.put_back import Held, put_back
from ullage.core.evicting.victims import Cost, EvictionContext, claim_of, cost_of, victim_of
from ullage.core.kernel import columns as at
from ullage.core.kernel.reasons import LOCKED
from ullage.core.placing.candidates import find, same_on_all_cards
from ullage.core.placing.decision import Candidates, Choice, Refusal
from ullage.core.placing.feasibility import quota_allows, summable
from ullage.core.placing.placement import warming_fleet
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import select
from ullage.core.strategies import STRATEGIES
from ullage.core.verdict.cards import CardVerdicts
from ullage.core.verdict.reasons import StageKind
from ullage.core.verdict.stages import Stage
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.part import IsolationPolicy
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.victim import Victim

_BY_COUNT = ("same-node", "zones")
"""Stages that judge the cards of a node together."""

Locks = Mapping[int, Rejection]
"""Per dynamic card that a request does not get even if all its users are evicted, the reason."""


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


class VictimSearch:
    """Searches the victims of one request, on one set of books; the books stay as they are.

    The law of every eviction, of requests, gangs and executors, and of every move:

    - It has a winner, who starts because of it. Nobody is touched for a winner who does not fit then, or fits without.
    - Nobody is touched who is protected (`Protection`).
    - All who may go are released. Then they are put back, the dearest (who would be evicted last) first, as long as
      the winner fits. Released allocations never take room away, so everybody who is left is needed.

    Where room follows from sums, the compiled search does that and looks for a cheaper set; else it is done on trial.
    """

    def __init__(self, context: EvictionContext, request: Request, locks: Locks | None = None) -> None:
        self.context, self.request = context, request
        self.fleet = fleet = context.fleet
        rules = context.rules
        self.locks = locks_of(fleet, request) if locks is None else locks
        self.protection = Protection.against(rules, request, context.now)
        self._used_before = dict(fleet.usage)
        bound = bool(rules.quotas.levels(request.claim.quota_name)) or bool(rules.oversubscription)
        one_amount = same_on_all_cards(request) and not rules.quotas.count_cores(request.claim.quota_name)
        self._same_on_all_cards = not bound or one_amount
        """Whether node and quota give all cards one verdict."""
        self._compiled: CompiledSearch | None = None
        if summable(rules, request) and quota_allows(fleet, rules, request, 1):
            self._compiled = CompiledSearch(context, request, self.protection, self.locks)

    def on(self, row: int, there: Iterable[Allocation], highest: int | None = None) -> Attempt:
        """Return who of those on a node has to go; only those of at most the `highest` priority are tried."""
        return self.among(row, *self.split(there), highest)

    def split(self, there: Iterable[Allocation]) -> tuple[list[Allocation], dict[Shield, int]]:
        """Return the evictable allocations, and the number of others for each reason."""
        eligible: list[Allocation] = []
        shielded: Counter[Shield] = Counter()
        for allocation in there:
            reason = self.protection.shield(allocation)
            if reason is None:
                eligible.append(allocation)
            else:
                shielded[reason] += 1
        return eligible, dict(sorted(shielded.items()))

    def among(
        self, row: int, eligible: Sequence[Allocation], shielded: dict[Shield, int], highest: int | None = None
    ) -> Attempt:
        """Do the same as `on` for allocations that are split already."""
        fleet, node = self.fleet, self.fleet.nodes[row].name
        tried = [allocation for allocation in eligible if highest is None or claim_of(allocation).priority <= highest]
        with trial(fleet):
            for allocation in tried:
                fleet.release(allocation.id)
            found = self._find(fleet.cards_on(row), locked=True)
            if not found.by_node:
                up_to = highest if len(tried) < len(eligible) else None
                return Attempt(node, len(eligible), shielded, refusal=refusal_in(found), up_to=up_to)
            able = [fleet.card_of[uuid] for uuid in found.by_node[node]]
            needed = self._needed(row, able, tried)
            victims = tuple(victim_of(fleet, each, self._lacks(able, each)) for each in needed)
        cost = cost_of(self.context.budgets, self.context.now, node, needed)
        return Attempt(node, len(eligible), shielded, victims, cost=cost)

    def place(self, attempt: Attempt) -> Choice:
        """Return the cards that the request gets on the node once the victims are gone."""
        fleet = self.fleet
        with trial(fleet):
            for victim in attempt.victims:
                fleet.release(victim.uid)
            found = self._find(fleet.cards_on(fleet.row_of[attempt.node]), locked=True)
            chosen = select(fleet, self.context.rules, self.request, found.by_node)
        assert isinstance(chosen, Choice), "the request fits when its victims are gone"
        return chosen

    def units(self, count: int) -> list[PlacedUnit]:
        """Return the places of up to `count` units, each on the node where it costs least after those before it.

        Only where room follows from sums, and once only: it uses up the copies of the books.
        """
        assert self._compiled is not None, "the caller asks whether room follows from sums"
        return self._compiled.units(count)

    def _find(self, cards: Sequence[int], *, locked: bool = False) -> Candidates:
        """Return those of the cards that fit now; of victims only those in the namespace count for its quota."""
        own = self.request.claim.quota_name
        used = {**self._used_before, own: self.fleet.usage.get(own, Usage())}
        if not locked:
            return find(self.fleet, self.context.rules, self.request, cards, used=used)
        kept, stage = without_locked(self.fleet, cards, self.locks)
        return with_stage(stage, find(self.fleet, self.context.rules, self.request, kept, used=used))

    def _needed(self, row: int, able: Sequence[int], released: Sequence[Allocation]) -> list[Allocation]:
        """Return the victims among those released, the dearest first; the others are charged again.

        `able` are the cards that would do with all of them gone.
        """
        victims = None if self._compiled is None else self._compiled.victims_on(row, released)
        if victims is not None:
            for allocation in released:
                if allocation not in victims:
                    self.fleet.charge(allocation, force=True)
            return victims
        count = self.request.requirement.gpu_count

        def fits(held: Held) -> bool:
            nonlocal able
            still_able = self._still_able(able, *held)
            enough = len(still_able) >= count
            able = still_able if enough else able
            return enough

        needed = put_back(self.fleet, self._dearest_first(released), fits)
        return sorted((allocation for held in needed for allocation in held), key=worth)

    def _dearest_first(self, released: Sequence[Allocation]) -> Iterator[Held]:
        """Yield those beyond their budget in order of `worth`, then the others; each is put back meanwhile or not."""
        key, broken, tried = self.context.budgets.key, self.context.budgets.broken(released), set[str]()
        for beyond_budget in (True, False):
            for allocation in sorted(released, key=worth):
                if allocation.id in tried or (beyond_budget and broken[key(allocation)] <= 0):
                    continue
                tried.add(allocation.id)
                yield (allocation,)
                if allocation.id in self.fleet.ledger:
                    broken[key(allocation)] -= 1

    def _still_able(self, able: Sequence[int], added: Allocation) -> list[int]:
        """Return those of the cards that still fit with one more allocation.

        Only its own cards are examined, and one card for all others: there only the verdict of node and quota can
        change, which is the same for each. If the quota depends on the card, all are examined.
        """
        fleet, own = self.fleet, set(added.gpus)
        if fleet.board.decides(self.request.requirement):  # cards of a node are judged together then
            return [fleet.card_of[uuid] for uuids in self._find(able).by_node.values() for uuid in uuids]
        others = [card for card in able if fleet.cards[card].uuid not in own]
        looked_at = others[:1] if self._same_on_all_cards else others
        touched = [card for card in able if fleet.cards[card].uuid in own]
        stages = self._find([*looked_at, *touched]).stages
        kept_cards = frozenset(next(stage.kept for stage in reversed(stages) if stage.filter not in _BY_COUNT))
        if self._same_on_all_cards and any(fleet.cards[card].uuid not in kept_cards for card in looked_at):
            return []
        unseen = frozenset(others[len(looked_at) :])
        return [card for card in able if card in unseen or fleet.cards[card].uuid in kept_cards]

    def _lacks(self, able: Sequence[int], victim: Allocation) -> Rejection:
        """Return why the request does not fit on these cards if this victim alone stays."""
        self.fleet.charge(victim, force=True)
        refusal = refusal_in(self._find(able))
        self.fleet.release(victim.id)
        return refusal.rejections[0]


def warm() -> None:
    """Have the search compiled for all named strategies, or what was compiled before read back."""
    request = Request("warm", ResourceRequirement.of(gpu=1))
    for strategy in STRATEGIES.values():
        if strategy.stateless:
            VictimSearch(EvictionContext(warming_fleet(), Rules(strategy=strategy), 0.0), request).units(1)


def locks_of(fleet: Fleet, request: Request) -> Locks:
    """Return the dynamic cards that no eviction opens to a request: their isolation stays that of their users.

    No user leaves such a card for a request with another isolation.
    """
    dynamic = [fleet.cards[first].isolation_policy is IsolationPolicy.DYNAMIC for first in fleet.kinds]
    if not any(dynamic):
        return {}
    cards = np.flatnonzero(np.array(dynamic)[fleet.card_rows[:, at.KIND]] & (fleet.card_users > 0))
    verdicts = CardVerdicts(fleet, request.requirement, cards)
    locked = np.flatnonzero(verdicts.reason == LOCKED).tolist()
    return {cards.item(k): verdicts.rejection(k) for k in locked}


def without_locked(fleet: Fleet, cards: Sequence[int], locks: Locks) -> tuple[list[int], Stage | None]:
    """Return the possible cards, and the stage that removed the others, if any."""
    kept = [card for card in cards if card not in locks]
    if len(kept) == len(cards):
        return kept, None
    removed, uuids = tuple(locks[card] for card in cards if card in locks), fleet.uuids(kept)
    stage = Stage(
        "lock-stays", StageKind.CAPACITY, True, before=len(cards), after=len(kept), removed=removed, kept=uuids
    )
    return kept, stage


def with_stage(first: Stage | None, found: Candidates) -> Candidates:
    if first is None:
        return found
    stages = (first, *(replace(stage, reached=stage.reached and first.after > 0) for stage in found.stages))
    return replace(found, stages=stages)


def refusal_in(found: Candidates) -> Refusal:
    """Return why there is no candidate."""
    return replace(found.refusal, rejections=found.refusals or (Rejection(Code.NO_CANDIDATE, Cure.NODE_CHANGE),))
