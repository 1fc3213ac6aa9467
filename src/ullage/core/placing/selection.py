"""Places one request for cards: the same function for all callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np

from ullage.core.books.fleet import Column, Fleet
from ullage.core.books.usage import Usage, usage_of
from ullage.core.kernel.columns import KIND
from ullage.core.kernel.tree import NO_ROOM
from ullage.core.placing.candidates import check_limits, find, refusals_on, same_on_all_cards
from ullage.core.placing.decision import Choice, Refusal, Scores
from ullage.core.placing.nomination import Ahead, Nominations, touching
from ullage.core.placing.placement import Table, table_of
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.strategies.strategy import Strategy
from ullage.core.verdict.cards import charges_on
from ullage.core.verdict.counted import asked_on
from ullage.core.verdict.quota import Asked, Ceilings
from ullage.core.verdict.shape import shape_of
from ullage.core.verdict.zones import placement_on, refusal_on
from ullage.model.allocation import Allocation, Charge
from ullage.model.claim import Request
from ullage.model.part import Isolation
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.zone_placement import ZonePlacement


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
        self._ceilings: dict[str, Ceilings | None] = {}
        self._usages: dict[tuple[int, ...], Usage] = {}
        self.simple = not rules.oversubscription and not self._counts_differ
        """Whether the columns of the books decide alone."""

    def sums_allow(self, namespace: str) -> bool:
        """Return whether quotas allow the request on any card, and oversubscription does not depend on the card."""
        try:
            ceilings = self._ceilings[namespace]
        except KeyError:
            ceilings = self._find_ceilings(namespace)
        return ceilings is not None and (not ceilings or self.rules.quotas.below(self._fleet.usage, ceilings))

    def _find_ceilings(self, namespace: str) -> Ceilings | None:
        """Return and remember how much a namespace may use at most before the request; None if sums do not decide."""
        ceilings: Ceilings | None = ()
        if self._promises_differ or (self._counts_differ and self.rules.quotas.levels(namespace)):
            ceilings = None
        elif self._most is not None:
            ceilings = self.rules.quotas.ceilings(namespace, self._most)
        if len(self._ceilings) >= _MAX_CASES:
            self._ceilings.clear()
        self._ceilings[namespace] = ceilings
        return ceilings

    def usage_of(self, allocation: Allocation, cards: Sequence[int]) -> Usage:
        """Return what an allocation of such a request on these cards counts in quotas: the same on cards like them."""
        kinds = self._fleet.card_rows
        key = tuple([kinds.item(card, KIND) for card in cards])
        usage = self._usages.get(key)
        if usage is None:
            usage = self._usages[key] = usage_of(allocation, self._fleet.at(cards))
        return usage

    @cached_property
    def _most(self) -> Asked | None:
        """Return the most that one request counts in quotas on any cards; None if it fits nowhere or needs no card.

        Cards of one kind count the same, so one card of each kind is examined, as if all cards of the request were of
        that kind: no mixture counts more than the largest of these.
        """
        kinds, count = shape_of(self._fleet, self._asked).kinds, self._asked.gpu_count
        asked = [asked_on(self._fleet, self._request, [card] * count) for card in kinds if count]
        return reduce(Asked.most, asked) if asked else None

    def table(self) -> Table:
        """Return the table of the requests under the strategy in force."""
        strategy = self._strategy.on(self._fleet)
        if self._made is None or self._made[0] is not strategy:
            self._made = strategy, table_of(self._fleet, self._asked, strategy, self.rules.cap)
        return self._made[1]


_MAX_CASES = 64
"""Cases of one shape remembered at a time."""


def _case_of(fleet: Fleet, rules: Rules, request: Request) -> _Case:
    cases = shape_of(fleet, request.requirement).cases
    key = id(rules), request.strategy, request.claim.counted_limit
    case = cases.get(key)
    if not isinstance(case, _Case):
        if len(cases) >= _MAX_CASES:
            cases.clear()
        case = cases[key] = _Case(fleet, rules, request)  # it keeps the rules, so that their id stays theirs
    return case


def decided_by_sums(fleet: Fleet, rules: Rules, request: Request) -> bool:
    """Return whether the table of the request decides alone."""
    case = _case_of(fleet, rules, request)
    return case.simple and case.sums_allow(request.claim.quota_name)


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
    """Return the terms of the score of a node with room, if there is more than one."""
    return table_for(fleet, rules, request).terms(fleet.row_of[node])


def select(fleet: Fleet, rules: Rules, request: Request, by_node: Mapping[str, Sequence[str]]) -> Choice | Refusal:
    """Return the best node with enough candidates, and its best cards; ties by name."""
    count = request.requirement.gpu_count
    enough = {node: uuids for node, uuids in by_node.items() if len(uuids) >= count}
    if not enough:
        most = max((len(uuids) for uuids in by_node.values()), default=0)
        return Refusal((Rejection(Code.NO_NODE_FITS, Cure.CAPACITY, count, most),))
    nodes = score(fleet, rules, request, enough).nodes
    node = min(enough, key=lambda name: (-nodes[name], name))
    row, table = fleet.row_of[node], table_for(fleet, rules, request)
    eligible = sorted(fleet.card_of[uuid] for uuid in enough[node])
    cards = table.pick_among(row, eligible)
    if cards is None:
        refused = refusal_on(fleet, request.requirement, row, eligible)
        return Refusal(() if refused is None else (refused,))
    charges = charges_on(fleet, cards, request.requirement)
    return Choice(node, fleet.uuids(cards), charges, nodes[node], placement=table.placed)


def place(
    fleet: Fleet, rules: Rules, request: Request, *, rows: Column | None = None, ahead: Sequence[Ahead] = ()
) -> Choice | Refusal:
    """Return where the request goes, on any node or on one of these rows, or why nowhere.

    What is reserved for those `ahead` is charged while it is placed.
    """
    if rows is not None:
        ahead = touching(ahead, fleet.names(rows.tolist()))
    with reserving(fleet, ahead):
        chosen = choose(fleet, rules, request, rows)
    if chosen is not None:
        return chosen
    return find(fleet, rules, request, None if rows is None else cards_on(fleet, rows), ahead=ahead).refusal


def choose(fleet: Fleet, rules: Rules, request: Request, rows: Column | None = None) -> Choice | None:
    """Return where the request goes on the books as they are, None for nowhere: from the table of its shape, if it can.

    The answer is that of `select` for what `find` finds.
    """
    case = _case_of(fleet, rules, request)
    if not case.sums_allow(request.claim.quota_name) or (rows is not None and not case.simple):
        found = find(fleet, rules, request, None if rows is None else cards_on(fleet, rows))
        chosen = select(fleet, rules, request, found.by_node) if found.by_node else None
        return chosen if isinstance(chosen, Choice) else None
    table = case.table()
    if rows is not None:
        return _best_of(fleet, table.refreshed(), rows)
    best = _choose_promised(fleet, rules, request, table) if rules.oversubscription else table.choose()
    return None if best is None else _chosen(fleet, table, *best)


def _best_of(fleet: Fleet, table: Table, rows: Column) -> Choice | None:
    row = rows.item(table.ranked[rows].argmax()) if len(rows) else -1
    cards = None if row < 0 or table.ranked.item(row) == NO_ROOM else table.pick(row)
    return None if cards is None else _chosen(fleet, table, row, cards)


def _chosen(fleet: Fleet, table: Table, row: int, cards: list[int]) -> Choice:
    charges, score = table.charges(cards), table.ranked.item(row)
    name, uuids = fleet.nodes[row].name, fleet.uuids(cards)
    return Choice(name, uuids, charges, score, cards=cards, placement=table.placed)


def cards_on(fleet: Fleet, rows: Column) -> list[int]:
    """Return the cards of these nodes."""
    return [card for row in rows.tolist() for card in fleet.cards_on(row)]


def reserved_place(fleet: Fleet, rules: Rules, request: Request, nominations: Nominations) -> Choice | None:
    """Return the cards that are reserved for the request, if they are free; None too if none are."""
    entry = nominations.of(request.uid) if nominations.entries else None
    if entry is None or len(entry.gpus) != request.requirement.gpu_count:
        return None
    cards = [fleet.card_of.get(uuid) for uuid in entry.gpus]
    known = [card for card in cards if card is not None and fleet.nodes[int(fleet.card_row[card])].name == entry.node]
    if len(known) != len(cards):
        return None
    with reserving(fleet, nominations.before(fleet, request, (entry.node,))):
        if refusals_on(fleet, rules, request, known):
            return None
        return Choice(entry.node, entry.gpus, charges_on(fleet, known, request.requirement))


def held_place(fleet: Fleet, rules: Rules, request: Request, nominations: Nominations) -> Choice | None:
    """Return the place that is held for the request, if it is free; None too if none is."""
    entry = nominations.of(request.uid) if nominations.entries else None
    return None if entry is None or not entry.hold else reserved_place(fleet, rules, request, nominations)


class Taken(NamedTuple):
    """The row of a node, positions of cards on it, and what a request takes of each; all that is charged."""

    row: int
    cards: list[int]
    charges: tuple[Charge, ...]
    placement: ZonePlacement | None
    case: _Case


def take(fleet: Fleet, rules: Rules, request: Request) -> Taken | None:
    """Return the choice of `place`, and charge the columns: `Fleet.enter` must follow.

    Return None if the table does not decide alone, or nothing fits: `place` finds out which.
    """
    case = _case_of(fleet, rules, request)
    if not case.simple or not case.sums_allow(request.claim.quota_name):
        return None
    table = case.table()
    taken = table.take()
    if taken is None:
        return None
    row, cards = taken
    return Taken(row, cards, charges=table.charges(cards), placement=table.placed, case=case)


def _choose_promised(fleet: Fleet, rules: Rules, request: Request, table: Table) -> tuple[int, list[int]] | None:
    """Return the best node with room whose oversubscription allows the limits of the request."""
    for row in np.argsort(-table.refreshed().ranked, kind="stable").tolist():
        if table.ranked[row] == NO_ROOM:
            break
        if _promises(fleet, rules, request, table.eligible(row)):
            return row, table.pick(row) or []
    return None


def _promises(fleet: Fleet, rules: Rules, request: Request, eligible: Sequence[int]) -> bool:
    """Return whether oversubscription allows the limits of the request on such cards, which are of one kind."""
    card = next(iter(eligible))
    return check_limits(fleet, rules, request, [card] * request.requirement.gpu_count) is None


def placement_of(fleet: Fleet, asked: ResourceRequirement, choice: Choice) -> ZonePlacement | None:
    """In which zones a choice lies: as was decided with it, or else as its cards decide on the books as they are."""
    if choice.placement is not None:
        return choice.placement
    cards = [fleet.card_of[uuid] for uuid in choice.gpus] if choice.cards is None else choice.cards
    return placement_on(fleet, asked, choice.node, cards)


def table_for(fleet: Fleet, rules: Rules, request: Request) -> Table:
    """Return the table of the request, up to date."""
    return table_of(fleet, request.requirement, rules.strategy_of(request), rules.cap).refreshed()
