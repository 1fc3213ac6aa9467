"""What each node has to offer one request: how good it would be there, or why it cannot be.

For who picks the node itself, as the scheduler of a cluster does: it asks about thousands of nodes, and soon
again for a request like the last one, when few nodes have changed. So what was told of a node is kept until
that node changes, where nothing but the books decides, and of nodes that are alike one is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from ullage.core.books.fleet import Column, Fleet
from ullage.core.kernel.columns import NEEDS
from ullage.core.kernel.tree import NO_ROOM
from ullage.core.placing.candidates import ZONES, find
from ullage.core.placing.decision import Candidates
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import decided_by_sums, table_for
from ullage.core.verdict.equivalence import NodeClass, class_of_node, node_classes
from ullage.core.verdict.filters import Stage
from ullage.core.verdict.quota import Quotas
from ullage.core.verdict.shape import shape_of
from ullage.model.claim import Request
from ullage.model.rejection import Code, Cure, Rejection

_FEW = 8
"""So many nodes and fewer are looked at one by one."""

_MOST_KEPT = 64
"""Cases of one shape whose answers are kept at a time."""

_MOST_KINDS = 4096
"""Kinds of nodes whose answers are kept at a time, for one case."""


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Why a node cannot take a request, told alike for all nodes of which the same is true.

    `rejections` are those of its cards, which have numbers instead of names, and tell what was needed and not what
    there was; `cards` is how many it has; `helps` is whether freed capacity there, or a change of quota, could help.
    """

    rejections: tuple[Rejection, ...]
    cards: int
    helps: bool

    @classmethod
    def of(cls, code: Code, cure: Cure) -> NodeRefusal:
        """One for a node as a whole."""
        return cls((Rejection(code, cure),), 1, cure is Cure.CAPACITY)

    @property
    def counts(self) -> dict[Code, int]:
        """Cards by what was said of them first."""
        return Counter({rejection.gpu: rejection.code for rejection in reversed(self.rejections)}.values())


