"""Where one request for cards could go, where it goes, and every step of why: pure looks at the books.

`find` runs all stages and keeps what each removed; `choose` gives the same answer from the table of the
request's shape, without looking at every card, and falls back to `find` to explain a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np

from ullage.core.books.capacity import limit_on, refuses_limit
from ullage.core.books.fleet import Fleet
from ullage.core.kernel import columns
from ullage.core.kernel.tree import NO_ROOM
from ullage.core.placing.placement import Table, table_of
from ullage.core.strategies import PARTS_BY, strategy_named
from ullage.core.strategies.load import Weights, by_load
from ullage.core.strategies.strategy import Strategy
from ullage.core.verdict.counted import amounts_on, asked_on, cores_on
from ullage.core.verdict.equivalence import Cards, DependsOn, cards_of
from ullage.core.verdict.filters import AFFINITY, CARD, Filter, Kind, Stage, charges_on
from ullage.core.verdict.quota import Asked, Quotas, Used
from ullage.core.verdict.sentences import MEANINGS, first_text
from ullage.core.verdict.shape import shape_of
from ullage.core.verdict.zones import fits_when_empty, placement_on, refusal_on, refusal_when_empty
from ullage.model.allocation import Charge
from ullage.model.claim import Request
from ullage.model.oversubscription import Oversubscription
from ullage.model.part import Isolation
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.zone_placement import ZonePlacement

WORKERS_PER_NODE = 256

PROTECTED_S = 60.0
"""How long whoever others gave way to is shielded, unless a rule says otherwise."""

ZONES = "zones"
"""The stage that asks each node's own zones."""

WHOLE_BY = "node-compact-gpu-low-load"
"""The strategy of requests for whole cards and for partitions, if nobody names one."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How requests for cards are judged.

    `strategies` maps a pool to its strategy, `strategy` is that of the others: a name, or a strategy with a
    state of its own; with None parts of cards go by `leftover` and all else by the default for whole cards.
    `weights` of a pool, or of "" for the others, are those of vram and compute in named
    strategies by load. `workers_per_node` is the most allocations a node may have, 0 for any number, None for
    as many as it says itself.
    `oversubscription` maps a pool, or "" for the others, to what its nodes may promise (none: as much as
    anybody asks); `disks` are the bytes of disk per node that count for it. `preempt_cluster_wide` lets a
    request evict work of any namespace, not only of its own; `min_available` is how many workers of a
    (namespace, workload) eviction leaves, wherever possible. Whoever others gave way to is shielded for
    `protected_s` once it has its cards. With `any_pool` a request may name a pool that no card is in, as nodes come and
    go.
    """

    strategy: str | Strategy | None = None
    strategies: Mapping[str, str | Strategy | None] = field(default_factory=dict)
    weights: Mapping[str, Weights] = field(default_factory=dict)
    workers_per_node: int | None = WORKERS_PER_NODE
    quotas: Quotas = field(default_factory=Quotas)
    oversubscription: Mapping[str, Oversubscription] = field(default_factory=dict)
    disks: Mapping[str, int] = field(default_factory=dict)
    preempt_cluster_wide: bool = True
    min_available: Mapping[tuple[str, str], int] = field(default_factory=dict)
    protected_s: float = PROTECTED_S
    any_pool: bool = False

    def strategy_of(self, request: Request) -> Strategy:
        """The request's own strategy, or its pool's, with the weights of the pool.

        Raises:
            InvalidRequest: there is none of that name.

        """
        pool = request.requirement.cards.pool or ""
        usual = PARTS_BY if request.requirement.shares_cards else WHOLE_BY
        named = (request.strategy, self.strategies.get(pool), self.strategy, usual)
        chosen = next(strategy for strategy in named if strategy is not None)
        if not isinstance(chosen, str):
            return chosen
        strategy, weights = strategy_named(chosen), self.weights.get(pool, self.weights.get(""))
        return strategy if weights is None else by_load(strategy.name, weights) or strategy

    @property
    def cap(self) -> int:
        """Workers per node as a number that can be compared; -1 for as many as each says itself."""
        return -1 if self.workers_per_node is None else self.workers_per_node or 2**62


