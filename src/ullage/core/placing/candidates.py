"""The cards that would do for one request, and every rule that removed another one.

What only room that is reserved for others stands in the way of is refused as `reserved-for-nominated`. A request that
does not fit without it either is refused for the reasons that hold then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from ullage.core.books.capacity import limit_on, refuses_limit
from ullage.core.books.fleet import Fleet
from ullage.core.kernel import columns
from ullage.core.placing.decision import Candidates
from ullage.core.placing.nomination import Ahead
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.verdict.counted import amounts_on, asked_on, cores_on
from ullage.core.verdict.equivalence import Cards, DependsOn, cards_of
from ullage.core.verdict.filters import AFFINITY, CARD, Filter, Stage, StageKind
from ullage.core.verdict.quota import Used
from ullage.core.verdict.shape import shape_of
from ullage.core.verdict.zones import fits_when_empty, refusal_on, refusal_when_empty
from ullage.model.amounts import Amounts
from ullage.model.claim import Request
from ullage.model.part import Isolation
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement

ZONES = "zones"
"""The stage that asks each node's own zones."""


def check_quota(
    fleet: Fleet, rules: Rules, request: Request, cards: Sequence[int], used: Used | None = None
) -> tuple[Rejection, ...]:
    """Return why quotas refuse a request on these cards, as many as it requests; None if they allow it."""
    asked = asked_on(fleet, request, cards)
    return rules.quotas.check(fleet.usage if used is None else used, request.claim.namespace, asked)


def check_limits(fleet: Fleet, rules: Rules, request: Request, cards: Sequence[int]) -> Rejection | None:
    """Return why oversubscription refuses the limits of a request on these cards of one node."""
    if not rules.oversubscription:
        return None
    charges = ((card, Amounts(*amounts_on(fleet, card, request)[0])) for card in cards)
    total = Amounts.sum_of(limit_on(fleet, card, request.claim.limit, charge) for card, charge in charges)
    return refuses_limit(fleet, int(fleet.card_row[cards[0]]), rules.oversubscription, rules.disks, total)


def same_on_all_cards(request: Request) -> bool:
    """Return whether a request counts the same on all cards."""
    part, limit = request.requirement.part, request.claim.limit
    if part is None or request.requirement.cards.isolation in (Isolation.SHARED, Isolation.PARTITIONED):
        return False
    return not (part.compute_ppm or part.vram_ppm or (limit is not None and limit.compute_ppm))


def refusals_on(
    fleet: Fleet, rules: Rules, request: Request, cards: Sequence[int], ahead: Sequence[Ahead] = ()
) -> tuple[Rejection, ...]:
    """Return what speaks against exactly these cards of one node, as many as are asked; empty if nothing does.

    What is reserved for those `ahead` is charged.
    """
    against = _refusals_on(fleet, rules, request, cards)
    if against or not ahead:
        return against
    with reserving(fleet, ahead):
        return tuple(map(_by_reserve, _refusals_on(fleet, rules, request, cards)))


def _refusals_on(fleet: Fleet, rules: Rules, request: Request, cards: Sequence[int]) -> tuple[Rejection, ...]:
    quota = check_quota(fleet, rules, request, cards)
    if quota:
        return quota
    against = tuple(why for card in cards if (why := CARD.first(fleet, card, request.requirement)) is not None)
    return (
        against
        or _node_refuses(fleet, cards[0], request)
        or _only(check_limits(fleet, rules, request, cards))
        or _cap_refuses(fleet, rules, cards[0])
        or _only(refusal_on(fleet, request.requirement, int(fleet.card_row[cards[0]]), cards))
    )


def find(
    fleet: Fleet,
    rules: Rules,
    request: Request,
    cards: Sequence[int] | None = None,
    *,
    used: Used | None = None,
    ahead: Sequence[Ahead] = (),
) -> Candidates:
    """Return all cards, or those of these, that would do, with what is reserved for those `ahead` charged.

    `used` is what namespaces have, if it is not what the books say.
    """
    free = _find(fleet, rules, request, cards, used)
    if not ahead or not free.by_node:
        return free
    with reserving(fleet, ahead):
        found = _find(fleet, rules, request, cards, used)
    stages = tuple(_with_reserved(stage, alone) for stage, alone in zip(found.stages, free.stages, strict=True))
    return replace(found, stages=stages, curable=True, with_reserved=True)


