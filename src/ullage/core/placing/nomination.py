"""Nominated requests, places promised to sessions, and their order.

A request is nominated when others are evicted for it. Times are seconds of the clock of the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from ullage.core.books.fleet import Fleet
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, Request
from ullage.model.nomination import Nomination

NOMINATED_TTL_S = 1800.0
"""Seconds for which room is reserved for a request that is not made again."""


@dataclass(frozen=True, slots=True)
class Promised:
    """Places that one session or request is promised, and those in the ledger who leave for it."""

    places: tuple[Allocation, ...]
    leaving: tuple[str, ...] = ()


Ahead = Nomination | Promised
"""An entry with precedence over a request."""


@dataclass(frozen=True, slots=True)
class Nominations:
    """The requests for which room is reserved, one entry for each uid. Requests that are placed no longer count.

    `sessions` are places that sessions wait for: no request gets them.
    """

    entries: tuple[Nomination, ...] = ()
    sessions: tuple[Promised, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any room is reserved."""
        return bool(self.entries or self.sessions)

    def with_(self, *nominations: Nomination) -> Nominations:
        """These and others, in place of those with their uids."""
        uids = {nomination.request.uid for nomination in nominations}
        return replace(self, entries=(*self.without(*uids).entries, *nominations))

    def without(self, *uids: str) -> Nominations:
        """These without the requests that are placed, or gone."""
        gone = frozenset(uids)
        return replace(self, entries=tuple(entry for entry in self.entries if entry.request.uid not in gone))

    def of(self, uid: str) -> Nomination | None:
        """Return the entry of a request; None if there is none."""
        return next((entry for entry in self.entries if entry.request.uid == uid), None)

    def waiting(self, fleet: Fleet, nodes: Collection[str] | None = None) -> list[Nomination]:
        """Return the entries of requests that are not placed, in the order in which they are served.

        With `nodes`, only those that can change a verdict on these nodes.
        """
        entries = self.entries if nodes is None else (e for e in self.entries if _touches(e, nodes))
        found = (e for e in entries if e.request.uid not in fleet.ledger or self.moving(fleet, e.request.uid))
        return sorted(found, key=lambda entry: _rank(entry.request.claim, entry.request.uid))

    def moving(self, fleet: Fleet, uid: str) -> bool:
        """Return whether a request leaves its place for another one that is reserved for it."""
        entry, known = self.of(uid), fleet.ledger.get(uid)
        return entry is not None and entry.hold and known is not None and known.state is AllocationState.RELEASING

    def lapsed(self, now: float) -> tuple[str, ...]:
        """Requests that nobody asked for again within `NOMINATED_TTL_S`."""
        return tuple(entry.request.uid for entry in self.entries if entry.since + NOMINATED_TTL_S <= now)

    def before(self, fleet: Fleet, request: Request, nodes: Collection[str] | None = None) -> list[Ahead]:
        """Return the entries whose room this request may not take; with `nodes`, only those that matter there.

        These are sessions, and requests for which others were evicted. Also requests of higher priority, and those of
        its own gang with equal priority. A `first_come` entry also precedes requests of equal priority that were
        nominated later.
        """
        if not self:
            return []
        others = [entry for entry in self.waiting(fleet, nodes) if entry.request.uid != request.uid]
        earlier = frozenset[str]()
        if not all(entry.excludes_all for entry in others):
            earlier = frozenset(e.request.uid for e in takewhile(lambda e: e.request.uid != request.uid, self.entries))
        entries = (
            entry
            for entry in others
            if entry.excludes_all or _comes_before(entry, request.claim, earlier=entry.request.uid in earlier)
        )
        return [*(self.sessions if nodes is None else touching(self.sessions, nodes)), *entries]

    def all(self, fleet: Fleet) -> list[Ahead]:
        """Return all entries for which room is reserved."""
        return [*self.sessions, *self.waiting(fleet)]

    def owed(self, uids: Collection[str], fleet: Fleet | None = None) -> bool:
        """Return whether others were evicted for any of these; with `fleet`, only on schedulable nodes."""
        nodes = {entry.node for entry in self.entries if entry.owed and entry.request.uid in uids}
        if fleet is None:
            return bool(nodes)
        return any(node in fleet.row_of and fleet.schedulable[fleet.row_of[node]] for node in nodes)


NO_NOMINATIONS = Nominations()


def touching(ahead: Sequence[Ahead], nodes: Collection[str]) -> list[Ahead]:
    """Return the entries that can change a verdict on these nodes: they reserve room there, or count in a quota."""
    return [entry for entry in ahead if _touches(entry, nodes)]


def _touches(entry: Ahead, nodes: Collection[str]) -> bool:
    if isinstance(entry, Promised):
        return any(place.node in nodes for place in entry.places)
    return entry.owed or entry.node in nodes


def _comes_before(entry: Nomination, other: Claim, *, earlier: bool) -> bool:
    claim = entry.request.claim
    if claim.priority != other.priority:
        return claim.priority > other.priority
    if entry.first_come and earlier:
        return True
    return claim.gang is not None and other.gang is not None and claim.gang.key == other.gang.key


def _rank(claim: Claim, uid: str) -> tuple[int, float, str]:
    return -claim.priority, claim.created_at, uid
