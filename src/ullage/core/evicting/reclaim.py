"""Which executors give way when a session below what it deserves finds nothing free.

No session falls below its minimum or the guarantee of its queue, nor below what it deserves, unless the claimant is
overdue and of no lower priority. No victim is taken that is not needed, and none before its protection ends. The order
in which victims are asked is that of `core/evicting/reclaim_search.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import filterfalse

from ullage.core.books.trial import trial
from ullage.core.evicting.reclaim_bound import largest, may_suffice
from ullage.core.evicting.reclaim_search import Asked, Loser, RoomClaim, Ways, cards_to_free, may_do, shared
from ullage.core.evicting.reclaim_victims import ExecutorVictim, fewest, leave, room_without, victims_of
from ullage.core.sharing.entitlement import place_unit
from ullage.core.sharing.promise import charge_back
from ullage.core.sharing.shares import Leaf, ShareTree
from ullage.core.sharing.world import ExecutorPhase, ExecutorView, World
from ullage.model.allocation import Allocation

_MEMBERS = 16
"""The largest gang whose members are served one by one where victims in order do not make room for all."""

Claimed = tuple[tuple[ExecutorVictim, ...], tuple[Allocation, ...]]
"""The victims of a claim, and the places of its unit."""


class Reclaim:
    """Chooses victims for one cycle; remembers which were taken."""

    def __init__(self, world: World, tree: ShareTree, leaves: dict[str, Leaf], deserved: dict[str, int]) -> None:
        self._fleet, self._tree, self._leaves, self._deserved = world.fleet, tree, leaves, deserved
        self._demands = {demand.session: demand for demand in world.demands}
        self._promised: set[str] = set()
        """Executors whose room a claim of this cycle counts on."""
        self._taken: set[str] = set()
        """Those of them that leave their session."""
        self._hopeless: set[tuple[object, ...]] = set()
        lingering = (each for each in world.executors if each.phase is ExecutorPhase.LEAVING and each.eviction is None)
        ordered = sorted(lingering, key=lambda executor: (executor.since, executor.id))
        self._alone = [ExecutorVictim((executor,), None, busy=True) for executor in ordered]
        """Executors that leave without a winner, so that they need not hurry yet; a task may still run."""
        self._executors = held = world.held()
        self._largest = {"": largest(self._fleet, [each for victim in self._alone for each in victim.members])}
        """The most that one executor of a session holds; of those that are alone, under no name."""
        self._victims: dict[str, list[ExecutorVictim]] = {}
        sessions = (*(executor.session or "" for executor in world.executors if executor.may_stay), *held)
        self._held = {session: len(held.get(session, ())) for session in sessions}
        self._floors = {session: self._demands[session].floor for session in self._held if session in self._demands}
        self._keeps = {session: max(deserved.get(session, 0), floor) for session, floor in self._floors.items()}
        self._vacant = {executor.id for executor in world.executors if executor.phase is ExecutorPhase.VACANT}

    @property
    def some_vacant(self) -> bool:
        """Return whether any executor has a session and no task."""
        return bool(self._vacant)

    def taken(self, executor: str) -> bool:
        """Return whether an executor leaves for a claim of this cycle."""
        return executor in self._taken

    # --- claims ---

    def claim(self, claim: RoomClaim, *, on_trial: bool = False) -> Claimed | None:
        """Return the fewest victims that make one unit of the claimant fit in the outlook; both are charged there.

        No other claim counts on the victims; `count_out` has them leave. What others of its kind do not find is
        remembered too, unless victims of a limit have left `on_trial`.
        """
        claimant = claim.claimant
        own = claimant.session if claim.displace and claimant.session in self._held else None
        unit = claimant.requirement, claimant.batch_size, claimant.queue, claimant.priority
        kind = *unit, own, claim.displace, claim.now
        if kind in self._hopeless:
            return None
        needed = self._search(claim)
        if needed is None:
            if not on_trial:
                self._hopeless.add(kind)
            return None
        return tuple(needed), self._place(claim, needed)

    def claim_vacant(
        self, claim: RoomClaim, names: Collection[str], staying: Collection[ExecutorView]
    ) -> tuple[tuple[ExecutorVictim, ...], list[tuple[Allocation, ...]]] | None:
        """Place the unit of a claim, and units of these names before it, though executors of one session stay.

        They were to leave for the claimant, and their room is charged in the outlook again. The unit gets that of
        executors without a task. None if there are not enough of them; then the caller takes back what was charged.
        """
        session, outlook, claimant = next(iter(staying)).session or "", claim.outlook, claim.claimant
        members = [member.id for member in staying]
        if session not in self._demands or not charge_back(outlook.fleet, self._fleet, members):
            return None
        placed = [place_unit(outlook, claimant, name, claimant.batch_size) for name in names]
        units = [unit for unit in placed if unit is not None]
        if len(units) < len(placed):
            return None
        back = -(-len(staying) // self._demands[session].batch_size)
        self._tree.take(self._leaves[session], -back)
        self._held[session] += len(staying)
        vacant = (victim for victim in self.in_order(claim) if victim.ids <= self._vacant)
        needed = fewest(outlook, claimant, vacant, claim.name)
        if needed is None:
            self._tree.take(self._leaves[session], back)
            self._held[session] -= len(staying)
            return None
        return tuple(needed), [*units, self._place(claim, needed)]

    def _place(self, claim: RoomClaim, needed: Iterable[ExecutorVictim]) -> tuple[Allocation, ...]:
        for victim in needed:
            self._promised |= victim.ids
        leave(claim.outlook.fleet, needed)
        placed = place_unit(claim.outlook, claim.claimant, claim.name, claim.claimant.batch_size)
        assert placed is not None, "the set was tried"
        return placed

    def count_out(self, victims: Iterable[ExecutorVictim], sign: int = 1) -> None:
        """Note that victims leave their sessions; with -1 that they stay."""
        for victim in victims:
            if victim.session is not None:
                self._held[victim.session] -= sign * len(victim.members)
                if victim.session in self._demands:
                    self._tree.take(self._leaves[victim.session], sign * victim.units(self._demands[victim.session]))
            for known in (self._promised, self._taken):
                (known.update if sign > 0 else known.difference_update)(victim.ids)

    # --- the search ---

    def _search(self, claim: RoomClaim) -> list[ExecutorVictim] | None:
        """Return the fewest victims of the first way that makes a unit fit."""
        if not self._may_suffice(claim):
            return None
        found = (fewest(claim.outlook, claim.claimant, victims, claim.name) for victims in self._ways(claim))
        return next((needed for needed in found if needed is not None), None)

    def _may_suffice(self, claim: RoomClaim) -> bool:
        """Return whether enough could be free if each session lost as many executors as it may."""
        losses = {session: min(loser.left, loser.held) for session, loser in self._losers(claim).items()}
        for session in losses.keys() - self._largest.keys():
            self._largest[session] = largest(self._fleet, self._executors.get(session, []))
        losses[""] = len(self._alone)
        fleet, claimant = claim.outlook.fleet, claim.claimant
        return may_suffice(fleet, claimant.requirement, claimant.batch_size, losses=losses, each=self._largest)

    def _ways(self, claim: RoomClaim) -> Iterator[Iterable[ExecutorVictim]]:
        """Yield sequences of victims: all in order, those of whole cards, nodes and cards, and those around one."""
        claimant, losers = claim.claimant, self._losers(claim)
        useful = claim.vacant.room(claimant.requirement) > 0
        yield self.in_order(claim, None if useful.all() else self._lies_on(set(useful.nonzero()[0].tolist())))
        willing = self._willing(claim, losers)
        room = room_without(claim.outlook, claimant, willing)
        if room.sum() < claimant.batch_size:
            return
        there: dict[int, list[ExecutorVictim]] = {}
        for victim in willing:
            for row in self._rows_of(victim):
                there.setdefault(row, []).append(victim)
        rows = [row for row in there if row >= 0 and room[row] and may_do(claim, row, there[row], losers)]
        yield from self._on_nodes(claim, losers, {row: there[row] for row in rows})
        if 1 < claimant.batch_size <= _MEMBERS:
            yield self._member_by_member(claim) or ()
        whole_gang = [[victim for victim in willing if not self._rows_of(victim).isdisjoint(rows)]]
        near = [there[row] for row in rows] if claimant.batch_size == 1 else whole_gang
        yield from Ways(claim, self._tree, losers).around(near)

    def _on_nodes(
        self, claim: RoomClaim, losers: Mapping[str, Loser], there: Mapping[int, list[ExecutorVictim]]
    ) -> Iterator[Iterator[ExecutorVictim]]:
        """Yield whole cards together; then what lies on one node, on its cards together, on one card."""
        cards, fleet, ways = claim.claimant.requirement.gpu_count, claim.outlook.fleet, Ways(claim, self._tree, losers)
        if cards and there:
            yield ways.card_by_card((victim for victims in there.values() for victim in victims), there)
        for row, victims in there.items() if claim.claimant.batch_size == 1 else ():
            yield self._on_node(claim, row)
            if any(len(victim.members) > 1 for victim in victims):
                yield self._on_node(claim, row, partial(self._lies_just_on, row))
            if cards > 1:
                yield ways.card_by_card(victims, [row])
            elif cards and shared(fleet, row):
                for card in cards_to_free(claim, row, victims, losers):
                    yield self._on_node(claim, row, _one_of(frozenset(fleet.holders[card])))

    def _member_by_member(self, claim: RoomClaim) -> list[ExecutorVictim] | None:
        """Return the victims that the members of a gang find one after the other; None if one finds none."""
        chosen: list[ExecutorVictim] = []
        alone, outlook, found = replace(claim.claimant, batch_size=1), claim.outlook, True
        with trial(outlook.fleet):
            for rank in range(claim.claimant.batch_size):
                while found and place_unit(outlook, alone, f"{claim.name}/{rank}", 1) is None:
                    needed = self._search(replace(claim, claimant=alone))
                    found = needed is not None
                    chosen += needed or ()
                    leave(outlook.fleet, needed or ())
                    self.count_out(needed or ())
        self.count_out(chosen, -1)
        return chosen if found else None

    def _losers(self, claim: RoomClaim) -> dict[str, Loser]:
        """Return the sessions that may lose executors to a claim."""
        keeps, claimant, found = self._floors if claim.displace else self._keeps, claim.claimant, dict[str, Loser]()
        for session, held in self._held.items():
            left, demand = held - keeps.get(session, 0), self._demands.get(session)
            spared = claim.displace and demand is not None and demand.priority > claimant.priority
            if left <= 0 or session == claimant.session or spared:
                continue
            found[session] = Loser(held, left)
            if demand is not None:
                facts = self._leaves[session], self._entitled[session], demand.queue != claimant.queue
                found[session] = Loser(held, left, demand, *facts)
        return found

    @cached_property
    def _entitled(self) -> dict[str, int]:
        """Return the shares that sessions with executors deserve."""
        units = {each: self._deserved.get(each, 0) // self._demands[each].batch_size for each in self._floors}
        return {each: self._tree.leaf_share(self._leaves[each], deserved) for each, deserved in units.items()}

    def _willing(self, claim: RoomClaim, losers: Mapping[str, Loser]) -> list[ExecutorVictim]:
        """Return all possible victims of a claim, in order. How many a session may lose is not checked."""
        found: list[tuple[bool, int, ExecutorVictim]] = []
        for session, loser in losers.items():
            priority = -1 if loser.demand is None else loser.demand.priority
            victims = filterfalse(self._is_promised, self._victims_of(session))
            found += [(each.busy, priority, each) for each in victims if each.protected_until <= claim.now]
        found.sort(key=lambda entry: entry[:2])
        return [*filterfalse(self._is_promised, self._alone), *(victim for _, _, victim in found)]

    def in_order(self, claim: RoomClaim, asked: Asked | None = None) -> Iterator[ExecutorVictim]:
        """Victims of a claim one after the other, as far as their sessions may lose them; only those `asked`."""
        losers = self._losers(claim)
        return self._asked(claim, losers, {session: self._victims_of(session) for session in losers}, asked)

    def _on_node(self, claim: RoomClaim, row: int, asked: Asked | None = None) -> Iterator[ExecutorVictim]:
        """Yield the victims on one node in the same way."""
        return self._asked(claim, self._losers(claim), self._by_row.get(row, {}), asked or self._lies_on({row}))

    def _asked(
        self,
        claim: RoomClaim,
        losers: Mapping[str, Loser],
        by_session: Mapping[str, list[ExecutorVictim]],
        asked: Asked | None,
    ) -> Iterator[ExecutorVictim]:
        promised = self._promised

        def unpromised(victim: ExecutorVictim) -> bool:
            return victim.members[0].id not in promised

        def may(victim: ExecutorVictim) -> bool:
            return victim.members[0].id not in promised and (asked is None or asked(victim))

        return Ways(claim, self._tree, losers).in_order(self._alone, by_session, may if asked else unpromised)

    def _victims_of(self, session: str) -> list[ExecutorVictim]:
        """Return the executors of a session in the order in which they leave; computed when they are first needed."""
        found = self._victims.get(session)
        if found is None:
            found = self._victims[session] = victims_of(session, self._executors.get(session, []))
        return found

    def _is_promised(self, victim: ExecutorVictim) -> bool:
        return victim.members[0].id in self._promised

    @cached_property
    def _by_row(self) -> dict[int, dict[str, list[ExecutorVictim]]]:
        """By node, the victims with a member there, by session and in their order."""
        found: dict[int, dict[str, list[ExecutorVictim]]] = {}
        for session in self._executors:
            for victim in self._victims_of(session):
                for row in self._rows_of(victim):
                    found.setdefault(row, {}).setdefault(session, []).append(victim)
        return found

    def _rows_of(self, victim: ExecutorVictim) -> set[int]:
        row_of, ledger = self._fleet.row_of, self._fleet.ledger
        return {row_of.get(ledger[member.id].node, -1) for member in victim.members}

    def _lies_on(self, rows: set[int]) -> Asked:
        """Return a test for victims that lie, at least in part, on one of these nodes."""
        return lambda victim: not self._rows_of(victim).isdisjoint(rows)

    def _lies_just_on(self, row: int, victim: ExecutorVictim) -> bool:
        return self._rows_of(victim) == {row}


def _one_of(executors: frozenset[str]) -> Asked:
    """Return a test for victims that have one of these executors."""
    return lambda victim: not victim.ids.isdisjoint(executors)
