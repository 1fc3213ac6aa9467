"""Places a gang whose subgroups have levels of their own: each subgroup inside the domain of what it is part of.

Subgroups are placed in turn: those of the smallest domains first, of these the largest, each in the nearest nodes with
room for it. If a later one finds none, the one before it is taken back and put in its next domain, up to
`MOST_RETRIES` times. The books stay as they were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.domain import Mask, WantedUnits, most_within, nearest
from ullage.core.placing.draft import Misfit, by_size, enter, fit_together, place_groups, shortage
from ullage.core.placing.feasibility import room, runs
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.rules import Rules
from ullage.model.claim import Claim, GangClaim, Request, SubgroupPath
from ullage.model.rejection import Code, Cure, Rejection

MOST_RETRIES = 64
"""How many times subgroups of one gang are tried elsewhere before it is refused."""

Neighbours = Mapping[SubgroupPath, Collection[str]]
"""The nodes where members of a gang run, by their subgroup."""


def nodes_by_subgroup(members: Iterable[tuple[Claim | None, str]]) -> Neighbours:
    """Return the nodes of members, given by claim and node."""
    found: dict[SubgroupPath, list[str]] = {}
    for claim, node in members:
        path = () if claim is None or claim.gang is None else claim.gang.path
        found.setdefault(path, []).append(node)
    return found


def rows_near(fleet: Fleet, gang: GangClaim, neighbours: Neighbours) -> Mask:
    """Return the nodes where a member may be: in the required domains where others are already."""
    allowed = np.ones(len(fleet.nodes), dtype=np.bool_)
    for depth, within in enumerate(gang.required_levels):
        inside = (nodes for path, nodes in neighbours.items() if path[:depth] == gang.path[:depth])
        rows = [fleet.row_of[node] for nodes in inside for node in nodes if node in fleet.row_of]
        if within is not None and rows:
            domains = fleet.exclusion.labels.domains(within)
            allowed &= np.isin(domains, domains[rows])
    return allowed


def fit_gang(
    fleet: Fleet,
    rules: Rules,
    requests: Sequence[Request],
    now: float,
    *,
    nominations: Nominations = NO_NOMINATIONS,
    neighbours: Neighbours,
    divided: bool = False,
) -> dict[str, Choice] | Misfit:
    """Return the places of all these requests, with those of each subgroup near each other; or why there are none.

    If the first one states no subgroups of its gang, the others do so only in a gang that is `divided`.
    """
    gang = next(iter(requests)).claim.gang
    if gang is None or not (divided or gang.divided):
        near = [node for nodes in neighbours.values() for node in nodes]
        return fit_together(fleet, rules, requests, now, nominations=nominations, neighbours=near)
    if nominations.entries:
        nominations = nominations.without(*(request.uid for request in requests))
    parts = _in_order(fleet, _Part.of(gang, requests))
    search = _Search(fleet, rules, now, nominations, parts=parts, neighbours=neighbours)
    never = search.hopeless() or shortage(fleet, rules, list(runs(by_size(fleet, requests))))
    return never or search.run()


@dataclass(slots=True)
class _Part:
    """A gang or a subgroup: its requests outside its own subgroups, its levels, and the subgroups inside it.

    `above` is the position of what it is part of, in the order of placing.
    """

    path: SubgroupPath = ()
    levels: tuple[str, ...] = ()
    within: str | None = None
    own: list[Request] = field(default_factory=list)
    inside: dict[str, _Part] = field(default_factory=dict)
    above: int = -1

    @classmethod
    def of(cls, gang: GangClaim, requests: Iterable[Request]) -> _Part:
        root = cls((), gang.levels, gang.within)
        for request in requests:
            part, claim = root, request.claim.gang
            for each in () if claim is None else claim.subgroups:
                part = part.inside.setdefault(each.name, cls((*part.path, each.name), each.levels, each.within))
            part.own.append(request)
        return root

    @property
    def requests(self) -> list[Request]:
        return [*self.own, *chain.from_iterable(each.requests for each in self.inside.values())]


def _in_order(fleet: Fleet, root: _Part) -> list[_Part]:
    """Return the parts in the order of placing: each before those inside it.

    Of these, those that have to stay in the smallest domains are first, then the largest: others can use what these
    leave. Members of a part that has subgroups, and are in none of them, are a part of their own.
    """
    ordered, waiting, labels = list[_Part](), [root], fleet.exclusion.labels

    def domains(part: _Part) -> int:
        if part.inside:
            return min(map(domains, part.inside.values()))
        return 0 if part.within is None else int(labels.domains(part.within).max(initial=-1))

    def order(part: _Part) -> tuple[int, int]:
        return domains(part), sum(fleet.resources(request.requirement).gpu_milli for request in part.requests)

    while waiting:
        part = waiting.pop()
        inside = sorted(part.inside.values(), key=order, reverse=True)
        if inside and part.own:
            inside.append(_Part(part.path, own=part.own))
        for each in inside:
            each.above = len(ordered)
        waiting += reversed(inside)
        ordered.append(part)
    return ordered


class _Step(NamedTuple):
    """What one part takes: its nodes, None for any, and the places of its own requests."""

    rows: Mask | None
    own: Sequence[Request] = ()
    choices: Sequence[Choice] = ()


class _Search:
    """Places the parts in turn; takes the last one back where the next finds no room."""

    def __init__(
        self,
        fleet: Fleet,
        rules: Rules,
        now: float,
        nominations: Nominations,
        *,
        parts: Sequence[_Part],
        neighbours: Neighbours,
    ) -> None:
        self._fleet, self._rules, self._now, self._nominations = fleet, rules, now, nominations
        self._parts, self._neighbours = parts, neighbours
        self._steps: list[_Step] = []
        self._left = len(parts) + MOST_RETRIES
        self._first: Misfit | None = None

    def hopeless(self) -> Misfit | None:
        """Return the refusal of the first part for which no domain has room, even if the others took none."""
        for part in self._parts:
            if part.within is not None:
                wanted = self._wanted(self._fleet, part, None)
                if most_within(self._fleet, part.within, wanted) < len(part.requests):
                    return self._too_small(part, wanted, None, None)
        return None

    def run(self) -> dict[str, Choice] | Misfit:
        """Return the places of all, or why the first part without room has none."""
        fleet, marks = self._fleet, list[int]()
        ways = [self._ways(next(iter(self._parts)))]
        try:
            while ways:
                step = next(next(reversed(ways)), None)
                if step is None:
                    ways.pop()
                    if marks:
                        fleet.rollback(marks.pop())
                        self._steps.pop()
                    continue
                marks.append(fleet.checkpoint())
                enter(fleet, step.own, step.choices, self._now)
                self._steps.append(step)
                if len(self._steps) == len(self._parts):
                    return {
                        request.uid: choice
                        for each in self._steps
                        for request, choice in zip(each.own, each.choices, strict=True)
                    }
                ways.append(self._ways(self._parts[len(self._steps)]))
        finally:
            while marks:
                fleet.rollback(marks.pop())
        assert self._first is not None, "a part found no room"
        return self._first

    def _ways(self, part: _Part) -> Iterator[_Step]:
        """Yield what the part may take, the best first, after the steps of those before it."""
        rows_above = None if part.above < 0 else self._steps[part.above].rows
        wanted = self._wanted(self._fleet, part, rows_above)
        refusal, found = None, False
        for rows in self._rows(part, wanted, rows_above):
            if not self._left:
                break
            self._left -= 1
            placed = {} if part.inside else self._place(part, rows)
            if isinstance(placed, Misfit):
                refusal = refusal or placed
                continue
            found = True
            own = [] if part.inside else part.own
            yield _Step(rows, own, [placed[request.uid] for request in own])
        if not found and self._first is None:
            self._first = self._too_small(part, wanted, rows_above, refusal)

    def _rows(self, part: _Part, wanted: WantedUnits, above: Mask | None) -> Iterator[Mask | None]:
        """Yield the nodes to try: the nearest together first, inside those of what it is part of."""
        if part.levels or part.within:
            for rows in nearest(self._fleet, part.levels, wanted, part.within):
                yield rows if above is None else rows & above
        if part.within is None:
            yield above

    def _place(self, part: _Part, rows: Mask | None) -> dict[str, Choice] | Misfit:
        """Return the places of the requests of a part on these nodes."""
        groups = list(runs(by_size(self._fleet, part.own)))
        books, nominations = (self._fleet, self._rules), self._nominations
        return place_groups(*books, groups, self._now, nominations=nominations, rows=rows)

    def _wanted(self, fleet: Fleet, part: _Part, rows: Mask | None) -> WantedUnits:
        """Return the units of a part and their room on some nodes, as the books are now."""
        groups = list(runs(by_size(fleet, part.requests)))
        paths = (path for path in self._neighbours if path[: len(part.path)] == part.path)
        nodes = chain.from_iterable(self._neighbours[path] for path in paths)
        rooms = [np.array(room(fleet, self._rules, next(iter(run)))) for run in groups]
        wanted = WantedUnits.of(fleet, [len(run) for run in groups], rooms, nodes)
        return wanted if rows is None else wanted.inside(rows)

    def _too_small(self, part: _Part, wanted: WantedUnits, rows: Mask | None, misfit: Misfit | None) -> Misfit:
        """Return the refusal of a part without room: what it needs, and what the best domain has."""
        requests, subgroup = part.requests, "/".join(part.path)
        units = len(requests)
        if part.within is None:
            return _of_room(requests, subgroup, misfit)
        had = min(most_within(self._fleet, part.within, wanted), units - 1)
        empty = self._fleet.emptied()
        at_best = most_within(empty, part.within, self._wanted(empty, part, rows))
        cure, most = (Cure.CAPACITY, had) if at_best >= units else (Cure.NODE_CHANGE, at_best)
        refused = Rejection(Code.GANG_DOMAIN, cure, units, most, subgroup=subgroup, resource=part.within)
        return Misfit(requests[had].uid, Refusal((refused,)), had)


def _of_room(requests: Sequence[Request], subgroup: str, misfit: Misfit | None) -> Misfit:
    """Return the refusal of a subgroup that may be anywhere: that of one request, if it has a reason of its own."""
    rejections = () if misfit is None else misfit.refusal.rejections
    if misfit is not None and any(each.code is not Code.GANG_ROOM for each in rejections):
        return misfit
    uid, placed = (next(iter(requests)).uid, 0) if misfit is None else (misfit.uid, misfit.placed)
    refused = Rejection(Code.GANG_ROOM, Cure.CAPACITY, len(requests), placed, subgroup=subgroup)
    return Misfit(uid, Refusal((refused,)), placed)
