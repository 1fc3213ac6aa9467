"""Whose executors give way when somebody below its entitlement finds nothing free.

Order: executors without a session, those that leave theirs anyway, those without a task, then running
ones of the session furthest above what it deserves in the lowest priority; newest first. Gangs go whole.
Nobody falls below its minimum or its queue's guarantee, nor below what it deserves, unless the claimant
is overdue and of no lower priority; and no victim is taken that turns out not to be needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from math import inf

from ullage.core.entitlement import place_unit
from ullage.core.placement import Placer
from ullage.core.shares import Leaf, ShareTree, Vector
from ullage.core.world import Demand, ExecutorView, Phase, World
from ullage.core.yielding import Victim, fewest
from ullage.model.allocation import Allocation

_Entry = tuple[bool, int, int, int, str, int]
"""When a victim's turn is, then its session and its place among the victims of it."""


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
        held = world.held()
        self._groups = {session: _groups(session, executors) for session, executors in held.items()}
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

    def _promised(self, executor: str) -> bool:
        return executor in self._taken or executor in self._awaited

    def _in_order(self, claimant: Demand, now: float, *, overdue: bool) -> Iterator[Victim]:
        for executor in self._idle:
            if not self._promised(executor.id):
                yield Victim((executor,), None)
        held, losses = dict(self._held), dict[str, Vector]()
        keeps = self._floors if overdue else self._keeps
        queue = [entry for session in self._groups if (entry := self._entry(session, held, keeps, 0)) is not None]
        heapify(queue)
        while queue:
            *_, session, position = queue[0]
            victim, left = self._groups[session][position], held[session] - keeps.get(session, 0)
            if (
                victim.protected_until <= now
                and len(victim.members) <= left
                and self._may_take(victim, claimant, overdue=overdue)
                and self._spares(victim, claimant, losses)
            ):
                held[session] -= len(victim.members)
                yield victim
            following = self._entry(session, held, keeps, position + 1)
            if following is not None:
                heapreplace(queue, following)
            else:
                heappop(queue)

    def _entry(self, session: str, held: dict[str, int], keeps: dict[str, int], position: int) -> _Entry | None:
        """Sort key of a session's next victim: vacant, low priority, far above what it deserves first."""
        groups = self._groups[session]
        while position < len(groups) and self._promised(groups[position].members[0].id):
            position += 1
        if position == len(groups) or held[session] <= keeps.get(session, 0):
            return None
        demand = self._demands.get(session)
        if demand is None:
            return (groups[position].busy, -1, 0, 0, session, position)
        excess = self._tree.leaf_share(self._leaves[session], held[session] // demand.batch_size)
        excess -= self._entitled[session]
        return (groups[position].busy, demand.priority, -excess, demand.number, session, position)

    @cached_property
    def _entitled(self) -> dict[str, int]:
        """The shares that sessions with executors deserve."""
        return {
            session: self._tree.leaf_share(
                self._leaves[session], self._deserved.get(session, 0) // self._demands[session].batch_size
            )
            for session in self._floors
        }

    def _may_take(self, victim: Victim, claimant: Demand, *, overdue: bool) -> bool:
        """Whether its session may lose it to this claimant, but for guarantees."""
        assert victim.session is not None
        if victim.session == claimant.session:
            return False
        loser = self._demands.get(victim.session)
        if loser is None:
            return True
        if overdue and loser.priority > claimant.priority:
            return False
        if loser.priority != claimant.priority or loser.queue != claimant.queue:
            return True
        leaf = self._leaves[loser.session]
        units_after = (leaf.held * loser.batch_size - len(victim.members)) // loser.batch_size
        before = self._tree.leaf_share(self._leaves[claimant.session])
        return self._tree.leaf_share(leaf, units_after) >= before

    def _spares(self, victim: Victim, claimant: Demand, losses: dict[str, Vector]) -> bool:
        """Whether no guarantee is broken by this victim on top of those before it; notes its loss."""
        loser = self._demands.get(victim.session or "")
        if loser is None or loser.queue == claimant.queue:
            return True
        units = -(-len(victim.members) // loser.batch_size)
        return all(self._tree.lose(loser.queue, self._leaves[loser.session].unit, losses) for _ in range(units))


def _lingers(executor: ExecutorView) -> bool:
    """It leaves its session for nobody's sake, and may take its time until somebody waits."""
    return executor.phase is Phase.LEAVING and not executor.reclaimed


def _groups(session: str, executors: list[ExecutorView]) -> list[Victim]:
    """A session's executors as victims: vacant before busy, newest first, gangs whole."""
    gangs: dict[str, list[ExecutorView]] = {}
    for executor in executors:
        gangs.setdefault(executor.gang or executor.id, []).append(executor)
    victims = [(max([m.bound_at for m in members]), _victim(session, members)) for members in gangs.values()]
    victims.sort(key=lambda found: (found[1].busy, -found[0], found[1].members[0].id))
    return [victim for _, victim in victims]


def _victim(session: str, members: list[ExecutorView]) -> Victim:
    until = [member.protected_until for member in members if member.phase is Phase.BUSY]
    if len(members) > 1:
        members = sorted(members, key=lambda member: member.id)
    return Victim(tuple(members), session, bool(until), max(until, default=-inf))


def _on_useful_nodes(victims: Iterable[Victim], claimant: Demand, outlook: Placer, vacant: Placer) -> Iterator[Victim]:
    """Those with a member on a node that would have room for the claimant if it were empty."""
    useful, rows, ledger = (vacant.room(claimant.requirement) > 0).tolist(), outlook.fleet.row_of, outlook.fleet.ledger
    for victim in victims:
        for member in victim.members:
            row = rows.get(ledger[member.id].node)
            if row is not None and useful[row]:
                yield victim
                break


def _leave(outlook: Placer, victim: Victim) -> None:
    for member in victim.members:
        outlook.fleet.release(member.id)
