"""The cards that would do for one request, and every rule that removed another one.

What only room that is reserved for others stands in the way of is refused as `reserved-for-nominated`. A request that
does not fit without it either is refused for the reasons that hold then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ullage.core.books.capacity import limit_on, refuses_limit
from ullage.core.books.fleet import Column, Fleet
from ullage.core.kernel import columns
from ullage.core.kernel.columns import Flags
from ullage.core.kernel.reasons import FITS
from ullage.core.kernel.row_classes import number_classes
from ullage.core.placing.decision import Candidates
from ullage.core.placing.nomination import Ahead
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.verdict.cards import CardVerdicts, refusal_of
from ullage.core.verdict.counted import amounts_on, asked_on, cores_on
from ullage.core.verdict.nodes import closed, shortfalls, workers_at_cap
from ullage.core.verdict.quota import Used
from ullage.core.verdict.reasons import CARD_STAGES, StageKind
from ullage.core.verdict.shape import shape_of
from ullage.core.verdict.stages import OnDemand, Rejections, Stage
from ullage.core.verdict.zones import fits_when_empty, refusal_on, refusal_when_empty
from ullage.model.amounts import Amounts
from ullage.model.claim import Request
from ullage.model.part import Isolation
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement

Why = tuple[Rejection, ...]
"""Why a card was removed: several rejections if several quotas refuse."""


def check_quota(
    fleet: Fleet, rules: Rules, request: Request, cards: Sequence[int], used: Used | None = None
) -> tuple[Rejection, ...]:
    """Return why quotas refuse a request on these cards, as many as it requests; empty if they allow it.

    Quotas count nothing of a request without cards.
    """
    if not cards or not rules.quotas.levels(request.claim.quota_name):
        return ()
    asked = asked_on(fleet, request, cards)
    return rules.quotas.check(fleet.usage if used is None else used, request.claim.quota_name, asked)


def check_limits(fleet: Fleet, rules: Rules, request: Request, cards: Sequence[int]) -> Rejection | None:
    """Return why oversubscription refuses the limits of a request on these cards of one node."""
    if not rules.oversubscription:
        return None
    charges = ((card, Amounts(*amounts_on(fleet, card, request)[0])) for card in cards)
    total = Amounts.sum_of(limit_on(fleet, card, request.claim.limit, charge) for card, charge in charges)
    row = fleet.card_row.item(next(iter(cards)))
    return refuses_limit(fleet, row, rules.oversubscription, rules.disks, limit=total)


def same_on_all_cards(request: Request) -> bool:
    part, limit = request.requirement.part, request.claim.limit
    if part is None or request.requirement.cards.isolation in (Isolation.SHARED, Isolation.PARTITIONED):
        return False
    return not (part.compute_ppm or part.vram_ppm or (limit is not None and limit.compute_ppm))


def refusals_on(
    fleet: Fleet, rules: Rules, request: Request, cards: Sequence[int], ahead: Sequence[Ahead] = ()
) -> tuple[Rejection, ...]:
    """Return what speaks against exactly these cards of one node, as many as are requested; empty if nothing does.

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
    first, *_ = cards
    asked, row = request.requirement, fleet.card_row.item(first)
    against = tuple(why for card in cards if (why := refusal_of(fleet, card, asked)) is not None)
    if against:
        return against
    others = (
        node_refuses(fleet, row, asked),
        check_limits(fleet, rules, request, cards),
        _cap_refuses(fleet, rules, row, asked),
        refusal_on(fleet, asked, row, cards),
    )
    found = next((found for found in others if found is not None), None)
    return () if found is None else (replace(found, gpu=fleet.cards[first].uuid),)


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
    free = judge(fleet, rules, request, cards, used=used).candidates()
    if not ahead or not free.by_node:
        return free
    with reserving(fleet, ahead):
        found = judge(fleet, rules, request, cards, used=used).candidates()
    stages = tuple(_with_reserved(stage, alone) for stage, alone in zip(found.stages, free.stages, strict=True))
    return replace(found, stages=stages, curable=True, with_reserved=True)


def judge(
    fleet: Fleet, rules: Rules, request: Request, cards: Iterable[int] | None = None, used: Used | None = None
) -> Judgement:
    """Apply all rules to all cards, or to these: quota, the card, its node, enough on one node, zones.

    Where quotas depend on the card, a card passes if the namespace may have as many like it as are requested.
    """
    chosen = np.arange(len(fleet.cards)) if cards is None else np.array(sorted(set(cards)), dtype=np.int64)
    judged = Judgement(fleet, rules, request, chosen)
    judged.by_quota(used)
    judged.by_card()
    judged.by_node()
    judged.by_number()
    judged.by_zones()
    return judged