def _find(fleet: Fleet, rules: Rules, request: Request, cards: Iterable[int] | None, used: Used | None) -> Candidates:
    """Return the cards by stages: quota, each filter, what the node says, enough on one node.

    Where quotas depend on the card, a card passes if the namespace may have as many like it as are asked.
    """
    asked = request.requirement
    steps = _Steps(cards_of(fleet, asked, cards))
    of_kind = DependsOn.ITSELF if asked.cards.isolation is Isolation.PARTITIONED else DependsOn.KIND
    steps.take("quota", StageKind.CAPACITY, of_kind, _quota_of(fleet, rules, request, used))
    for filter_ in CARD.filters:
        if filter_.applies(asked):
            steps.take(filter_.name, filter_.kind, filter_.by, _alone(filter_, fleet, asked))
    steps.take("node", StageKind.NODE, DependsOn.NODE, lambda card: _node_refuses(fleet, card, request))
    if rules.oversubscription:
        steps.take("oversubscription", StageKind.NODE, DependsOn.ITSELF, _limits_of(fleet, rules, request))
    steps.take("worker-cap", StageKind.NODE, DependsOn.NODE, lambda card: _cap_refuses(fleet, rules, card))
    if asked.gpu_count > 1:
        counts = np.bincount(fleet.card_row[steps.left.positions], minlength=len(fleet.nodes))

        def enough(card: int) -> tuple[Rejection, ...]:
            found = counts.item(fleet.card_row[card])
            if found >= asked.gpu_count:
                return ()
            return (_reject(fleet, card, Code.NOT_ENOUGH_CARDS, Cure.CAPACITY, asked.gpu_count, found),)

        steps.take("same-node", StageKind.NODE, DependsOn.COUNT, enough)
    if shape_of(fleet, asked).rows[0, columns.NEEDS] and fleet.board.seats(asked):  # else they refuse nobody
        steps.take(ZONES, StageKind.NODE, DependsOn.MACHINE, _zones_of(fleet, asked, steps.left.positions.tolist()))
    by_node: dict[str, list[str]] = {}
    for card in steps.left.positions.tolist():
        by_node.setdefault(fleet.nodes[int(fleet.card_row[card])].name, []).append(fleet.cards[card].uuid)
    curable = not by_node and _could_help(fleet, rules, request, steps)
    return Candidates({node: tuple(by_node[node]) for node in sorted(by_node)}, tuple(steps.stages), curable)


class _Steps:
    """Cards that go through one rule after the other; `curable` went for what freed capacity could cure."""

    def __init__(self, cards: Cards) -> None:
        self.left = cards
        self.curable: list[Cards] = []
        self.stages: list[Stage] = []

    def take(self, name: str, kind: StageKind, by: DependsOn, check: Callable[[int], tuple[Rejection, ...]]) -> None:
        """Ask a rule about those that are left."""
        before, reached = len(self.left), bool(self.left) or not self.stages
        self.left, removed, curable = self.left.split(by, check)
        self.curable.append(curable)
        self.stages.append(Stage(name, kind, reached, before, len(self.left), removed, self.left.names))


def _alone(filter_: Filter, fleet: Fleet, asked: ResourceRequirement) -> Callable[[int], tuple[Rejection, ...]]:
    return lambda card: _only(filter_.check(fleet, card, asked))


def _could_help(fleet: Fleet, rules: Rules, request: Request, steps: _Steps) -> bool:
    """Return whether a schedulable node has enough cards that only lack capacity or quota for the request.

    The stages alone do not show this. A stage that removes a card hides the reasons of later stages, and the stage that
    emptied the list need not be the one that removed cards that could be freed.
    """
    asked, cards = request.requirement, steps.left.joined(steps.curable)
    hidden = [
        (DependsOn.CARD, lambda card: _only(CARD.first(fleet, card, asked))),
        (DependsOn.NODE, lambda card: _node_refuses(fleet, card, request)),
    ]
    if AFFINITY.applies(asked):
        hidden.insert(0, (AFFINITY.by, _alone(AFFINITY, fleet, asked)))
    if rules.oversubscription:
        hidden.append((DependsOn.ITSELF, _limits_of(fleet, rules, request)))
    for by, check in hidden:
        kept, _, curable = cards.split(by, check)
        cards = kept.joined([curable])
    rows = fleet.card_row[cards.positions]
    counts = np.bincount(rows[fleet.schedulable[rows]])
    return any(fits_when_empty(fleet, asked, row) for row in np.flatnonzero(counts >= asked.gpu_count).tolist())


