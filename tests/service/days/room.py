"""Whether a unit of a session could be placed if others gave way, found by trying all sets of them.

It shares no search with `core/evicting/reclaim.py`. Victims are executors above what their sessions deserve and above
their minima; gangs go whole; no guarantee of a queue is broken, and no limit. What is promised to others is not
counted on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice, product

from ullage.core.books.trial import trial
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.world import WORKING, Demand, ExecutorView, World
from ullage.model.queue import Limit, Queue
from ullage.model.resources import Resources

_SETS = 3000
"""Sets of victims that are tried; a session that only a later one would serve is not watched."""

Group = tuple[str, ...]
"""Executors that go together."""


@dataclass(frozen=True)
class Loser:
    """A session that may lose so many of its groups."""

    demand: Demand | None
    groups: list[Group]
    spare: int
    guarded: bool


class Room:
    """What one session could get in this world, where sessions deserve so many executors; these `stay`."""

    def __init__(self, world: World, deserved: dict[str, int], session: str, stay: Collection[str] = ()) -> None:
        self._world, self._fleet, self._stay = world, world.fleet, frozenset(stay)
        self._demands = {demand.session: demand for demand in world.demands}
        self._queues = {queue.name: queue for queue in world.queues}
        self._claimant = self._demands[session]
        self._placer = Placer(self._fleet, Policy())
        self._held = world.held()
        self._node_of = {executor.id: self._fleet.ledger[executor.id].node for executor in world.executors}
        self._losers = list(self._find_losers(deserved))
        self._limited = any(queue.limit != Limit() for queue in self._line(self._claimant.queue))
        promised = {name: len(promise.places) for name, promise in world.promises.items()}
        self._usage = self._usage_of({})
        self._usage_to_be = self._usage_of(promised)

    def could_be_had(self) -> bool:
        everything = [group for loser in self._losers for group in loser.groups]
        if not self._fits(everything, None):
            return False
        found = (self._allowed(groups) and self._fits(groups, row) for groups, row in islice(self._sets(), _SETS))
        return any(found)

    def _sets(self) -> Iterator[tuple[list[Group], int | None]]:
        """Sets of groups, with the node where they are to make room; None if anywhere."""
        if self._claimant.batch_size > 1 or self._limited:
            for groups in self._choices(self._losers):
                yield groups, None
            return
        for row, node in enumerate(self._fleet.nodes):
            there = [
                replace(each, groups=[g for g in each.groups if self._lies(g, node.name)]) for each in self._losers
            ]
            for groups in self._choices(there):
                yield groups, row

    def _choices(self, losers: list[Loser]) -> Iterator[list[Group]]:
        options = [
            [
                some
                for size in range(most, -1 if loser.guarded else most - 1, -1)
                for some in islice(combinations(loser.groups, size), _SETS)
            ]
            for loser in losers
            if (most := min(loser.spare, len(loser.groups)))
        ]
        for chosen in product(*options):
            yield [group for some in chosen for group in some]

    def _lies(self, group: Group, node: str) -> bool:
        return any(self._node_of[member] == node for member in group)

    def _find_losers(self, deserved: dict[str, int]) -> Iterator[Loser]:
        for name, executors in self._held.items():
            if name == self._claimant.session:
                continue
            demand = self._demands.get(name)
            keeps = 0 if demand is None else max(deserved.get(name, 0), demand.floor)
            groups = _groups(executors)
            spare = max(0, len(executors) - keeps) // max(map(len, groups))
            other = demand is not None and demand.queue != self._claimant.queue
            guarded = other and any(queue.guarantee != Resources() for queue in self._line(demand.queue))
            if spare:
                may_go = [group for group in groups if not set(group) & self._stay]
                yield Loser(demand, may_go, spare, guarded)

    # --- queues ---

    def _line(self, name: str) -> Iterator[Queue]:
        while name in self._queues:
            yield self._queues[name]
            name = self._queues[name].parent

    def _usage_of(self, more: dict[str, int]) -> dict[str, Resources]:
        """What the sessions of each queue hold, with so many executors more of each session."""
        usage: dict[str, Resources] = {}
        for name, demand in self._demands.items():
            count = len(self._held.get(name, ())) + more.get(name, 0)
            self._add(usage, demand, count)
        return usage

    def _add(self, usage: dict[str, Resources], demand: Demand, count: int) -> None:
        for queue in self._line(demand.queue):
            amount = self._fleet.resources(demand.requirement) * count
            usage[queue.name] = usage.get(queue.name, Resources()) + amount

    def _allowed(self, groups: Iterable[Group]) -> bool:
        """Whether guarantees and limits let these go, and the claimant have a unit."""
        losses: dict[str, Resources] = {}
        chosen = set(groups)
        for loser in self._losers:
            gone = sum(len(group) for group in loser.groups if group in chosen)
            if gone and loser.demand is not None:
                self._add(losses, loser.demand, gone)
                if loser.guarded and any(self._broken(q, losses) for q in self._line(loser.demand.queue)):
                    return False
        unit = self._fleet.resources(self._claimant.requirement) * self._claimant.batch_size
        for queue in self._line(self._claimant.queue):
            held = self._usage_to_be.get(queue.name, Resources())
            lost = losses.get(queue.name, Resources())
            after = Resources(*(has - less + more for has, less, more in zip(held, lost, unit, strict=True)))
            if queue.limit.exceeded(after) is not None:
                return False
        return True

    def _broken(self, queue: Queue, losses: dict[str, Resources]) -> bool:
        held, lost = self._usage.get(queue.name, Resources()), losses.get(queue.name, Resources())
        return any(less and has - less < due for has, less, due in zip(held, lost, queue.guarantee, strict=True))

    # --- nodes ---

    def _fits(self, groups: Iterable[Group], row: int | None) -> bool:
        """Whether a unit has room, on that node if one is given, once these and all who leave have left."""
        leaving = [executor.id for executor in self._world.executors if executor.phase not in WORKING]
        with trial(self._fleet):
            for name in (*leaving, *(member for group in groups for member in group)):
                self._fleet.release(name)
            for promise in self._world.promises.values():
                for number, place in enumerate(promise.places):
                    self._fleet.charge(replace(place, id=f"promised {place.id} {number}"), force=True)
            room = self._placer.room(self._claimant.requirement)
            return bool(room.sum() >= self._claimant.batch_size if row is None else room[row] > 0)


def _groups(executors: Iterable[ExecutorView]) -> list[Group]:
    gangs: dict[str, list[str]] = {}
    for executor in executors:
        gangs.setdefault(executor.gang or executor.id, []).append(executor.id)
    return [tuple(members) for members in gangs.values()]
