"""Which executors give way to a session that a limit stops: of those that the limit counts, and for its room.

First those that the limit counts leave, in the usual order, and what else the room needs. Where that does not make
room, because they used up what their session may lose and lie elsewhere, the room is made first, and then what the
limit still needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ullage.core.evicting.reclaim import Reclaim, leave
from ullage.core.evicting.yielding import ExecutorVictim
from ullage.core.placing.placement import Placer
from ullage.core.sharing.entitlement import place_unit
from ullage.core.sharing.shares import Leaf, ShareTree
from ullage.core.sharing.world import Demand, World
from ullage.model.allocation import Allocation
from ullage.model.rejection import Code


class Found(NamedTuple):
    """The victims for the room and for the limit, and the places that are charged in the outlook."""

    for_room: tuple[ExecutorVictim, ...]
    for_limit: tuple[ExecutorVictim, ...]
    places: tuple[Allocation, ...]


class LimitClaims:
    """Claims of one cycle by sessions that a limit stops; `vacant` is the fleet with nothing allocated."""

    def __init__(
        self, world: World, reclaim: Reclaim, tree: ShareTree, leaves: dict[str, Leaf], vacant: Placer, now: float
    ) -> None:
        self._ledger = world.fleet.ledger
        self._reclaim, self._tree, self._leaves = reclaim, tree, leaves
        self._vacant, self._now = vacant, now

    def claim(self, claimant: Demand, outlook: Placer, name: str) -> Found | None:
        """Few victims that bring `claimant` below its limit and make one unit fit; all books know that they leave."""
        for_limit = self._below(claimant)
        if not for_limit:
            return None
        for victim in for_limit:
            leave(outlook, victim)
        placed = place_unit(outlook, claimant, name, claimant.batch_size)
        if placed is not None:
            return Found((), for_limit, placed)
        claimed = self._reclaim.claim(claimant, outlook, self._vacant, now=self._now, name=name, on_trial=True)
        if claimed is not None:
            for_room, placed = claimed
            self._count_out(for_room)
            return Found(for_room, for_limit, placed)
        self._give_back(for_limit, outlook)
        return self._room_first(claimant, outlook, name)

    def _room_first(self, claimant: Demand, outlook: Placer, name: str) -> Found | None:
        claimed = self._reclaim.claim(claimant, outlook, self._vacant, now=self._now, name=name)
        if claimed is None:
            return None
        for_room, placed = claimed
        self._count_out(for_room)
        for_limit = self._below(claimant)
        if self._code(claimant) is None:
            for victim in for_limit:
                leave(outlook, victim)
            return Found(for_room, for_limit, placed)
        for place in placed:
            outlook.fleet.release(place.id)
        self._give_back(for_room, outlook)
        return None

    def _code(self, claimant: Demand) -> Code | None:
        return self._tree.over_limit(self._leaves[claimant.session], leaving=False)

    def _below(self, claimant: Demand) -> tuple[ExecutorVictim, ...]:
        """Fewest victims that bring `claimant` below the limit that stops it, counted out. None: ()."""
        leaf, chosen = self._leaves[claimant.session], list[ExecutorVictim]()
        while (code := self._code(claimant)) is not None:
            counts = self._tree.within(leaf, code)
            victims = self._reclaim.in_order(claimant, self._now)
            leaves = ((victim, self._leaves.get(victim.session or "")) for victim in victims)
            found = next((victim for victim, other in leaves if other is not None and counts(other)), None)
            if found is None:
                self._count_out(chosen, -1)
                return ()
            chosen.append(found)
            self._count_out([found])
        return tuple([victim for victim in reversed(chosen) if not self._may_stay(victim, claimant)][::-1])

    def _may_stay(self, victim: ExecutorVictim, claimant: Demand) -> bool:
        """Return whether the claimant stays below its limit if this one stays; if so, it stays."""
        self._count_out([victim], -1)
        stays = self._code(claimant) is None
        if not stays:
            self._count_out([victim])
        return stays

    def _give_back(self, victims: Iterable[ExecutorVictim], outlook: Placer) -> None:
        """Victims stay: there is no room for the claimant."""
        for victim in victims:
            self._count_out([victim], -1)
            for member in victim.members:
                outlook.fleet.charge(self._ledger[member.id], force=True)

    def _count_out(self, victims: Iterable[ExecutorVictim], sign: int = 1) -> None:
        for victim in victims:
            self._reclaim.count_out(victim, sign)