@dataclass(frozen=True, slots=True)
class Candidates:
    """Cards that would do, per node in order of name, and what each stage did to get there.

    `curable`, where there are none, says whether freed capacity could help on any node.
    """

    by_node: dict[str, tuple[str, ...]]
    stages: tuple[Stage, ...]
    curable: bool = False

    @property
    def refusals(self) -> Sequence[Rejection]:
        """Why there is none: what the stage that emptied the list removed; nothing if there are some."""
        if self.by_node:
            return ()
        removed = next((stage.removed for stage in self.stages if stage.reached and not stage.after), ())
        return removed or (Rejection(Code.NO_CANDIDATE, Cure.NODE_CHANGE),)

    @property
    def refusal(self) -> Refusal:
        """That there is none, as an answer."""
        return Refusal(self.refusals, self.stages, self.curable)


@dataclass(frozen=True, slots=True)
class Scores:
    """Higher is better: per node, and per node and card."""

    nodes: dict[str, float]
    cards: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Choice:
    """The node and cards a request gets, and what it takes of each; where they lie in the books that were looked at.

    `placement` says in which zones it lies, if that was decided with it.
    """

    node: str
    gpus: tuple[str, ...]
    charges: tuple[Charge, ...]
    score: float = 0
    cards: Sequence[int] | None = field(default=None, compare=False, repr=False)
    placement: ZonePlacement | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, repr=False)
class Refusal:
    """Why a request gets nothing: the first rejection decides, `stages` tell the whole story.

    `helps` says whether freed capacity could help on any node, where whole nodes were looked at. As text it is the
    deciding reason in one sentence.
    """

    rejections: Sequence[Rejection]
    stages: tuple[Stage, ...] = ()
    helps: bool | None = None

    @property
    def code(self) -> Code:
        """The deciding reason."""
        return self.rejections[0].code if self.rejections else Code.NO_CANDIDATE

    @property
    def curable(self) -> bool:
        """Whether freed capacity could help at all, so that preemption is worth a try."""
        return any(map(_is_curable, self.rejections)) if self.helps is None else self.helps

    def __str__(self) -> str:
        if not self.rejections:
            return f"{self.code}: {MEANINGS[self.code]}"
        return f"{self.code}: {first_text(self.rejections)}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.code}, {len(self.rejections)} rejections, curable={self.curable}>"


def _is_curable(rejection: Rejection) -> bool:
    return rejection.cure in (Cure.CAPACITY, Cure.QUOTA)


def check_quota(
    fleet: Fleet, rules: Rules, request: Request, cards: Sequence[int], used: Used | None = None
) -> tuple[Rejection, ...]:
    """What the quotas say to this request on these cards, as many as it asks for."""
    asked = asked_on(fleet, request, cards)
    return rules.quotas.check(fleet.usage if used is None else used, request.claim.namespace, asked)


def check_limits(fleet: Fleet, rules: Rules, request: Request, cards: Sequence[int]) -> Rejection | None:
    """What oversubscription says to the limits of this request on these cards of one node."""
    if not rules.oversubscription:
        return None
    limits = [limit_on(fleet, card, request.claim.limit, amounts_on(fleet, card, request)[0]) for card in cards]
    total = sum(compute for compute, _ in limits), sum(vram for _, vram in limits)
    return refuses_limit(fleet, int(fleet.card_row[cards[0]]), rules.oversubscription, rules.disks, total)


def same_on_all_cards(request: Request) -> bool:
    """Whether what the request counts for does not depend on the card it gets."""
    part, limit = request.requirement.part, request.claim.limit
    if part is None or request.requirement.cards.isolation in (Isolation.SHARED, Isolation.PARTITIONED):
        return False
    return not (part.compute_ppm or part.vram_ppm or (limit is not None and limit.compute_ppm))


