"""Which members of a gang with subgroups may start, and what it lacks.

The subgroups of a gang are a tree, known from its members. A subgroup starts as a whole: as many of its members, or of
the subgroups inside it, as it requires. The gang starts with as many of the outermost subgroups as it requires, and at
least so many members; further subgroups start later, each as a whole, and further members of a started one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.draft import Misfit
from ullage.core.placing.feasibility import what_decides
from ullage.model.claim import GangClaim, Request, SubgroupPath
from ullage.model.rejection import Code, Cure, Rejection

_NONE: frozenset[SubgroupPath] = frozenset()


@dataclass(frozen=True, slots=True)
class Lack:
    """What keeps a gang from starting: it, or a subgroup of it, has fewer members or subgroups than it needs."""

    path: SubgroupPath
    needed: int
    had: int
    counted: str

    @property
    def refusal(self) -> Refusal:
        subgroup, of = "/".join(self.path), self.counted
        return Refusal(
            (Rejection(Code.GANG_INCOMPLETE, Cure.OWNER, self.needed, self.had, subgroup=subgroup, resource=of),)
        )


@dataclass(slots=True)
class _Part:
    """A gang or a subgroup: its members outside its own subgroups, `going` or waiting, and the subgroups inside it."""

    path: SubgroupPath = ()
    required: int = 0
    inside: dict[str, _Part] = field(default_factory=dict)
    going: int = 0
    waiting: list[Request] = field(default_factory=list)

    def at(self, gang: GangClaim) -> _Part:
        """Return the part of a member."""
        part = self
        for each in gang.subgroups:
            part = part.inside.setdefault(each.name, _Part((*part.path, each.name)))
            part.required = each.required
        return part

    @property
    def had(self) -> int:
        """Return how many members, or subgroups inside it, of those that are required have started."""
        return self.going if self._counts_members else sum(not each.missing for each in self._counting)

    @property
    def _counts_members(self) -> bool:
        """Whether it requires members: the gang itself requires subgroups, though none may be known yet."""
        return bool(self.path) and not self.inside

    @property
    def missing(self) -> int:
        return max(0, self.required - self.had)

    @property
    def _counting(self) -> list[_Part]:
        return [each for each in self.inside.values() if each.required]

    def least(self, size: Callable[[Request], int], without: Collection[SubgroupPath]) -> list[Request] | None:
        """Return the smallest waiting members that suffice for it to start; None if there are too few."""
        missing = self.missing
        if not missing:
            return []
        if self._counts_members:
            usable = [] if self.path in without else self.waiting
            return usable[:missing] if len(usable) >= missing else None
        found = [least for each in self._counting if each.missing and (least := each.least(size, without)) is not None]
        if len(found) < missing:
            return None
        found.sort(key=lambda members: sum(map(size, members)))
        return list(chain.from_iterable(found[:missing]))

    def further(self, size: Callable[[Request], int], without: Collection[SubgroupPath]) -> Iterator[list[Request]]:
        """Yield those that may start next if the gang has started: a whole subgroup, or a member of a started one."""
        if self.missing:
            if least := self.least(size, without):
                yield least
            return
        if self.path not in without:
            yield from ([request] for request in self.waiting)
        for each in self.inside.values():
            yield from each.further(size, without)

    def lack(self) -> Lack | None:
        """Return what is missing, of the subgroup that lacks the least where it has to be one that is known."""
        if not self.missing:
            return None
        incomplete = [each for each in self._counting if each.missing]
        if incomplete and len(incomplete) == self.missing:
            return min(incomplete, key=lambda each: each.missing).lack()
        return Lack(self.path, self.required, self.had, "members" if self._counts_members else "subgroups")


class Quorum:
    """The members of a gang: those that are `going`, and those that wait, the smallest first by their `size`."""

    def __init__(
        self,
        gang: GangClaim,
        going: Iterable[GangClaim],
        waiting: Iterable[Request],
        size: Callable[[Request], int] = lambda _request: 1,
    ) -> None:
        self._gang, self._going, self._size = gang, list(going), size
        self._waiting = {request.uid: request for request in sorted(waiting, key=size)}
        self._root = self._tree(self._going, self._waiting.values())

    def _tree(self, going: Iterable[GangClaim], waiting: Iterable[Request]) -> _Part:
        root = _Part(required=self._gang.required_subgroups or 0)
        for gang in going:
            root.at(gang).going += 1
        for request in waiting:
            root.at(gang_of(request)).waiting.append(request)
        return root

    @property
    def waiting(self) -> Sequence[Request]:
        """The members that wait."""
        return list(self._waiting.values())

    def with_requests(self, changed: Callable[[Request], Request]) -> Quorum:
        """Return the same with the requests of those that wait changed."""
        return Quorum(self._gang, self._going, map(changed, self.waiting), self._size)

    @property
    def complete(self) -> bool:
        """Whether enough are going."""
        return len(self._going) >= self._gang.required and not self._root.missing

    @property
    def lack(self) -> Lack | None:
        """What is missing although all who wait may start; None if they suffice."""
        everyone = [*self._going, *map(gang_of, self._waiting.values())]
        lack = self._tree(everyone, ()).lack()
        if lack is None and len(everyone) < self._gang.required:
            return Lack((), self._gang.required, len(everyone), "members")
        return lack

    def lack_of(self, request: Request) -> Lack | None:
        """Return what the gang lacks, or the outermost subgroup of one of its members, although all may start."""
        part, everyone = self._tree([*self._going, *map(gang_of, self.waiting)], ()), self.lack
        for name in () if everyone else gang_of(request).path:
            part = part.inside[name]
            if (lack := part.lack()) is not None:
                return lack
        return everyone

    def least(self, without: Collection[SubgroupPath] = _NONE) -> list[Request] | None:
        """Return the smallest waiting members that suffice, none of them of these subgroups; None if there are none."""
        found = self._root.least(self._size, without)
        while found is not None and len(self._going) + len(found) < self._gang.required:
            units = sorted(self._after(found).further(self._size, without), key=self._sum)
            if not units:
                return None
            for unit in units:
                if len(self._going) + len(found) < self._gang.required:
                    found += unit
        return found

    def every(self) -> list[Request]:
        """Return all waiting members that may start together: none of a subgroup that stays incomplete."""
        found = self.least()
        while found is not None and (units := list(self._after(found).further(self._size, _NONE))):
            found += chain.from_iterable(units)
        return found or []

    def further(self) -> list[list[Request]]:
        """Return those that may start next, once the gang has started: whole subgroups, and single members."""
        return list(self._root.further(self._size, _NONE))

    def _after(self, started: Sequence[Request]) -> _Part:
        """Return the tree after these have started."""
        uids = {request.uid for request in started}
        rest = (request for uid, request in self._waiting.items() if uid not in uids)
        return self._tree([*self._going, *map(gang_of, started)], rest)

    def _sum(self, members: Iterable[Request]) -> int:
        return sum(map(self._size, members))

    def fit_least(self, fit: Callable[[Sequence[Request]], dict[str, Choice] | Misfit]) -> dict[str, Choice] | Misfit:
        """Return the places of the smallest members that suffice; a subgroup without room is left out if it may be."""
        without, first = set[SubgroupPath](), None
        while (members := self.least(without)) is not None:
            found = fit(members)
            if isinstance(found, dict):
                return found
            first = first or found
            path = gang_of(self._waiting[found.uid]).path
            if not path:
                break
            without.add(path)
        assert first is not None, "there are enough members"
        return first


def late_units(quorum: Callable[[], Quorum]) -> Iterator[list[list[Request]]]:
    """Yield those that start together in a gang that has started, equal ones at a time; `quorum` counts those going."""
    seen = set[str]()
    while True:
        units = [unit for unit in quorum().further() if not seen.issuperset(each.uid for each in unit)]
        if not units:
            return
        first = _kind(next(iter(units)))
        equal = [unit for unit in units if _kind(unit) == first]
        seen.update(each.uid for unit in equal for each in unit)
        yield equal


def _kind(unit: Sequence[Request]) -> object:
    """Return what decides the places of late members: it is equal for those that find the same."""
    return [(what_decides(each), gang_of(each).path) for each in unit]


def gang_of(request: Request) -> GangClaim:
    """Return the gang of a member."""
    gang = request.claim.gang
    assert gang is not None, "it is a member"
    return gang
