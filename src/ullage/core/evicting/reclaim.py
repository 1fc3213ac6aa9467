"""Which executors give way when a session below what it deserves finds nothing free.

Order: those that leave their session anyway, those without a task, then running ones of the session furthest
above what it deserves in the lowest priority; newest first. Gangs go whole. No session falls below its minimum
or the guarantee of its queue, nor below what it deserves, unless the claimant is overdue and of no lower
priority. No victim is taken that is not needed, and none before its protection ends.

Victims are asked in that order first. Where the first ones use up what their session may lose and do not help,
the claim looks at whole cards, then at one node after the other, then at one card after the other, and last at one
victim after the other with those near it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from heapq import heapify, heappop, heapreplace
from itertools import filterfalse, islice
from math import inf
from operator import attrgetter

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.evicting.ways import VictimLine, Willing, cards_to_free, may_do, nearest_first, one_of_each, shared
from ullage.core.evicting.yielding import ExecutorVictim, fewest, room_without
from ullage.core.placing.placement import Placer
from ullage.core.sharing.entitlement import place_unit
from ullage.core.sharing.promise import charge_back
from ullage.core.sharing.shares import Leaf, ShareTree, Vector
from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView, World
from ullage.model.allocation import Allocation

_MEMBERS = 16
"""The largest gang whose members are served one by one where victims in order do not make room for all."""

_AROUND = 64
"""Victims around which a claim looks, one after the other, where no other way makes room."""

_AT_WORK = frozenset({ExecutorPhase.STARTING, ExecutorPhase.BUSY})
"""Phases in which the protection of an executor counts."""


Among = Callable[[str], bool]
"""Which executors a claim looks at."""

_Turn = tuple[bool, int, int, int, str, ExecutorVictim, VictimLine]
"""When a victim's turn is, down to its session, of which this one is the next."""


