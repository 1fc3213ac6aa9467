"""Whose executors give way when somebody below its entitlement finds nothing free.

Order: executors without a session, those that leave theirs anyway, those without a task, then running
ones of the session furthest above what it deserves in the lowest priority; newest first. Gangs go whole.
Nobody falls below its minimum or its queue's guarantee, nor below what it deserves, unless the claimant
is overdue and of no lower priority; and no victim is taken that turns out not to be needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from itertools import filterfalse
from math import inf
from operator import attrgetter

from ullage.core.entitlement import place_unit
from ullage.core.placement import Placer
from ullage.core.shares import Leaf, ShareTree, Vector
from ullage.core.world import Demand, ExecutorView, Phase, World
from ullage.core.yielding import Victim, fewest
from ullage.model.allocation import Allocation


@dataclass(slots=True)
class _Line:
    """A session as one claim asks it: its victims, the next one first, what it holds, and how many it may still lose.

    `guarded` if the guarantee of its queue stands in the way, `equal` if its share is compared with the claimant's.
    """

    session: str
    victims: Iterator[Victim]
    held: int
    left: int
    demand: Demand | None
    leaf: Leaf | None = None
    entitled: int = 0
    guarded: bool = False
    equal: bool = False


_Turn = tuple[bool, int, int, int, str, Victim, _Line]
"""When a victim's turn is, down to its session, of which this one is the next."""