class _Case:
    """Requests that differ in whose they are only: what stays for them while the rules and the inventory do."""

    def __init__(self, fleet: Fleet, rules: Rules, request: Request) -> None:
        self.rules = rules
        self._fleet = fleet
        self._asked = asked = request.requirement
        self._strategy = rules.strategy_of(request)
        self._made: tuple[Strategy, Table] | None = None
        self._promises_differ = bool(rules.oversubscription) and not same_on_all_cards(request)
        self._counts_differ = asked.cards.isolation is Isolation.PARTITIONED
        self._request = request
        self.simple = not rules.oversubscription and not self._counts_differ
        """Whether the columns say all that decides."""

    def sums_allow(self, namespace: str) -> bool:
        """Whether the quotas allow the request wherever it goes, and promises do not depend on the card it gets."""
        if self._promises_differ:
            return False
        quotas = self.rules.quotas
        levels = quotas.levels(namespace)
        if not levels:
            return True
        if self._counts_differ:
            return False
        return self._most is None or quotas.allow(self._fleet.usage, levels, self._most)

    @cached_property
    def _most(self) -> Asked | None:
        """What one counts for in quotas at most, wherever it goes; None if it goes nowhere.

        Cards of one kind count the same, so one of each kind is asked about, as if all that the request takes
        were like it: no mixture counts for more than the largest of these.
        """
        kinds, count = shape_of(self._fleet, self._asked).kinds, self._asked.gpu_count
        asked = [asked_on(self._fleet, self._request, [card] * count) for card in kinds]
        return reduce(Asked.most, asked) if asked else None

    def table(self) -> Table:
        """The table of the requests, under the strategy as it decides on these books now."""
        strategy = self._strategy.on(self._fleet)
        if self._made is None or self._made[0] is not strategy:
            self._made = strategy, table_of(self._fleet, self._asked, strategy, self.rules.cap)
        return self._made[1]


_MAX_CASES = 64
"""Cases of one shape remembered at a time."""


def _case_of(fleet: Fleet, rules: Rules, request: Request) -> _Case:
    cases = shape_of(fleet, request.requirement).cases
    key = id(rules), request.strategy, request.claim.promise
    case = cases.get(key)
    if not isinstance(case, _Case):
        if len(cases) >= _MAX_CASES:
            cases.clear()
        case = cases[key] = _Case(fleet, rules, request)  # it keeps the rules, so that their id stays theirs
    return case


def decided_by_sums(fleet: Fleet, rules: Rules, request: Request) -> bool:
    """Whether the table of the request says of each node all that decides."""
    case = _case_of(fleet, rules, request)
    return case.simple and case.sums_allow(request.claim.namespace)


def refusals_on(fleet: Fleet, rules: Rules, request: Request, cards: Sequence[int]) -> tuple[Rejection, ...]:
    """What speaks against exactly these cards of one node, as many as are asked; empty if nothing does."""
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


# --- every step ---


