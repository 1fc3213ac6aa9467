"""Which executors give way to a session that a limit stops: of those that the limit counts, and for its room.

First those that the limit counts leave, in the usual order, and what else the room needs. Where that does not make
room, because they used up what their session may lose and lie elsewhere, the room is made first, and then what the
limit still needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.reclaim import Reclaim
from ullage.core.evicting.reclaim_search import RoomClaim
from ullage.core.evicting.reclaim_victims import ExecutorVictim, leave
from ullage.core.sharing.entitlement import place_unit
from ullage.core.sharing.shares import Leaf, ShareTree
from ullage.core.sharing.world import Demand
from ullage.model.allocation import Allocation
from ullage.model.rejection import Code


class Found(NamedTuple):
    """The victims for the room and for the limit, and the places that are charged in the outlook."""

    for_room: tuple[ExecutorVictim, ...]
    for_limit: tuple[ExecutorVictim, ...]
    places: tuple[Allocation, ...]


class LimitClaims:
    """Claims of one cycle by sessions that a limit stops; `now` are the books of the present."""

    def __init__(self, now: Fleet, reclaim: Reclaim, tree: ShareTree, leaves: dict[str, Leaf]) -> None:
        self._now, self._reclaim, self._tree, self._leaves = now, reclaim, tree, leaves

    def claim(self, claim: RoomClaim) -> Found | None:
        """Few victims that bring the claimant below its limit and make one unit fit; all books know that they leave."""
        claimant, outlook = claim.claimant, claim.outlook
        for_limit = self._below(claim)
        if not for_limit:
            return None
        leave(outlook.fleet, for_limit)
        placed = place_unit(outlook, claimant, claim.name, claimant.batch_size)
        if placed is not None:
            return Found((), for_limit, placed)
        claimed = self._reclaim.claim(claim, on_trial=True)
        if claimed is not None:
            for_room, placed = claimed
            self._reclaim.count_out(for_room)
            return Found(for_room, for_limit, placed)
        self._give_back(for_limit, outlook.fleet)
        return self._room_first(claim)

    def _room_first(self, claim: RoomClaim) -> Found | None:
        claimed = self._reclaim.claim(claim)
        if claimed is None:
            return None
        for_room, placed = claimed
        self._reclaim.count_out(for_room)
        for_limit = self._below(claim)
        if self._code(claim.claimant) is None:
            leave(claim.outlook.fleet, for_limit)
            return Found(for_room, for_limit, placed)
        for place in placed:
            claim.outlook.fleet.release(place.id)
        self._give_back(for_room, claim.outlook.fleet)
        return None

    def _code(self, claimant: Demand) -> Code | None:
        return self._tree.over_limit(self._leaves[claimant.session], leaving=False)

    def _below(self, claim: RoomClaim) -> tuple[ExecutorVictim, ...]:
        """Fewest victims that bring the claimant below the limit that stops it, counted out; () if there are none.

        The last of them are put back first.
        """
        leaf, chosen = self._leaves[claim.claimant.session], list[ExecutorVictim]()
        while (code := self._code(claim.claimant)) is not None:
            counts = self._tree.within(leaf, code)
            leaves = ((victim, self._leaves.get(victim.session or "")) for victim in self._reclaim.in_order(claim))
            found = next((victim for victim, other in leaves if other is not None and counts(other)), None)
            if found is None:
                self._reclaim.count_out(chosen, -1)
                return ()
            chosen.append(found)
            self._reclaim.count_out([found])
        needed = []
        for victim in reversed(chosen):
            self._reclaim.count_out([victim], -1)
            if self._code(claim.claimant) is not None:
                self._reclaim.count_out([victim])
                needed.append(victim)
        return tuple(reversed(needed))

    def _give_back(self, victims: Iterable[ExecutorVictim], outlook: Fleet) -> None:
        """Victims stay: there is no room for the claimant."""
        for victim in victims:
            self._reclaim.count_out([victim], -1)
            for member in victim.members:
                outlook.charge(self._now.ledger[member.id], force=True)
