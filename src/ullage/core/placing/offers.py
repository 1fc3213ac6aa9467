"""The offer of each node for one request: its score, or why it does not fit.

This serves callers that pick the node themselves, as the scheduler of a cluster does. It asks about thousands of nodes,
and soon again for an equal request, when few nodes have changed. So the verdict on a node is cached until the node
changes, and of equivalent nodes only one is examined.
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
"""Up to this number, nodes are examined one by one."""

_MOST_KEPT = 64
"""Maximum number of cases of one shape whose verdicts are cached."""

_MOST_CLASSES = 4096
"""Maximum number of node classes whose verdicts are cached for one case."""


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
    ahead = nominations.before(fleet, request)
    if ahead:
        with reserving(fleet, ahead):
            scores = table_for(fleet, rules, request).ranked.copy()
            if sums and not decided_by_sums(fleet, rules, request):  # quotas do not suffice for these too
                scores[:] = NO_ROOM
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
        self._zoned = bool(shape_of(fleet, request.requirement).rows[0, NEEDS])
        self._clock = -1
        self._unknown = -2
        self._numbers: Column = np.full(len(fleet.nodes), self._unknown)
        self._known: dict[NodeRefusal, int] = {}
        self._of_class: dict[NodeClass, int] = {}
        self.all: list[NodeRefusal] = []

    def without_quotas(self) -> _Verdicts:
        """Judge without quotas, so that the verdicts hold for every namespace."""
        self._judged_by = replace(self.rules, quotas=Quotas())
        return self

    def of(self, rows: Column) -> Column:
        """Return for each row the number of its present refusal, -1 if it fits."""
        self._numbers[self._fleet.touched_since(self._clock)] = self._unknown
        self._clock = self._fleet.clock
        waiting = rows[self._numbers[rows] == self._unknown]
        if len(waiting) > _FEW and not self.rules.oversubscription:  # what a node promises is its own
            waiting = self._judge_classes(waiting)
        for row in waiting.tolist():
            self._numbers[row] = self._judge(row)
        numbers: Column = self._numbers[rows]
        return numbers

    def number(self, refusal: NodeRefusal) -> int:
        """Return the number of a refusal."""
        number = self._known.setdefault(refusal, len(self.all))
        if number == len(self.all):
            self.all.append(refusal)
        return number

    def _judge_classes(self, rows: Column) -> Column:
        """Judge one node of each class. Return the rows where zones decide: these differ for each node."""
        classes, left = node_classes(self._fleet, self._request.requirement, rows, zoned=self._zoned), [rows[:0]]
        order = np.argsort(classes, kind="stable")
        for same in np.split(rows[order], np.flatnonzero(np.diff(classes[order])) + 1):
            found = self._find(same.item(0))
            if _by_zones(found):
                left.append(same)
            else:
                self._numbers[same] = self._against(same.item(0), found)
        return np.concatenate(left)

    def _judge(self, row: int) -> int:
        """Return the number of the refusal of a node, from its class if that is known, else by all rules."""
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
            if len(self._of_class) >= _MOST_CLASSES:
                self._of_class.clear()
            self._of_class[kind] = known
        return known

    def _find(self, row: int) -> Candidates:
        return find(self._fleet, self._judged_by, self._request, self._fleet.cards_on(row))

    def _against(self, row: int, found: Candidates) -> int:
        if found.by_node:
            return -1
        return self.number(NodeRefusal(_without_details(found.stages), len(self._fleet.cards_on(row)), found.curable))


def _by_zones(found: Candidates) -> bool:
    """Return whether the state of zones mattered, which differs for each node."""
    return any(stage.filter == ZONES and stage.reached for stage in found.stages)


def _without_details(stages: Iterable[Stage]) -> tuple[Rejection, ...]:
    """Return the rejections of the cards of one node without the details in which equivalent nodes differ."""
    by_card: dict[str | None, list[Rejection]] = {}
    for rejection in chain.from_iterable(stage.removed for stage in stages):
        by_card.setdefault(rejection.gpu, []).append(rejection)
    verdicts = [
        tuple(Rejection(each.code, each.cure, each.needed, mode=each.mode) for each in against)
        for against in by_card.values()
    ]
    return tuple(
        replace(each, gpu=str(number)) for number, against in enumerate(sorted(verdicts, key=repr)) for each in against
    ) or (Rejection(Code.NO_CANDIDATE, Cure.NODE_CHANGE),)


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