def find(
    fleet: Fleet, rules: Rules, request: Request, cards: Iterable[int] | None = None, used: Used | None = None
) -> Candidates:
    """All cards that would do, by stages: quota, each filter, what the node says, enough on one node.

    Where quotas depend on the card, a card passes if the namespace may have as many like it as are asked.
    """
    asked = request.requirement
    steps = _Steps(cards_of(fleet, asked, cards))
    of_kind = DependsOn.ITSELF if asked.cards.isolation is Isolation.PARTITIONED else DependsOn.KIND
    steps.take("quota", Kind.CAPACITY, of_kind, _quota_of(fleet, rules, request, used))
    for filter_ in CARD.filters:
        if filter_.applies(asked):
            steps.take(filter_.name, filter_.kind, filter_.by, _alone(filter_, fleet, asked))
    steps.take("node", Kind.NODE, DependsOn.NODE, lambda card: _node_refuses(fleet, card, request))
    if rules.oversubscription:
        steps.take("oversubscription", Kind.NODE, DependsOn.ITSELF, _limits_of(fleet, rules, request))
    steps.take("worker-cap", Kind.NODE, DependsOn.NODE, lambda card: _cap_refuses(fleet, rules, card))
    if asked.gpu_count > 1:
        counts = np.bincount(fleet.card_row[steps.left.positions], minlength=len(fleet.nodes))

        def enough(card: int) -> tuple[Rejection, ...]:
            found = counts.item(fleet.card_row[card])
            if found >= asked.gpu_count:
                return ()
            return (_reject(fleet, card, Code.NOT_ENOUGH_CARDS, Cure.CAPACITY, asked.gpu_count, found),)

        steps.take("same-node", Kind.NODE, DependsOn.COUNT, enough)
    if shape_of(fleet, asked).rows[0, columns.NEEDS] and fleet.board.seats(asked):  # else they refuse nobody
        steps.take(ZONES, Kind.NODE, DependsOn.MACHINE, _zones_of(fleet, asked, steps.left.positions.tolist()))
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

    def take(self, name: str, kind: Kind, by: DependsOn, check: Callable[[int], tuple[Rejection, ...]]) -> None:
        """Ask a rule about those that are left."""
        before, reached = len(self.left), bool(self.left) or not self.stages
        self.left, removed, curable = self.left.split(by, check)
        self.curable.append(curable)
        self.stages.append(Stage(name, kind, reached, before, len(self.left), removed, self.left.names))


def _alone(filter_: Filter, fleet: Fleet, asked: ResourceRequirement) -> Callable[[int], tuple[Rejection, ...]]:
    return lambda card: _only(filter_.check(fleet, card, asked))


