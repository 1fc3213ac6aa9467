"""Places requests together or not at all, on a draft of the books.

Runs of equal members are counted first, so that a gang that can never fit is refused at once. Then they are placed in
one compiled call. The result is that of placing one after the other. Members whose gang names a domain are placed near
each other (`core/placing/domain.py`). Every function leaves the books as they were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.placing.candidates import find
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.domain import Mask, WantedUnits, most_within, nearest
from ullage.core.placing.feasibility import countable, ever, quota_allows, room, runs
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.placement import table_of
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import cards_on, choose, decided_by_sums, place, placement_of, reserved_place
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import GangClaim, Request
from ullage.model.rejection import Code, Cure, Rejection

_TIGHTEST = "compact-first"


@dataclass(frozen=True, slots=True)
class Misfit:
    """The first member without room, the reason, and the number of members placed before it."""

    uid: str
    refusal: Refusal
    placed: int


def by_size(fleet: Fleet, requests: Iterable[Request]) -> list[Request]:
    """Return the requests, the largest first: by cards in sum, then by number of cards; equal ones in their order."""

    def size(run: list[Request]) -> tuple[int, int]:
        asked = next(iter(run)).requirement
        return fleet.resources(asked).gpu_milli, asked.gpu_count

    return [request for run in sorted(runs(requests), key=size, reverse=True) for request in run]


def fit_together(
    fleet: Fleet,
    rules: Rules,
    requests: Sequence[Request],
    now: float,
    nominations: Nominations = NO_NOMINATIONS,
    neighbours: Collection[str] = (),
) -> dict[str, Choice] | Misfit:
    """Return the places of all these requests, placed in this order; or the first that finds no room.

    If they do not fit by their strategies, they are packed as tightly as possible. Members of a gang with a domain are
    placed near each other and near the `neighbours`, the nodes where others of the gang run. A gang with a required
    domain stays within one. Room reserved for these requests does not count as taken.
    """
    groups = list(runs(requests))
    never = shortage(fleet, rules, groups)
    if never is not None:
        return never
    if nominations.entries:
        nominations = nominations.without(*(request.uid for request in requests))
    first: Misfit | None = None
    for rows in _nearest(fleet, rules, groups, neighbours):
        found = place_groups(fleet, rules, groups, now, nominations=nominations, rows=rows)
        if isinstance(found, dict):
            return found
        first = first or found
    return first or _too_small(fleet, rules, groups, neighbours)


def place_groups(
    fleet: Fleet,
    rules: Rules,
    groups: list[list[Request]],
    now: float,
    *,
    nominations: Nominations,
    rows: Mask | None,
) -> dict[str, Choice] | Misfit:
    """Return the places of runs of equal requests, in order, on these nodes; by their strategies, else packed."""
    first: Misfit | None = None
    for each in _ways(rules, groups):
        found = _Draft(fleet, rules, now, nominations, rows=rows).place(each)
        if isinstance(found, dict):
            return found
        first = first or found
    assert first is not None, "there is one way at least"
    return first


def fit_as_kept(
    fleet: Fleet, rules: Rules, requests: Sequence[Request], now: float, nominations: Nominations
) -> dict[str, Choice] | None:
    """Return each request on the cards reserved for it; None if these are not free for all of them."""
    choices: dict[str, Choice] = {}
    with trial(fleet):
        for request in requests:
            found = reserved_place(fleet, rules, request, nominations)
            if found is None:
                return None
            choices[request.uid] = found
            enter(fleet, [request], [found], now)
    return choices


def shortage(fleet: Fleet, rules: Rules, groups: list[list[Request]]) -> Misfit | None:
    """Return the first run of members without room, each run counted as if there were no other."""
    for run in groups:
        if len(run) > 1 and (had := int(room(fleet, rules, run[0]).sum())) < len(run):
            at_best = ever(fleet, rules, run[0])
            cure, most = (Cure.CAPACITY, had) if at_best >= len(run) else (Cure.NODE_CHANGE, at_best)
            return Misfit(run[had].uid, Refusal((Rejection(Code.GANG_ROOM, cure, len(run), most),)), had)
    return None


def _nearest(
    fleet: Fleet, rules: Rules, groups: list[list[Request]], neighbours: Collection[str]
) -> Iterator[Mask | None]:
    """Yield the nodes to try: those near each other first if the gang has a domain, then all if it allows that."""
    gang = _gang_of(groups)
    if gang is not None and gang.innermost is not None:
        yield from nearest(fleet, gang.levels, _wanted(fleet, rules, groups, neighbours), gang.within)
    if gang is None or gang.within is None:
        yield None


def _gang_of(groups: list[list[Request]]) -> GangClaim | None:
    """Return the gang of requests that are placed together."""
    return next((request.claim.gang for run in groups for request in run), None)


def _wanted(fleet: Fleet, rules: Rules, groups: list[list[Request]], neighbours: Collection[str]) -> WantedUnits:
    return WantedUnits.of(
        fleet, [len(run) for run in groups], [room(fleet, rules, run[0]) for run in groups], neighbours
    )


def _too_small(fleet: Fleet, rules: Rules, groups: list[list[Request]], neighbours: Collection[str]) -> Misfit:
    """Return the refusal of a gang for which no domain of the required level has room."""
    gang = _gang_of(groups)
    assert gang is not None, "all nodes together are tried at last where it may be anywhere"
    assert gang.within is not None, "as above"
    units = sum(map(len, groups))
    had = most_within(fleet, gang.within, _wanted(fleet, rules, groups, neighbours))
    empty = fleet.emptied()
    at_best = most_within(empty, gang.within, _wanted(empty, rules, groups, neighbours))
    cure, most = (Cure.CAPACITY, had) if at_best >= units else (Cure.NODE_CHANGE, at_best)
    last = [request for run in groups for request in run][min(had, units - 1)]
    return Misfit(last.uid, Refusal((Rejection(Code.GANG_DOMAIN, cure, units, most),)), had)


def _ways(rules: Rules, groups: list[list[Request]]) -> Iterator[list[list[Request]]]:
    """Yield the requests with their own strategies, then packed as tightly as possible."""
    yield groups
    if sum(map(len, groups)) > 1 and any(rules.strategy_of(run[0]).name != _TIGHTEST for run in groups):
        yield [[replace(request, strategy=_TIGHTEST) for request in run] for run in groups]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A trial of places on the books at a time, on some nodes (`rows`) or on all."""

    fleet: Fleet
    rules: Rules
    now: float
    nominations: Nominations
    rows: Mask | None = None

    def place(self, groups: list[list[Request]]) -> dict[str, Choice] | Misfit:
        """Return the places of all runs, or the first request without room."""
        choices: dict[str, Choice] = {}
        with trial(self.fleet):
            for number, run in enumerate(groups, 1):
                found, refusal = self.place_run(run)
                choices.update(zip((request.uid for request in run), found, strict=False))
                if refusal is not None:
                    return Misfit(run[len(found)].uid, refusal, len(choices))
                if number < len(groups):  # nothing is placed after the last run
                    enter(self.fleet, run, found, self.now)
        return choices

    def place_run(self, run: Sequence[Request]) -> tuple[list[Choice], Refusal | None]:
        """Return the places of equal requests, in order, and why the first without room has none."""
        fleet, rules, request = self.fleet, self.rules, next(iter(run))
        board = fleet.board
        ahead = self.nominations.before(fleet, request)
        alone = board.decides(request.requirement) or board.rules.relative  # zones decide, or scores are relative
        together = countable(rules, request) and not alone
        if len(run) == 1 or not together or not quota_allows(fleet, rules, request, len(run), ahead=ahead):
            return self._one_by_one(run)
        with reserving(fleet, ahead):
            table = table_of(fleet, request.requirement, rules.strategy_of(request), rules.cap)
            names, uuids = fleet.nodes, fleet.uuids
            found = [
                Choice(names[row].name, uuids(cards), table.charges(cards), score)
                for row, cards, score in zip(*table.several(len(run), self.rows), strict=True)
            ]
        if len(found) == len(run):
            return found, None
        return found, Refusal((Rejection(Code.GANG_ROOM, Cure.CAPACITY, len(run), len(found)),))

    def _one_by_one(self, run: Sequence[Request]) -> tuple[list[Choice], Refusal | None]:
        choices: list[Choice] = []
        with trial(self.fleet):
            for request in run:
                found = self._place(request)
                if isinstance(found, Refusal):
                    return choices, found
                choices.append(found)
                enter(self.fleet, [request], [found], self.now)
        return choices, None

    def _place(self, request: Request) -> Choice | Refusal:
        """Return the place of one request, or why there is none; of some nodes only that they have no room."""
        fleet, rules = self.fleet, self.rules
        ahead = self.nominations.before(fleet, request)
        if self.rows is None:
            return place(fleet, rules, request, ahead=ahead)
        among = np.flatnonzero(self.rows)
        with reserving(fleet, ahead):
            chosen = choose(fleet, rules, request, among)
            if chosen is not None:
                return chosen
            if decided_by_sums(fleet, rules, request):
                return Refusal((Rejection(Code.GANG_ROOM, Cure.CAPACITY, 1, 0),))
            return find(fleet, rules, request, cards_on(fleet, among)).refusal


def place_run(
    fleet: Fleet,
    rules: Rules,
    run: Sequence[Request],
    now: float,
    *,
    nominations: Nominations,
    rows: Mask | None = None,
) -> tuple[list[Choice], Refusal | None]:
    """Return the places of equal requests, in order, and why the first without room has none; None if all have.

    With `rows`, only these nodes are used.
    """
    return _Draft(fleet, rules, now, nominations, rows=rows).place_run(run)


def enter(fleet: Fleet, requests: Iterable[Request], choices: Iterable[Choice], now: float) -> None:
    """Charge the chosen places, within the trial of the caller."""
    for request, choice in zip(requests, choices, strict=True):
        asked, state = request.requirement, AllocationState.ASSUMED
        charged = Allocation(
            request.uid,
            choice.node,
            asked,
            choice.gpus,
            state=state,
            charges=choice.charges,
            claim=request.claim,
            assumed_at=now,
            placement=placement_of(fleet, asked, choice),
        )
        fleet.charge(charged, force=True)