def _quota_of(
    fleet: Fleet, rules: Rules, request: Request, used: Used | None
) -> Callable[[int], tuple[Rejection, ...]]:
    answers: dict[object, tuple[Rejection, ...]] = {}

    def check(card: int) -> tuple[Rejection, ...]:
        key = amounts_on(fleet, card, request), cores_on(fleet, card, request)
        if key not in answers:
            answers[key] = check_quota(fleet, rules, request, [card] * request.requirement.gpu_count, used)
        node, gpu = fleet.nodes[int(fleet.card_row[card])].name, fleet.cards[card].uuid
        return tuple(replace(why, node=node, gpu=gpu) for why in answers[key])

    return check


def _node_refuses(fleet: Fleet, card: int, request: Request) -> tuple[Rejection, ...]:
    row, asked = int(fleet.card_row[card]), request.requirement
    node = fleet.nodes[row]
    if not node.schedulable:
        return (_reject(fleet, card, Code.CORDONED if node.cordoned else Code.NOT_READY, Cure.NODE_CHANGE),)
    amounts = (
        (Code.CPU, asked.cpu_milli, max(0, int(fleet.cpu_free[row])), int(fleet.cpu_total[row])),
        (Code.MEMORY, asked.memory_bytes, max(0, int(fleet.memory_free[row])), int(fleet.memory_total[row])),
    )
    for code, need, _, total in amounts:
        if need > total:
            return (_reject(fleet, card, code, Cure.NODE_CHANGE, need, total),)
    for code, need, free, _ in amounts:
        if need > free:
            never = refusal_when_empty(fleet, asked, row)
            if never is not None:
                return (replace(never, gpu=fleet.cards[card].uuid),)
            return (_reject(fleet, card, code, Cure.CAPACITY, need, free),)
    return ()


def _limits_of(fleet: Fleet, rules: Rules, request: Request) -> Callable[[int], tuple[Rejection, ...]]:
    """Judges a card as if all cards of the request were like it."""

    def check(card: int) -> tuple[Rejection, ...]:
        found = check_limits(fleet, rules, request, [card] * request.requirement.gpu_count)
        return () if found is None else (replace(found, gpu=fleet.cards[card].uuid),)

    return check


def _zones_of(fleet: Fleet, asked: ResourceRequirement, left: Sequence[int]) -> Callable[[int], tuple[Rejection, ...]]:
    """Judges the node of a card by all cards of it that are left."""
    on: dict[int, list[int]] = {}
    for card in left:
        on.setdefault(int(fleet.card_row[card]), []).append(card)

    def check(card: int) -> tuple[Rejection, ...]:
        row = int(fleet.card_row[card])
        found = refusal_on(fleet, asked, row, on[row])
        return () if found is None else (replace(found, gpu=fleet.cards[card].uuid),)

    return check


def _cap_refuses(fleet: Fleet, rules: Rules, card: int) -> tuple[Rejection, ...]:
    row = int(fleet.card_row[card])
    workers = fleet.workers(row)
    most = fleet.slots_total.item(row) if rules.cap < 0 else rules.cap
    if workers < most:
        return ()
    return (_reject(fleet, card, Code.WORKER_CAP, Cure.CAPACITY, workers + 1, max(0, most)),)


def _only(found: Rejection | None) -> tuple[Rejection, ...]:
    return () if found is None else (found,)


def _reject(fleet: Fleet, card: int, code: Code, cure: Cure, needed: int = 0, had: int = 0) -> Rejection:
    return Rejection(code, cure, needed, had, fleet.nodes[int(fleet.card_row[card])].name, fleet.cards[card].uuid)


def _with_reserved(stage: Stage, alone: Stage) -> Stage:
    """Return a stage where room is reserved, with that as the reason why it removed what it keeps `alone`."""
    free = frozenset(alone.kept)
    if not free:
        return stage
    removed = (_by_reserve(rejection) if rejection.gpu in free else rejection for rejection in stage.removed)
    return replace(stage, removed=tuple(removed))


def _by_reserve(rejection: Rejection) -> Rejection:
    return replace(rejection, code=Code.NOMINATED, cure=Cure.CAPACITY)