def _could_help(fleet: Fleet, rules: Rules, request: Request, steps: _Steps) -> bool:
    """Whether some node that takes work has enough cards that only capacity or quota keeps the request from.

    The stages alone do not say so. One that removed a card hides what later ones have against it, and the
    one that emptied the list need not be the one that removed the cards that somebody could free.
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


# --- how good, and which ---


def score(fleet: Fleet, rules: Rules, request: Request, by_node: Mapping[str, Sequence[str]]) -> Scores:
    """Scores of candidate nodes and cards."""
    strategy, table, shape = (
        rules.strategy_of(request).on(fleet),
        table_for(fleet, rules, request),
        shape_of(fleet, request.requirement),
    )
    nodes, cards = {}, {}
    for node, uuids in by_node.items():
        row = fleet.row_of[node]
        eligible = [fleet.card_of[uuid] for uuid in uuids]
        nodes[node] = table.score(row, eligible)
        cards[node] = {fleet.cards[card].uuid: strategy.card(fleet, card, shape) for card in eligible}
    return Scores(nodes, cards)


def terms(fleet: Fleet, rules: Rules, request: Request, node: str) -> dict[str, float]:
    """What decides about a node with room, where that is more than its score."""
    return table_for(fleet, rules, request).terms(fleet.row_of[node])


def select(fleet: Fleet, rules: Rules, request: Request, by_node: Mapping[str, Sequence[str]]) -> Choice | Refusal:
    """The best node with enough candidates, and on it the best cards; ties by name."""
    count = request.requirement.gpu_count
    enough = {node: uuids for node, uuids in by_node.items() if len(uuids) >= count}
    if not enough:
        most = max((len(uuids) for uuids in by_node.values()), default=0)
        return Refusal((Rejection(Code.NO_NODE_FITS, Cure.CAPACITY, count, most),))
    nodes = score(fleet, rules, request, enough).nodes
    node = min(enough, key=lambda name: (-nodes[name], name))
    eligible = sorted(fleet.card_of[uuid] for uuid in enough[node])
    return _choice(fleet, rules, request, node, eligible, nodes[node])


def choose(fleet: Fleet, rules: Rules, request: Request) -> Choice | Refusal:
    """Where the request goes now, or why nowhere."""
    case = _case_of(fleet, rules, request)
    if not case.sums_allow(request.claim.namespace):
        candidates = find(fleet, rules, request)
        if not candidates.by_node:
            return candidates.refusal
        return select(fleet, rules, request, candidates.by_node)
    table = case.table()
    chosen = _choose_promised(fleet, rules, request, table) if rules.oversubscription else table.choose()
    if chosen is None:
        return _refused(fleet, rules, request)
    row, cards = chosen
    node, gpus = fleet.nodes[row].name, fleet.uuids(cards)
    return Choice(node, gpus, table.charges(cards), table.ranked.item(row), cards, table.placed)


def choose_on(fleet: Fleet, rules: Rules, request: Request, row: int) -> Choice | None:
    """The cards of a node that the request would get, where its table says all that decides; None too if none would do.

    The same as `select` of what `find` finds there.
    """
    if not decided_by_sums(fleet, rules, request) or rules.oversubscription:
        return None
    table = table_for(fleet, rules, request)
    cards = None if table.ranked.item(row) == NO_ROOM else table.pick(row)
    if cards is None:
        return None
    score = table.ranked.item(row)
    return Choice(fleet.nodes[row].name, fleet.uuids(cards), table.charges(cards), score, cards, table.placed)


class Taken(NamedTuple):
    """The row of a node, positions of cards on it, and what a request takes of each; all that is charged."""

    row: int
    cards: list[int]
    charges: tuple[Charge, ...]
    placement: ZonePlacement | None


def take(fleet: Fleet, rules: Rules, request: Request) -> Taken | None:
    """What `choose` would choose, with the columns charged for it: `Fleet.enter` must follow.

    None if it is not so simple, or nothing fits: `choose` says which.
    """
    if not decided_by_sums(fleet, rules, request):
        return None
    table = _case_of(fleet, rules, request).table()
    taken = table.take()
    return None if taken is None else Taken(*taken, table.charges(taken[1]), table.placed)


def _choose_promised(fleet: Fleet, rules: Rules, request: Request, table: Table) -> tuple[int, list[int]] | None:
    """The best node with room that may promise what the request may use; the same on all cards of a node."""
    for row in np.argsort(-table.refreshed().ranked, kind="stable").tolist():
        if table.ranked[row] == NO_ROOM:
            break
        if _promises(fleet, rules, request, table, row):
            return row, table.pick(row) or []
    return None


def _promises(fleet: Fleet, rules: Rules, request: Request, table: Table, row: int) -> bool:
    card = table.eligible(row)[0]
    return check_limits(fleet, rules, request, [card] * request.requirement.gpu_count) is None


def _choice(
    fleet: Fleet, rules: Rules, request: Request, node: str, eligible: list[int], score: float
) -> Choice | Refusal:
    table, row = table_for(fleet, rules, request), fleet.row_of[node]
    cards = table.pick_among(row, eligible)
    if cards is None:
        return Refusal(_only(refusal_on(fleet, request.requirement, row, eligible)))
    charges = charges_on(fleet, cards, request.requirement)
    return Choice(node, fleet.uuids(cards), charges, score, placement=table.placed)


def placement_of(fleet: Fleet, asked: ResourceRequirement, choice: Choice) -> ZonePlacement | None:
    """In which zones a choice lies: as was decided with it, or else as its cards decide on the books as they are."""
    if choice.placement is not None:
        return choice.placement
    cards = [fleet.card_of[uuid] for uuid in choice.gpus] if choice.cards is None else choice.cards
    return placement_on(fleet, asked, choice.node, cards)


def _refused(fleet: Fleet, rules: Rules, request: Request) -> Refusal:
    return find(fleet, rules, request).refusal


def table_for(fleet: Fleet, rules: Rules, request: Request) -> Table:
    """The table of the request, up to date."""
    return table_of(fleet, request.requirement, rules.strategy_of(request), rules.cap).refreshed()