@dataclass(frozen=True, slots=True)
class RemovedCards:
    """The cards that one rule removed, as positions in the judgement.

    Cards of equal `classes` have the same reasons; `why` returns those of the card at a position.
    """

    cards: Column
    classes: Column
    why: Callable[[int], Why]


@dataclass(frozen=True, slots=True)
class _CardQuestions:
    """The rules about single cards: each returns why it refuses the request on the card at a position."""

    fleet: Fleet
    rules: Rules
    request: Request
    cards: Column
    rows: Column

    def node(self, k: int) -> Why:
        return _only(node_refuses(self.fleet, self.rows.item(k), self.request.requirement))

    def cap(self, k: int) -> Why:
        return _only(_cap_refuses(self.fleet, self.rules, self.rows.item(k), self.request.requirement))

    def limits(self, k: int) -> Why:
        """Return why oversubscription refuses the request as if all its cards were like this one."""
        cards = [self.cards.item(k)] * self.request.requirement.gpu_count
        return _only(check_limits(self.fleet, self.rules, self.request, cards))

    def named(self, why: Callable[[int], Why]) -> Callable[[int], Why]:
        """Return the same with the names of the node and the card."""
        nodes, gpus, cards, rows = self.fleet.nodes, self.fleet.cards, self.cards, self.rows

        def named(k: int) -> Why:
            node, gpu = nodes[rows.item(k)].name, gpus[cards.item(k)].uuid
            return tuple(replace(each, node=node, gpu=gpu) for each in why(k))

        return named


