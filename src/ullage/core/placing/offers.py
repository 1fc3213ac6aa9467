"""The offer of each node for one request: its score, or why it does not fit.

This serves callers that pick the node themselves, as the scheduler of a cluster does. It asks about thousands of nodes,
and soon again for an equal request, when few nodes have changed. So the verdict on a node is cached until the node
changes, and of equivalent nodes only one is examined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ullage.core.books.fleet import Column, Fleet
from ullage.core.kernel.row_classes import number_classes
from ullage.core.kernel.tree import NO_ROOM
from ullage.core.placing.candidates import Judgement, Why, judge
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import cards_on, decided_by_sums, table_for
from ullage.core.verdict.nodes import unsuited
from ullage.core.verdict.quota import Quotas
from ullage.core.verdict.shape import shape_of
from ullage.core.verdict.zones import refusal_on
from ullage.model.claim import Request
from ullage.model.rejection import Code, Cure, Rejection

_MOST_KEPT = 64
"""Maximum number of cases of one shape whose verdicts are cached."""

_NOT_JUDGED = -2
"""The content of a row of which there is no verdict."""


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Why a node does not fit a request: one value for all nodes with the same reasons.

    `rejections` are those of its cards. These have numbers instead of names, and say what was needed but not what
    there was. `cards` is their number. `helps`: whether freed capacity on the node, or a change of quota, could help.
    """

    rejections: tuple[Rejection, ...]
    cards: int
    helps: bool

    @classmethod
    def of(cls, code: Code, cure: Cure) -> NodeRefusal:
        """Return the refusal of a node as a whole."""
        return cls((Rejection(code, cure),), 1, cure is Cure.CAPACITY)

    @property
    def counts(self) -> dict[Code, int]:
        """The number of cards by their first rejection."""
        return Counter({rejection.gpu: rejection.code for rejection in reversed(self.rejections)}.values())


_NO_ROOM = NodeRefusal((Rejection(Code.NO_CANDIDATE, Cure.CAPACITY),), 0, helps=True)
"""The refusal of a request without cards for another reason than zones."""


@dataclass(frozen=True, slots=True)
class Offers:
    """Arrays with an entry for each row of the books; only the rows in question are valid.

    `scores` are `NO_ROOM` where the request does not fit. `refused` is the index of the reason in `refusals`, or -1.
    """

    scores: npt.NDArray[np.float64]
    refused: Column
    refusals: Sequence[NodeRefusal]


def offers(
    fleet: Fleet,
    rules: Rules,
    request: Request,
    rows: Column | None = None,
    nominations: Nominations = NO_NOMINATIONS,
) -> Offers:
    """Return the offers of these nodes, or of all, without the room reserved for others that come first."""
    rows = np.arange(len(fleet.nodes)) if rows is None else rows
    sums = decided_by_sums(fleet, rules, request)
    scores = table_for(fleet, rules, request).ranked.copy()
    verdicts = _verdicts_for(fleet, rules, request) if sums else _Verdicts(fleet, rules, request)
    asked = rows[scores[rows] == NO_ROOM] if sums else rows
    refused = np.full(len(fleet.nodes), -1)
    refused[asked] = verdicts.of(asked)
    few = nominations and len(rows) < len(fleet.nodes)
    ahead = nominations.before(fleet, request, fleet.names(rows.tolist()) if few else None)
    if ahead:
        with reserving(fleet, ahead):
            scores = table_for(fleet, rules, request).ranked.copy()
            if sums and not decided_by_sums(fleet, rules, request):  # quotas do not suffice for these too
                scores[:] = NO_ROOM
            elif not sums:  # limits and quotas of single cards may not suffice
                open_rows = rows[(scores[rows] > NO_ROOM) & (refused[rows] < 0)]
                closed = _Verdicts(fleet, rules, request).of(open_rows) >= 0
                scores[open_rows[closed]] = NO_ROOM
        taken = rows[(scores[rows] == NO_ROOM) & (refused[rows] < 0)]
        refused[taken] = verdicts.number(NodeRefusal.of(Code.NOMINATED, Cure.CAPACITY))
    scores[refused >= 0] = NO_ROOM
    return Offers(scores, refused, verdicts.all)