class Reclaim:
    """Chooses victims for one cycle; remembers which were taken."""

    def __init__(self, world: World, tree: ShareTree, leaves: dict[str, Leaf], deserved: dict[str, int]) -> None:
        self._fleet = world.fleet
        self._tree = tree
        self._leaves = leaves
        self._demands = {demand.session: demand for demand in world.demands}
        self._gone: set[str] = set()
        self._taken: set[str] = set()
        self._hopeless: set[tuple[object, ...]] = set()
        self._lingering = sorted(filter(_lingers, world.executors), key=lambda executor: (executor.since, executor.id))
        self._executors = held = world.held()
        self._victims: dict[str, list[ExecutorVictim]] = {}
        staying = {executor.session or "": 0 for executor in world.executors if executor.may_stay}
        self._held = staying | {session: len(executors) for session, executors in held.items()}
        self._floors = {session: self._demands[session].floor for session in self._held if session in self._demands}
        self._keeps = {session: max(deserved.get(session, 0), floor) for session, floor in self._floors.items()}
        self._deserved = deserved
        self._world = world

    @cached_property
    def _vacant(self) -> frozenset[str]:
        """Executors that have a session and no task."""
        return frozenset(executor.id for executor in self._world.executors if executor.phase is ExecutorPhase.VACANT)

    @property
    def some_vacant(self) -> bool:
        """Return whether any executor has a session and no task."""
        return bool(self._vacant)

    def claim(
        self,
        claimant: Demand,
        outlook: Placer,
        vacant: Placer,
        now: float,
        name: str,
        *,
        displace: bool = False,
        on_trial: bool = False,
    ) -> tuple[tuple[ExecutorVictim, ...], tuple[Allocation, ...]] | None:
        """Fewest victims that make one unit of `claimant` fit in `outlook`; both are charged there.

        With `displace` sessions of no higher priority give way down to their minimum. `now` is when protections
        are looked at. The victims are remembered, so that no other claim counts on them. What others of its kind
        do not find is remembered too, unless victims of a limit have left `on_trial`.
        """
        own = claimant.session if displace and claimant.session in self._held else None
        kind = (claimant.requirement, claimant.batch_size, claimant.queue, claimant.priority, own, displace, now)
        if kind in self._hopeless:
            return None
        needed = self._search(claimant, outlook, vacant, now, name, displace=displace)
        if needed is None:
            if not on_trial:
                self._hopeless.add(kind)
            return None
        return tuple(needed), self._place(claimant, outlook, needed, name)

    def claim_vacant(
        self, claimant: Demand, outlook: Placer, now: float, names: list[str], staying: list[ExecutorView]
    ) -> tuple[tuple[ExecutorVictim, ...], list[tuple[Allocation, ...]]] | None:
        """Place as many units as there are `names` though these executors of one session stay.

        They were to leave for `claimant`, and their room is charged in `outlook` again. The last unit gets that of
        executors without a task. None if there are not enough of them; then the caller takes back what was charged.
        """
        session = staying[0].session or ""
        members = [member.id for member in staying]
        if session not in self._demands or not charge_back(outlook.fleet, self._fleet, members):
            return None
        placed = [place_unit(outlook, claimant, name, claimant.batch_size) for name in names[:-1]]
        units = [unit for unit in placed if unit is not None]
        if len(units) < len(placed):
            return None
        back = -(-len(staying) // self._demands[session].batch_size)
        self._tree.take(self._leaves[session], -back)
        self._held[session] += len(staying)
        some = self.in_order(claimant, now, among=self._vacant.__contains__)
        vacant = (victim for victim in some if all(member.id in self._vacant for member in victim.members))
        needed = fewest(outlook, claimant, vacant, names[-1])
        if needed is None:
            self._tree.take(self._leaves[session], back)
            self._held[session] -= len(staying)
            return None
        return tuple(needed), [*units, self._place(claimant, outlook, needed, names[-1])]

    def _place(
        self, claimant: Demand, outlook: Placer, needed: Iterable[ExecutorVictim], name: str
    ) -> tuple[Allocation, ...]:
        for victim in needed:
            leave(outlook, victim)
            self._gone.update(member.id for member in victim.members)
        placed = place_unit(outlook, claimant, name, claimant.batch_size)
        assert placed is not None, "the set was tried"
        return placed

    def take(self, victims: Iterable[ExecutorVictim]) -> None:
        """Victims of a claim leave their session."""
        for victim in victims:
            self._taken.update(member.id for member in victim.members)
            if victim.session is not None:
                self._held[victim.session] -= len(victim.members)

    def _search(
        self, claimant: Demand, outlook: Placer, vacant: Placer, now: float, name: str, *, displace: bool
    ) -> list[ExecutorVictim] | None:
        """Return the fewest victims of the first way that makes a unit fit."""
        useful = vacant.room(claimant.requirement) > 0
        everywhere = None if useful.all() else self._lies_on(set(useful.nonzero()[0].tolist()))
        in_order = partial(self.in_order, claimant, now, displace=displace)
        needed = fewest(outlook, claimant, in_order(among=everywhere), name)
        if needed is not None:
            return needed
        willing = self._willing(self._lines(claimant, displace=displace), now)
        room = room_without(outlook, claimant, [victim for _, victim in willing])
        if room.sum() < claimant.batch_size:
            return None
        there = self._by_node(willing)
        rows = [row for row in there if row >= 0 and room[row] and may_do(claimant, outlook.fleet, row, there[row])]
        ways = self._ways(claimant, outlook.fleet, rows, there, in_order)
        found = (fewest(outlook, claimant, victims, name) for victims in ways)
        needed = next((needed for needed in found if needed is not None), None)
        if needed is None and 1 < claimant.batch_size <= _MEMBERS:
            needed = self._member_by_member(claimant, outlook, vacant, now, name, displace=displace)
        if needed is None:
            if claimant.batch_size == 1:
                near = [there[row] for row in rows]
            else:
                near = [[(line, victim) for line, victim in willing if not self._rows_of(victim).isdisjoint(rows)]]
            around = islice(self._around(near, outlook.fleet), _AROUND)
            found = (fewest(outlook, claimant, victims, name) for victims in around)
            needed = next((needed for needed in found if needed is not None), None)
        return needed

    def _member_by_member(
        self, claimant: Demand, outlook: Placer, vacant: Placer, now: float, name: str, *, displace: bool
    ) -> list[ExecutorVictim] | None:
        """Return the fewest of the victims that the members of a gang find one after the other."""
        chosen: list[ExecutorVictim] = []
        needed: list[ExecutorVictim] | None = chosen
        alone = replace(claimant, batch_size=1)
        with trial(outlook.fleet):
            for rank in range(claimant.batch_size):
                if place_unit(outlook, alone, f"{name}/{rank}", 1) is not None:
                    continue
                needed = self._search(alone, outlook, vacant, now, name, displace=displace)
                if needed is None:
                    break
                for victim in needed:
                    chosen.append(victim)
                    leave(outlook, victim)
                    self.count_out(victim, +1)
                assert place_unit(outlook, alone, f"{name}/{rank}", 1) is not None, "the set was tried"
            else:
                needed = chosen
        for victim in chosen:
            self.count_out(victim, -1)
        return None if needed is None else fewest(outlook, claimant, chosen, name)

    def _ways(
        self,
        claimant: Demand,
        fleet: Fleet,
        rows: list[int],
        there: dict[int, list[Willing]],
        in_order: Callable[..., Iterator[ExecutorVictim]],
    ) -> Iterator[Iterator[ExecutorVictim]]:
        """Whole cards together; then what lies on one node, on its cards together, on one card."""
        cards = claimant.requirement.gpu_count
        if cards and rows:
            yield self._card_by_card((pair for row in rows for pair in there[row]), fleet, rows)
        if claimant.batch_size > 1:
            return
        for row in rows:
            yield in_order(row=row)
            if any(len(victim.members) > 1 for _, victim in there[row]):
                yield in_order(row=row, whole=True)
            if cards > 1:
                yield self._card_by_card(there[row], fleet, [row])
            elif cards and shared(fleet, row):
                for card in cards_to_free(claimant, fleet, row, there[row]):
                    yield in_order(among=frozenset(fleet.holders[card]).__contains__, row=row)

    def _around(self, near: Iterable[list[Willing]], fleet: Fleet) -> Iterator[Iterator[ExecutorVictim]]:
        """Yield the victims of each list, one after the other, with those near it."""
        for willing in near:
            for one in one_of_each(willing, fleet):
                yield self._affordable(nearest_first(one, willing, fleet))

    def _affordable(self, willing: Iterable[Willing]) -> Iterator[ExecutorVictim]:
        """Return those of these victims that their sessions may lose, one after the other."""
        left, losses = dict[str, int](), dict[str, Vector]()
        return (victim for line, victim in willing if self._pay(line, victim, left, losses))

    def _by_node(self, willing: Iterable[Willing]) -> dict[int, list[Willing]]:
        """Victims by the nodes on which their members lie, in their order."""
        found: dict[int, list[Willing]] = {}
        for pair in willing:
            for row in self._rows_of(pair[1]):
                found.setdefault(row, []).append(pair)
        return found

    def _rows_of(self, victim: ExecutorVictim) -> set[int]:
        row_of, ledger = self._fleet.row_of, self._fleet.ledger
        return {row_of.get(ledger[member.id].node, -1) for member in victim.members}

    def _lies_on(self, rows: set[int]) -> Among:
        """Which executors lie on one of these nodes: others are of no use."""
        row_of, ledger = self._fleet.row_of, self._fleet.ledger
        return lambda executor: row_of.get(ledger[executor].node) in rows

    def _willing(self, lines: Iterable[VictimLine], now: float) -> list[Willing]:
        """Return all possible victims of a claim, in order. How many a session may lose is not checked."""
        found = [(line, victim) for line in lines for victim in line.victims if victim.protected_until <= now]
        found.sort(key=_least_loss)
        alone = (_alone(executor) for executor in self._lingering if executor.id not in self._gone)
        return [*((None, victim) for victim in alone), *found]

    def _card_by_card(self, willing: Iterable[Willing], fleet: Fleet, rows: Iterable[int]) -> Iterator[ExecutorVictim]:
        """Victims that hold a card together, if all of them may go; then those of the next card. Few holders first."""
        of = {member.id: (line, victim) for line, victim in willing for member in victim.members}
        holders = {place: set(fleet.holders[place]) for row in rows for place in fleet.cards_on(row)}
        cards = [fleet.card_of[card] for key in of for card in fleet.ledger[key].gpus if card in fleet.card_of]
        left, losses, gone = dict[str, int](), dict[str, Vector](), set[str]()
        may_go = [place for place in dict.fromkeys(cards) if place in holders and holders[place] <= of.keys()]
        for place in sorted(may_go, key=lambda place: len(holders[place])):
            group = {of[holder][1].members[0].id: of[holder] for holder in sorted(holders[place])}
            group = {first: pair for first, pair in group.items() if first not in gone}
            kept = dict(left), dict(losses)
            if all(self._pay(line, victim, left, losses) for line, victim in group.values()):
                gone.update(group)
                yield from (victim for _, victim in group.values())
            else:
                left, losses = kept

    def _pay(
        self, line: VictimLine | None, victim: ExecutorVictim, left: dict[str, int], losses: dict[str, Vector]
    ) -> bool:
        """Return whether a session may lose these as well, and note the loss."""
        if line is None:
            return True
        size = len(victim.members)
        if size > left.setdefault(line.session, line.left) or (line.guarded and not self._spares(line, size, losses)):
            return False
        left[line.session] -= size
        return True

    def count_out(self, victim: ExecutorVictim, sign: int) -> None:
        """Note that a victim leaves its session; with -1 that it stays."""
        if victim.session is not None:
            self._held[victim.session] -= sign * len(victim.members)
            if victim.session in self._demands:
                self._tree.take(self._leaves[victim.session], sign * victim.units(self._demands[victim.session]))
        for known in (self._gone, self._taken):
            (known.update if sign > 0 else known.difference_update)(member.id for member in victim.members)

    def taken(self, executor: str) -> bool:
        """Return whether an executor leaves for a claim of this cycle."""
        return executor in self._taken

    def _promised(self, victim: ExecutorVictim) -> bool:
        return victim.members[0].id in self._gone

    def in_order(
        self,
        claimant: Demand,
        now: float,
        *,
        displace: bool = False,
        among: Among | None = None,
        row: int | None = None,
        whole: bool = False,
    ) -> Iterator[ExecutorVictim]:
        """Victims one after the other, as far as their sessions may lose them.

        Only those with a member `among`, and on the node of `row`; with `whole` gangs that lie there alone.
        """
        if among is None and row is not None:
            among = self._lies_on({row})

        def asked(victim: ExecutorVictim) -> bool:
            return among is None or any(among(member.id) for member in victim.members)

        alone = map(_alone, self._lingering)
        yield from filter(asked, filterfalse(self._promised, alone))
        losses: dict[str, Vector] = {}
        lines = self._lines(claimant, displace=displace, row=row, whole=whole)
        queue = [turn for line in lines if (turn := self._turn(line)) is not None]
        heapify(queue)
        while queue:
            *_, victim, line = queue[0]
            size = len(victim.members)
            if (
                size <= line.left
                and victim.protected_until <= now
                and asked(victim)
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

    def _lines(
        self, claimant: Demand, *, displace: bool, row: int | None = None, whole: bool = False
    ) -> Iterator[VictimLine]:
        """Yield the sessions that may lose victims to this claimant, with their victims on the node of `row`.

        With `whole`, only gangs all of whose members are there.
        """
        keeps, here = self._floors if displace else self._keeps, None if row is None else self._by_row.get(row, {})
        for session in self._held if here is None else here:
            held, loser = self._held[session], self._demands.get(session)
            left = held - keeps.get(session, 0)
            spared = displace and loser is not None and loser.priority > claimant.priority
            if left <= 0 or session == claimant.session or spared:
                continue
            victims = self._victims_of(session) if here is None else here[session]
            if whole:
                victims = [victim for victim in victims if self._rows_of(victim) == {row}]
            line = VictimLine(session, filterfalse(self._promised, victims), held, left, loser)
            if loser is not None:
                line.guarded = loser.queue != claimant.queue
                line.leaf, line.entitled = self._leaves[session], self._entitled[session]
            yield line

    def _victims_of(self, session: str) -> list[ExecutorVictim]:
        """Its executors in the order in which they give way; most sessions are never asked."""
        found = self._victims.get(session)
        if found is None:
            found = self._victims[session] = _in_turn(session, self._executors.get(session, []))
        return found

    @cached_property
    def _by_row(self) -> dict[int, dict[str, list[ExecutorVictim]]]:
        """By node, the victims with a member there, by session and in their order."""
        found: dict[int, dict[str, list[ExecutorVictim]]] = {}
        for session in self._executors:
            for victim in self._victims_of(session):
                for row in self._rows_of(victim):
                    found.setdefault(row, {}).setdefault(session, []).append(victim)
        return found

    def _turn(self, line: VictimLine) -> _Turn | None:
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
        """Return the shares that sessions with executors deserve."""
        return {
            session: self._tree.leaf_share(
                self._leaves[session], self._deserved.get(session, 0) // self._demands[session].batch_size
            )
            for session in self._floors
        }

    def _spares(self, line: VictimLine, size: int, losses: dict[str, Vector]) -> bool:
        """Return whether so many more executors break no guarantee, and note the loss."""
        assert line.leaf is not None
        assert line.demand is not None
        units, queue = -(-size // line.demand.batch_size), line.demand.queue
        return all(self._tree.lose(queue, line.leaf.unit, losses) for _ in range(units))


def _lingers(executor: ExecutorView) -> bool:
    """Return whether an executor leaves its session without a winner, so that it need not hurry yet."""
    return executor.phase is ExecutorPhase.LEAVING and executor.eviction is None


def _least_loss(willing: tuple[VictimLine, ExecutorVictim]) -> tuple[bool, int]:
    """Sort key: idle victims first, then those of the lowest priority; those without a demand before all."""
    line, victim = willing
    return victim.busy, -1 if line.demand is None else line.demand.priority


def _alone(executor: ExecutorView) -> ExecutorVictim:
    """One that lingers, as a victim: a task of its own or of its gang may still run."""
    return ExecutorVictim((executor,), None, busy=True)


def _in_turn(session: str, executors: list[ExecutorView]) -> list[ExecutorVictim]:
    """Return the executors of a session as victims: vacant before busy, newest first, gangs whole."""
    gangs: dict[str, list[ExecutorView]] = {}
    for executor in executors:
        gangs.setdefault(executor.gang or executor.id, []).append(executor)
    turns = []
    for members in gangs.values():
        members.sort(key=attrgetter("id"))
        busy = any(member.phase is ExecutorPhase.BUSY for member in members)
        working = any(member.phase in _AT_WORK for member in members)
        until = max(member.protected_until for member in members) if working else -inf
        newest = -max(member.bound_at for member in members)
        turns.append((busy, newest, members[0].id, ExecutorVictim(tuple(members), session, busy, until)))
    turns.sort()
    return [victim for *_, victim in turns]


def leave(outlook: Placer, victim: ExecutorVictim) -> None:
    """Release what a victim holds in the outlook."""
    for member in victim.members:
        outlook.fleet.release(member.id)
