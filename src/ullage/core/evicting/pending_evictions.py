"""Executors that give way: which of them stay after all, and for which session the others leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ullage.core.books.fleet import Fleet
from ullage.core.sharing.plan import Action, EvictExecutor, Keep, Unbind
from ullage.core.sharing.promise import Promises, charge_back
from ullage.core.sharing.world import Cause, Eviction, ExecutorPhase, ExecutorView, World

Gang = list[ExecutorView]
"""Executors that leave or stay together: one, or all members of a gang."""


class PendingEvictions:
    """Executors that give way, by gang. Those that `stay` are settled; `settle` decides about the others."""

    def __init__(self, world: World, promises: Promises, grace_s: float | None) -> None:
        self._world, self._promises, self._grace_s = world, promises, grace_s
        gangs: dict[str, Gang] = {}
        for executor in world.executors:
            if executor.phase is ExecutorPhase.LEAVING and executor.eviction is not None:
                gangs.setdefault(executor.gang or executor.id, []).append(executor)
        self._gangs = sorted(gangs.values(), key=_first_to_join)
        self._going: list[Gang] = []

    def at_work_for(self, winner: str) -> list[Gang]:
        """Return those that run tasks and leave for the share of this session, one of each size on each node."""
        found: dict[object, Gang] = {}
        ledger = self._world.fleet.ledger
        for gang in self._gangs:
            evictions = [each.eviction for each in gang if each.may_stay and each.id in ledger]
            for_share = [each is not None and each.winner == winner and each.cause is Cause.SHARE for each in evictions]
            if len(for_share) == len(gang) and all(for_share):
                sizes = tuple((ledger[each.id].node, each.requirement) for each in gang)
                found.setdefault((_session_of(gang), sizes), gang)
        return list(found.values())

    def stay(self, gang: Gang) -> list[Action]:
        """Others leave in their place."""
        self._gangs.remove(gang)
        for member in gang:
            self._promises.gives_way(member.id, None)
        return [Keep(member.id) for member in gang]

    def settle(self, outlook: Fleet, due: Callable[[float], bool]) -> Iterator[Action]:
        """Yield who stays since its room is free in the outlook; the tasks of the others end after the grace."""
        for gang in self._gangs:
            evictions = {member.id: member.eviction for member in gang if member.eviction is not None}
            winner = self._winner_of(evictions, _session_of(gang))
            if self._may_stay(evictions, winner, outlook):
                yield from map(Keep, evictions)
            elif winner is not None:
                self._going.append(gang)
                yield from self._carry_on(evictions, winner, due)

    def siblings(self, now: float) -> Iterator[str]:
        """Yield executors that do as well as one that goes, if their task ends first; protected ones are spared."""
        ledger, held = self._world.fleet.ledger, self._world.held()
        for gang in self._going:
            one, *_ = gang
            if one.gang is None and one.may_stay and one.eviction is not None and one.eviction.cause is Cause.SHARE:
                node = ledger[one.id].node
                for other in held.get(one.session or "", ()):
                    same = (
                        other.requirement == one.requirement
                        and other.gang is None
                        and other.phase is ExecutorPhase.BUSY
                    )
                    if same and other.protected_until <= now and ledger[other.id].node == node:
                        yield other.id

    def _may_stay(self, evictions: dict[str, Eviction], winner: str | None, outlook: Fleet) -> bool:
        """Return whether no other session needs the room of these. If so, it is theirs in the outlook again."""
        ledger = self._world.fleet.ledger
        if winner is None:
            for place in (ledger[member] for member in evictions if member in ledger):
                outlook.charge(place, force=True)
            return True
        for_limit = any(each.cause is Cause.LIMIT and each.winner in self._promises for each in evictions.values())
        if for_limit or not charge_back(outlook, self._world.fleet, evictions):
            return False
        places = tuple(ledger[member] for member in evictions if member in ledger)
        delayed = self._promises.delays(places, outlook)
        for place in places if delayed else ():
            outlook.release(place.id)
        return not delayed

    def _carry_on(self, evictions: dict[str, Eviction], winner: str, due: Callable[[float], bool]) -> Iterator[Action]:
        """These give way to this session; tasks end after the grace."""
        for member, before in evictions.items():
            eviction = replace(before, winner=winner)
            if eviction != before:
                yield Unbind(member, eviction)
            if self._grace_s is not None and due(eviction.since + self._grace_s):
                yield EvictExecutor(member, eviction)

    def _winner_of(self, evictions: dict[str, Eviction], own: str | None) -> str | None:
        """Return the session that counts on this room now; never their own. None if there is none.

        It is another session if the first winner got room elsewhere, or no longer deserves it.
        """
        winners = (eviction.winner for eviction in evictions.values())
        nodes = {place.node for each in evictions if (place := self._world.fleet.ledger.get(each)) is not None}
        others = (
            session
            for session, places in self._promises.items()
            if session != own and any(place.node in nodes for place in places)
        )
        return next((winner for winner in winners if winner in self._promises), next(others, None))


def _session_of(gang: Gang) -> str | None:
    first, *_ = gang
    return first.session


def _first_to_join(gang: Gang) -> tuple[float, str]:
    """Sort key of gangs in the order in which they stay: the first to join its session comes first."""
    first, *_ = gang
    return min(member.bound_at for member in gang), first.id