class Judgement:
    """All rules over some cards for one request, as arrays with a position per card.

    What a stage keeps to name reasons later holds no judgement, so that nothing outlives the last reader of a refusal.
    """

    def __init__(self, fleet: Fleet, rules: Rules, request: Request, cards: Column) -> None:
        self.cards = cards
        self.rows = fleet.card_row[cards]
        self._questions = _CardQuestions(fleet, rules, request, cards=cards, rows=self.rows)
        self.left = np.arange(len(cards))
        """Positions of the cards that passed all rules so far."""
        self.removed: list[RemovedCards] = []
        self._stages: list[Stage] = []
        self._fleet, self._rules, self._request, self._asked = fleet, rules, request, request.requirement
        self._verdicts = CardVerdicts(fleet, request.requirement, cards)
        self._each = self.left
        self._of_nodes: dict[int, Why] = {}
        """Why nodes refuse the request, by their class."""
        self._lost: Flags = np.zeros(len(cards), dtype=bool)
        """The cards that went for what neither freed capacity nor a change of quota could cure."""
        self._possible = (self._verdicts.reason == FITS) | self._verdicts.curable
        """The cards that only a change of the node could not help: others may leave, or the request may change."""

    def candidates(self) -> Candidates:
        """Return the cards that passed, by node, and every stage."""
        fleet, by_node = self._fleet, dict[str, list[str]]()
        for card, row in zip(self.cards[self.left].tolist(), self.rows[self.left].tolist(), strict=True):
            by_node.setdefault(fleet.nodes[row].name, []).append(fleet.cards[card].uuid)
        curable = not by_node and next(self.rows_that_could_fit(), None) is not None
        return Candidates({node: tuple(by_node[node]) for node in sorted(by_node)}, tuple(self._stages), curable)

    def rows_that_could_fit(self) -> Iterator[int]:
        """Yield the nodes with enough cards that only lack capacity or quota for the request.

        The stages alone do not show this. A stage that removes a card hides the reasons of later stages, and the stage
        that emptied the list need not be the one that removed cards that could be freed.
        """
        helps = ~self._lost & ((self._verdicts.reason == FITS) | self._verdicts.curable)
        positions = helps.nonzero()[0]
        positions = positions[_where(positions, self._node_classes, lambda k: _could(self._why_node(k)))]
        if self._rules.oversubscription:
            positions = positions[_where(positions, self._each, lambda k: _could(self._questions.limits(k)))]
        counts = np.bincount(self.rows[positions], minlength=len(self._fleet.nodes))
        for row in np.flatnonzero(counts >= max(1, self._asked.gpu_count)).tolist():
            if fits_when_empty(self._fleet, self._asked, row):
                yield row

    # --- rules, in order ---

    def by_quota(self, used: Used | None) -> None:
        """Remove the cards on which the quotas refuse the request."""
        fleet, rules, request, cards = self._fleet, self._rules, self._request, self.cards
        answers: dict[object, Why] = {}

        def check(k: int) -> Why:
            card = cards.item(k)
            key = amounts_on(fleet, card, request), cores_on(fleet, card, request)
            if key not in answers:
                equal_cards = [card] * request.requirement.gpu_count
                answers[key] = check_quota(fleet, rules, request, equal_cards, used=used)
            return answers[key]

        of_kind = self._asked.cards.isolation is not Isolation.PARTITIONED
        classes = fleet.card_rows[self.cards, columns.KIND] if of_kind else self._each
        self._ask("quota", StageKind.CAPACITY, classes, check)

    def by_card(self) -> None:
        """Remove the cards that take no share, by stages.

        A stage that does not apply to the request is reported only if it removes cards.
        """
        verdicts = self._verdicts
        for stage in CARD_STAGES:
            goes = stage.removes[verdicts.reason[self.left]]
            if stage.applies(self._asked) or goes.any():
                gone = self.left[goes]
                possible = gone[self._possible[gone]]
                self._possible[possible[_where(possible, self._node_classes, self._node_never_does)]] = False
                removed = RemovedCards(gone, verdicts.classes[gone], lambda k: (verdicts.rejection(k),))
                self._remove(stage.name, stage.kind, removed, ~goes, lost=gone[~verdicts.curable[gone]])

    def by_node(self) -> None:
        """Remove the cards of nodes that lack CPU or memory, promise too much, or have too many workers."""
        self._ask("node", StageKind.NODE, self._node_classes, self._questions.node)
        if self._rules.oversubscription:
            self._ask("oversubscription", StageKind.NODE, self._each, self._questions.limits)
        self._ask("worker-cap", StageKind.NODE, self._node_classes, self._questions.cap)

    def by_number(self) -> None:
        """Remove the cards of nodes that have fewer of them left than one request needs."""
        count = self._asked.gpu_count
        if count > 1:
            counts = np.bincount(self.rows[self.left], minlength=len(self._fleet.nodes))[self.rows]

            def enough(k: int) -> Why:
                had = counts.item(k)
                return () if had >= count else (Rejection(Code.NOT_ENOUGH_CARDS, Cure.CAPACITY, count, had),)

            self._ask("same-node", StageKind.NODE, counts, enough)

    def by_zones(self) -> None:
        """Remove the cards of nodes whose zones refuse a unit on the cards that are left there."""
        fleet, asked, rows = self._fleet, self._asked, self.rows
        may_refuse = fleet.board.seats(asked) or asked.alignment.required
        if not shape_of(fleet, asked).rows[0, columns.NEEDS] or not may_refuse:
            return  # zones refuse nothing
        on: dict[int, list[int]] = {}
        for k in self.left.tolist():
            on.setdefault(rows.item(k), []).append(self.cards.item(k))

        def check(k: int) -> Why:
            row = rows.item(k)
            return _only(refusal_on(fleet, asked, row, on[row]))

        self._ask("zones", StageKind.NODE, self.rows, check)

    # --- steps ---

    def _node_never_does(self, k: int) -> bool:
        """Return whether only a change of its node could help a card."""
        return any(each.cure is Cure.NODE_CHANGE for each in self._why_node(k))

    def _why_node(self, k: int) -> Why:
        """Return why the node of a card refuses the request; nodes of one class have the same reason."""
        number = self._node_classes.item(k)
        if number not in self._of_nodes:
            self._of_nodes[number] = self._questions.node(k)
        return self._of_nodes[number]

    @cached_property
    def _node_classes(self) -> Column:
        """Per card, the class of its node: nodes of one class have as much of everything but cards."""
        fleet, asked = self._fleet, self._asked
        if shape_of(fleet, asked).rows[0, columns.NEEDS]:
            return self.rows  # an empty node may refuse too, by its zones
        rows, at_row = np.unique(self.rows, return_inverse=True)
        state = [0 if fleet.schedulable[row] else 1 + fleet.nodes[row].cordoned for row in rows.tolist()]
        facts = np.column_stack([np.array(state, dtype=np.int64), fleet.node_rows[rows][:, _OF_NODE]])
        numbers, _ = number_classes(np.ascontiguousarray(facts))
        return numbers[at_row]

    def _ask(self, name: str, kind: StageKind, classes: Column, check: Callable[[int], Why]) -> None:
        """Ask a rule about one card of each class of those that are left; its answer holds for the class."""
        answers: dict[int, Why] = {}

        def why(k: int) -> Why:
            number = classes.item(k)
            if number not in answers:
                answers[number] = check(k)
            return answers[number]

        goes = _where(self.left, classes, lambda k: bool(why(k)))
        gone = self.left[goes]
        lost = gone[~_where(gone, classes, lambda k: _could(why(k)))]
        hopeless = _where(gone, classes, lambda k: any(each.cure is Cure.NODE_CHANGE for each in why(k)))
        self._possible[gone[hopeless]] = False
        named = self._questions.named(why)
        self._remove(name, kind, RemovedCards(gone, classes[gone], named), ~goes, lost=lost)

    def _remove(self, name: str, kind: StageKind, removed: RemovedCards, stays: Flags, lost: Column) -> None:
        before, reached = len(self.left), bool(len(self.left)) or not self._stages
        self.left = self.left[stays]
        self._lost[lost] = True
        if len(removed.cards):
            self.removed.append(removed)
        gpus, cards, gone = self._fleet.cards, self.cards, removed.cards
        kept = OnDemand(self.left, lambda k: (gpus[cards[k]].uuid,))
        possible = self._possible[gone]
        why = self._rejections(removed, slice(None))
        by_cure = why if possible.all() else self._rejections(removed, np.argsort(~possible, kind="stable"))
        after = len(self.left)
        self._stages.append(
            Stage(
                filter=name,
                kind=kind,
                reached=reached,
                before=before,
                after=after,
                removed=why,
                kept=kept,
                possible=int(possible.sum()),
                by_cure=by_cure,
            )
        )

    def _rejections(self, removed: RemovedCards, order: slice | Column) -> Rejections:
        gone = removed.cards[order]
        rows, nodes = self.rows[gone], self._fleet.nodes
        return Rejections(removed.why, gone, removed.classes[order], rows, nodes=nodes)