class _Verdicts:
    """The verdicts on nodes for requests of one case, by number."""

    def __init__(self, fleet: Fleet, rules: Rules, request: Request) -> None:
        self._fleet = fleet
        self.rules = self._judged_by = rules
        self._request = request
        self._numbers: Column = np.full(len(fleet.nodes), -1)
        self._contents: Column = np.full(len(fleet.nodes), _NOT_JUDGED)
        self._known: dict[NodeRefusal, int] = {}
        self.all: list[NodeRefusal] = []

    def without_quotas(self) -> _Verdicts:
        """Judge without quotas, so that the verdicts hold for every namespace."""
        self._judged_by = replace(self.rules, quotas=Quotas())
        return self

    def of(self, rows: Column) -> Column:
        """Return for each row the number of its present refusal, -1 if it fits."""
        contents = self._fleet.contents.of(rows)
        changed = self._contents[rows] != contents
        if changed.any():
            self._judge(rows[changed])
            self._contents[rows[changed]] = contents[changed]
        numbers: Column = self._numbers[rows]
        return numbers

    def number(self, refusal: NodeRefusal) -> int:
        number = self._known.setdefault(refusal, len(self.all))
        if number == len(self.all):
            self.all.append(refusal)
        return number

    def _judge(self, rows: Column) -> None:
        """Apply all rules to the cards of these nodes, and number what they say of each node."""
        fleet = self._fleet
        if not self._request.requirement.gpu_count:
            self._judge_without_cards(rows)
            return
        judged = judge(fleet, self._judged_by, self._request, cards_on(fleet, rows))
        open_rows = judged.rows[judged.left]
        self._numbers[open_rows] = -1
        refused = np.setdiff1d(rows, open_rows)
        could = np.isin(refused, list(judged.rows_that_could_fit()))
        reasons, of_card = _reasons_by_card(judged)
        first, counts = np.searchsorted(judged.rows, refused), np.diff(fleet.gpu_start)[refused]
        table = np.zeros((len(refused), 1 + counts.max(initial=0)), dtype=np.int64)
        for k in range(table.shape[1] - 1):
            has = counts > k
            table[has, 1 + k] = 1 + of_card[first[has] + k]
        table[:, 1:].sort(axis=1)
        table[:, 0] = could
        numbers, examples = number_classes(table)
        refusals = [self.number(_refusal_of(table[row].tolist(), reasons)) for row in examples.tolist()]
        self._numbers[refused] = np.array(refusals, dtype=np.int64)[numbers]

    def _judge_without_cards(self, rows: Column) -> None:
        """Number what conditions on nodes and zones say of each node, or that it has no room for another reason."""
        fleet, asked = self._fleet, self._request.requirement
        fits = table_for(fleet, self._judged_by, self._request).ranked[rows] != NO_ROOM
        for row, fit in zip(rows.tolist(), fits.tolist(), strict=True):
            found = None if fit else unsuited(fleet.nodes[row], asked.nodes) or refusal_on(fleet, asked, row, ())
            why = found and NodeRefusal(_without_details((found,)), 0, found.cure is Cure.CAPACITY)
            self._numbers[row] = -1 if fit else self.number(why or _NO_ROOM)


def _reasons_by_card(judged: Judgement) -> tuple[list[Why], Column]:
    """Return the distinct reasons of cards without their details, and per card which of them it has."""
    known: dict[Why, int] = {}
    of_card = np.zeros(len(judged.cards), dtype=np.int64)
    for removed in judged.removed:
        _, first, of_class = np.unique(removed.classes, return_index=True, return_inverse=True)
        plain = [_without_details(removed.why(k)) for k in removed.cards[first].tolist()]
        of_card[removed.cards] = np.array([known.setdefault(why, len(known)) for why in plain])[of_class]
    return list(known), of_card


def _without_details(why: Why) -> Why:
    """Return the reasons of a card without the details in which equivalent nodes differ."""
    return tuple(Rejection(each.code, each.cure, each.needed, mode=each.mode) for each in why)


def _refusal_of(verdict: list[int], reasons: list[Why]) -> NodeRefusal:
    """Return the refusal of a node from its row: whether it could fit, then 1 plus the reason of each card."""
    could, *cards = verdict
    against = sorted((reasons[card - 1] for card in cards if card), key=repr)
    rejections = tuple(replace(each, gpu=str(k)) for k, why in enumerate(against) for each in why)
    return NodeRefusal(rejections or (Rejection(Code.NO_CANDIDATE, Cure.NODE_CHANGE),), len(against), bool(could))


def _verdicts_for(fleet: Fleet, rules: Rules, request: Request) -> _Verdicts:
    """Return the verdicts for requests like this one, of any namespace whose quota allows them."""
    cases = shape_of(fleet, request.requirement).cases
    key = _Verdicts, id(rules)
    verdicts = cases.get(key)
    if not isinstance(verdicts, _Verdicts):
        if len(cases) >= _MOST_KEPT:
            cases.clear()
        verdicts = cases[key] = _Verdicts(
            fleet, rules, request
        ).without_quotas()  # it keeps the rules, so that their id stays theirs
    return verdicts