@dataclass(frozen=True, slots=True)
class Offers:
    """Per row of the books: the score, `NO_ROOM` where the request cannot be, and which of `refusals` says why.

    `refused` is -1 where it can be. Both are told of those rows alone that were asked about.
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
    """What these nodes, or all, offer a request, beside the room that is kept for those who come before it."""
    rows = np.arange(len(fleet.nodes)) if rows is None else rows
    sums = decided_by_sums(fleet, rules, request)
    scores = table_for(fleet, rules, request).ranked.copy()
    told = _told_of(fleet, rules, request) if sums else _Told(fleet, rules, request)
    asked = rows[scores[rows] == NO_ROOM] if sums else rows
    refused = np.full(len(fleet.nodes), -1)
    refused[asked] = told.of(asked)
    ahead = nominations.before(fleet, request)
    if ahead:
        with reserving(fleet, ahead):
            scores = table_for(fleet, rules, request).ranked.copy()
            if sums and not decided_by_sums(fleet, rules, request):  # a quota has too little beside them
                scores[:] = NO_ROOM
        taken = rows[(scores[rows] == NO_ROOM) & (refused[rows] < 0)]
        refused[taken] = told.number(NodeRefusal.of(Code.NOMINATED, Cure.CAPACITY))
    scores[refused >= 0] = NO_ROOM
    return Offers(scores, refused, told.all)


class _Told:
    """What is said of nodes to requests of one case, by number."""

    def __init__(self, fleet: Fleet, rules: Rules, request: Request) -> None:
        self._fleet = fleet
        self.rules = self._judged_by = rules
        self._request = request
        self._zoned = bool(shape_of(fleet, request.requirement).rows[0, NEEDS])
        self._clock = -1
        self._unknown = -2
        self._numbers: Column = np.full(len(fleet.nodes), self._unknown)
        self._known: dict[NodeRefusal, int] = {}
        self._of_class: dict[NodeClass, int] = {}
        self.all: list[NodeRefusal] = []

    def without_quotas(self) -> _Told:
        """Ask no quota: what is told is told to every namespace."""
        self._judged_by = replace(self.rules, quotas=Quotas())
        return self

    def of(self, rows: Column) -> Column:
        """Per row, the number of what speaks against it now, -1 if nothing does."""
        self._numbers[self._fleet.touched_since(self._clock)] = self._unknown
        self._clock = self._fleet.clock
        waiting = rows[self._numbers[rows] == self._unknown]
        if len(waiting) > _FEW and not self.rules.oversubscription:  # what a node promises is its own
            waiting = self._look_at_kinds(waiting)
        for row in waiting.tolist():
            self._numbers[row] = self._look_at(row)
        numbers: Column = self._numbers[rows]
        return numbers

    def number(self, refusal: NodeRefusal) -> int:
        """The number of what may be said."""
        number = self._known.setdefault(refusal, len(self.all))
        if number == len(self.all):
            self.all.append(refusal)
        return number

    def _look_at_kinds(self, rows: Column) -> Column:
        """Look at one of all that are alike; those are left whose zones decide, which are each node's own."""
        kinds, left = node_classes(self._fleet, self._request.requirement, rows, zoned=self._zoned), [rows[:0]]
        order = np.argsort(kinds, kind="stable")
        for alike in np.split(rows[order], np.flatnonzero(np.diff(kinds[order])) + 1):
            found = self._find(alike.item(0))
            if _by_zones(found):
                left.append(alike)
            else:
                self._numbers[alike] = self._against(alike.item(0), found)
        return np.concatenate(left)

    def _look_at(self, row: int) -> int:
        """What speaks against a node: as was told of one that was like it, or else by every rule."""
        kind = (
            None
            if self.rules.oversubscription
            else class_of_node(self._fleet, self._request.requirement, row, zoned=self._zoned)
        )
        known = None if kind is None else self._of_class.get(kind)
        if known is not None:
            return known
        found = self._find(row)
        known = self._against(row, found)
        if kind is not None and not _by_zones(found):
            if len(self._of_class) >= _MOST_KINDS:
                self._of_class.clear()
            self._of_class[kind] = known
        return known

    def _find(self, row: int) -> Candidates:
        return find(self._fleet, self._judged_by, self._request, self._fleet.cards_on(row))

    def _against(self, row: int, found: Candidates) -> int:
        if found.by_node:
            return -1
        return self.number(NodeRefusal(_alike(found.stages), len(self._fleet.cards_on(row)), found.curable))


def _by_zones(found: Candidates) -> bool:
    """Whether it mattered what lies in the zones of a node, which is each node's own."""
    return any(stage.filter == ZONES and stage.reached for stage in found.stages)


def _alike(stages: Iterable[Stage]) -> tuple[Rejection, ...]:
    """What stages said of the cards of one node, without what differs between nodes that are refused alike."""
    by_card: dict[str | None, list[Rejection]] = {}
    for rejection in chain.from_iterable(stage.removed for stage in stages):
        by_card.setdefault(rejection.gpu, []).append(rejection)
    told = [
        tuple(Rejection(each.code, each.cure, each.needed, mode=each.mode) for each in against)
        for against in by_card.values()
    ]
    return tuple(
        replace(each, gpu=str(number)) for number, against in enumerate(sorted(told, key=repr)) for each in against
    ) or (Rejection(Code.NO_CANDIDATE, Cure.NODE_CHANGE),)


def _told_of(fleet: Fleet, rules: Rules, request: Request) -> _Told:
    """What was told of nodes to requests like this one, whoever asks; the quotas of who asks allow it."""
    cases = shape_of(fleet, request.requirement).cases
    key = _Told, id(rules)
    told = cases.get(key)
    if not isinstance(told, _Told):
        if len(cases) >= _MOST_KEPT:
            cases.clear()
        told = cases[key] = _Told(
            fleet, rules, request
        ).without_quotas()  # it keeps the rules, so that their id stays theirs
    return told