def _where(positions: Column, classes: Column, holds: Callable[[int], bool]) -> Flags:
    """Return per position whether something holds, asking about the first one of each class."""
    if not len(positions):
        return np.zeros(0, dtype=bool)
    numbers = classes[positions]
    first = np.full(numbers.max() + 1, -1)
    first[numbers[::-1]] = positions[::-1]
    answers: Flags = np.array([k >= 0 and holds(k) for k in first.tolist()], dtype=bool)
    return answers[numbers]


_OF_NODE = [
    columns.CPU_TOTAL,
    columns.CPU_FREE,
    columns.MEMORY_TOTAL,
    columns.MEMORY_FREE,
    columns.SLOTS_TOTAL,
    columns.SLOTS_FREE,
]


def node_refuses(fleet: Fleet, row: int, asked: ResourceRequirement) -> Rejection | None:
    """Return the first reason why a node takes no unit of a request, its cards and its zones aside."""
    shut = closed(fleet, row)
    short = [shut] if shut is not None else shortfalls(fleet, row, asked)
    if not short:
        return None
    first = min(short, key=lambda each: each.cure is Cure.CAPACITY)
    return first if first.cure is not Cure.CAPACITY else refusal_when_empty(fleet, asked, row) or first


def _cap_refuses(fleet: Fleet, rules: Rules, row: int, asked: ResourceRequirement) -> Rejection | None:
    workers = workers_at_cap(fleet, row, asked, rules.cap)
    if workers is None:
        return None
    used, most = workers
    return Rejection(Code.WORKER_CAP, Cure.CAPACITY, used + 1, max(0, most), node=fleet.nodes[row].name)


def _could(why: Why) -> bool:
    """Return whether freed capacity or a change of quota could cure all of these."""
    return all(each.cure in (Cure.CAPACITY, Cure.QUOTA) for each in why)


def _only(found: Rejection | None) -> Why:
    return () if found is None else (found,)


def _with_reserved(stage: Stage, alone: Stage) -> Stage:
    """Return a stage where room is reserved, with that as the reason why it removed what it keeps `alone`."""
    free = frozenset(alone.kept)
    if not free:
        return stage
    removed, by_cure = (
        tuple(_by_reserve(rejection) if rejection.gpu in free else rejection for rejection in rejections)
        for rejections in (stage.removed, stage.by_cure)
    )
    return replace(stage, removed=removed, by_cure=by_cure)


def _by_reserve(rejection: Rejection) -> Rejection:
    return replace(rejection, code=Code.NOMINATED, cure=Cure.CAPACITY)