class Reclaim:
    """Chooses victims for one cycle; remembers what it has taken."""

    def __init__(self, world: World, tree: ShareTree, leaves: dict[str, Leaf], deserved: dict[str, int]) -> None:
        self._tree = tree
        self._leaves = leaves
        self._demands = {demand.session: demand for demand in world.demands}
        self._taken: set[str] = set()
        self._awaited: set[str] = set()
        self._hopeless: set[tuple[object, ...]] = set()
        self._idle = sorted(
            (executor for executor in world.executors if executor.phase is Phase.IDLE or _lingers(executor)),
            key=lambda executor: (executor.phase is not Phase.IDLE, executor.since, executor.id),
        )
        self._executors = held = world.held()
        self._victims: dict[str, list[Victim]] = {}
        self._held = {session: len(executors) for session, executors in held.items()}
        self._floors = {session: self._demands[session].floor for session in held if session in self._demands}
        self._keeps = {session: max(deserved.get(session, 0), floor) for session, floor in self._floors.items()}
        self._deserved = deserved

    def claim(
        self,
        claimant: Demand,
        outlook: Placer,
        vacant: Placer,
        now: float,
        name: str,
        *,
        overdue: bool = False,
        patient: bool = False,
    ) -> tuple[tuple[Victim, ...], tuple[Allocation, ...]] | None:
        """Fewest victims that make one unit of `claimant` fit in `outlook`; both are charged there.

        For an overdue request sessions of no higher priority give way down to their minimum: a request
        that is larger than anybody's surplus would otherwise wait for ever. A `patient` claim waits for
        the protection of its victims to end: it holds their room and does not make them leave.
        """
        share = self._tree.leaf_share(self._leaves[claimant.session])
        kind = (claimant.requirement, claimant.batch_size, claimant.queue, claimant.priority, share, overdue, patient)
        if kind in self._hopeless:
            return None
        order = self._in_order(claimant, inf if patient else now, overdue=overdue)
        needed = fewest(outlook, claimant, _on_useful_nodes(order, claimant, outlook, vacant), name)
        if needed is None:
            self._hopeless.add(kind)
            return None
        for victim in needed:
            _leave(outlook, victim)
            if patient:
                self._awaited.update(member.id for member in victim.members)
                continue
            self._taken.update(member.id for member in victim.members)
            if victim.session is not None:
                self._held[victim.session] -= len(victim.members)
        placed = place_unit(outlook, claimant, name, claimant.batch_size)
        assert placed is not None, "the spared set was tried"
        return tuple(needed), placed

    def claim_within(self, claimant: Demand, tree: ShareTree, outlook: Placer, now: float) -> tuple[Victim, ...]:
        """Fewest victims that bring `claimant` below the limit that stops it; they leave `outlook`. None: ()."""
        leaf = self._leaves[claimant.session]
        code = tree.over_limit(leaf, leaving=False)
        chosen: list[Victim] = []
        while code is not None:
            shares_limit = tree.within(leaf, code)
            found = next(
                (
                    victim
                    for victim in self._in_order(claimant, now, overdue=False)
                    if victim.session in self._demands
                    and shares_limit(self._leaves[victim.session])
                    and all(member.id not in self._taken for member in victim.members)
                ),
                None,
            )
            if found is None:
                break
            chosen.append(found)
            self._count_out(tree, found, +1)
            code = tree.over_limit(leaf, leaving=False)
        if code is not None:
            for victim in chosen:
                self._count_out(tree, victim, -1)
            return ()
        for victim in chosen:
            _leave(outlook, victim)
        return tuple(chosen)

    def _count_out(self, tree: ShareTree, victim: Victim, sign: int) -> None:
        assert victim.session is not None
        tree.take(self._leaves[victim.session], sign * victim.units(self._demands[victim.session]))
        self._held[victim.session] -= sign * len(victim.members)
        (self._taken.update if sign > 0 else self._taken.difference_update)(member.id for member in victim.members)

    def taken(self, executor: str) -> bool:
        """Whether an executor was claimed in this cycle."""
        return executor in self._taken

    def reused(self, executor: str) -> None:
        """An idle executor found a session: it is nobody's victim."""
        self._taken.add(executor)

    def _promised(self, victim: Victim) -> bool:
        executor = victim.members[0].id
        return executor in self._taken or executor in self._awaited

    def _in_order(self, claimant: Demand, now: float, *, overdue: bool) -> Iterator[Victim]:
        yield from filterfalse(self._promised, (Victim((executor,), None) for executor in self._idle))
        losses: dict[str, Vector] = {}
        queue = [turn for line in self._lines(claimant, overdue=overdue) if (turn := self._turn(line)) is not None]
        heapify(queue)
        while queue:
            *_, victim, line = queue[0]
            size = len(victim.members)
            if (
                size <= line.left
                and victim.protected_until <= now
                and (not line.equal or self._stays_ahead(line, size, claimant))
                and (not line.guarded or self._spares(line, size, losses))
            ):
                line.left -= size
                line.held -= size
                yield victim
            following = self._turn(line)
            if following is not None:
                heapreplace(queue, following)
            else:
                heappop(queue)

    def _lines(self, claimant: Demand, *, overdue: bool) -> Iterator[_Line]:
        """The sessions that may lose victims to this claimant."""
        keeps = self._floors if overdue else self._keeps
        for session, held in self._held.items():
            left, loser = held - keeps.get(session, 0), self._demands.get(session)
            spared = overdue and loser is not None and loser.priority > claimant.priority
            if left <= 0 or session == claimant.session or spared:
                continue
            line = _Line(session, filterfalse(self._promised, self._victims_of(session)), held, left, loser)
            if loser is not None:
                line.guarded = loser.queue != claimant.queue
                line.equal = not line.guarded and loser.priority == claimant.priority
                line.leaf, line.entitled = self._leaves[session], self._entitled[session]
            yield line

    def _victims_of(self, session: str) -> list[Victim]:
        """Its executors in the order in which they give way; most sessions are never asked."""
        found = self._victims.get(session)
        if found is None:
            found = self._victims[session] = _in_turn(session, self._executors[session])
        return found

    def _turn(self, line: _Line) -> _Turn | None:
        """When the turn of a session's next victim is: vacant, low priority, far above what it deserves first."""
        victim, demand = next(line.victims, None) if line.left > 0 else None, line.demand
        if victim is None:
            return None
        if demand is None or line.leaf is None:
            return (victim.busy, -1, 0, 0, line.session, victim, line)
        excess = self._tree.leaf_share(line.leaf, line.held // demand.batch_size) - line.entitled
        return (victim.busy, demand.priority, -excess, demand.number, line.session, victim, line)

    @cached_property
    def _entitled(self) -> dict[str, int]:
        """The shares that sessions with executors deserve."""
        return {
            session: self._tree.leaf_share(
                self._leaves[session], self._deserved.get(session, 0) // self._demands[session].batch_size
            )
            for session in self._floors
        }

    def _stays_ahead(self, line: _Line, size: int, claimant: Demand) -> bool:
        """Whether a session that is the claimant's equal still has no smaller share without so many executors."""
        assert line.leaf is not None
        assert line.demand is not None
        batch = line.demand.batch_size
        units_after = (line.leaf.held * batch - size) // batch
        return self._tree.leaf_share(line.leaf, units_after) >= self._tree.leaf_share(self._leaves[claimant.session])

    def _spares(self, line: _Line, size: int, losses: dict[str, Vector]) -> bool:
        """Whether no guarantee is broken by so many executors on top of those before them; notes the loss."""
        assert line.leaf is not None
        assert line.demand is not None
        units, queue = -(-size // line.demand.batch_size), line.demand.queue
        return all(self._tree.lose(queue, line.leaf.unit, losses) for _ in range(units))


def _lingers(executor: ExecutorView) -> bool:
    """It leaves its session for nobody's sake, and may take its time until somebody waits."""
    return executor.phase is Phase.LEAVING and not executor.reclaimed


def _in_turn(session: str, executors: list[ExecutorView]) -> list[Victim]:
    """A session's executors as victims: vacant before busy, newest first, gangs whole."""
    gangs: dict[str, list[ExecutorView]] = {}
    turns, running = [], Phase.BUSY
    for executor in executors:
        if not executor.gang:
            busy = executor.phase is running
            victim = Victim((executor,), session, busy, executor.protected_until if busy else -inf)
            turns.append((busy, -executor.bound_at, executor.id, victim))
        else:
            gangs.setdefault(executor.gang, []).append(executor)
    for members in gangs.values():
        members.sort(key=attrgetter("id"))
        until = [member.protected_until for member in members if member.phase is running]
        victim = Victim(tuple(members), session, bool(until), max(until, default=-inf))
        turns.append((victim.busy, -max(member.bound_at for member in members), members[0].id, victim))
    turns.sort()
    return [victim for *_, victim in turns]


def _on_useful_nodes(victims: Iterable[Victim], claimant: Demand, outlook: Placer, vacant: Placer) -> Iterator[Victim]:
    """Those with a member on a node that would have room for the claimant if it were empty: no others are of use."""
    useful, rows, ledger = vacant.room(claimant.requirement) > 0, outlook.fleet.row_of, outlook.fleet.ledger
    if useful.all():
        yield from victims
        return
    for victim in victims:
        for member in victim.members:
            row = rows.get(ledger[member.id].node)
            if row is not None and useful[row]:
                yield victim
                break


def _leave(outlook: Placer, victim: Victim) -> None:
    for member in victim.members:
        outlook.fleet.release(member.id)
