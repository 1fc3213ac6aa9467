"""The requests that room is kept for, as they are stored: what a restart finds, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ullage.core.nomination import NOMINATED_TTL_S
from ullage.model.nomination import Nomination
from ullage.service.events import Events
from ullage.service.journal import Journal
from ullage.service.ports import DropNomination, PutNomination, Snapshot
from ullage.service.state import State


class NominatedRequests:
    """The allocator ends a nomination by itself; `ended` says what is to be stored with the change that did."""

    def __init__(self, state: State, journal: Journal, events: Events, changed: Callable[[bool], None]) -> None:
        self._allocator = state.allocator
        self._journal = journal
        self._events = events
        self._changed = changed
        self._stored: set[str] = set()

    def recover(self, snapshot: Snapshot, now: float) -> None:
        """After a restart, with the ledger in place: room is kept as before, its time begins anew."""
        for nomination in snapshot.nominations:
            if nomination.request.uid in self._allocator.fleet.ledger:
                self._journal.write(DropNomination(nomination.request.uid))
            else:
                self.put(replace(nomination, since=now))

    def put(self, nomination: Nomination) -> PutNomination:
        """Keep room for a request; what is to be stored with the change that gives it."""
        self._allocator.nominate(nomination)
        self._stored.add(nomination.request.uid)
        return PutNomination(nomination)

    def renew(self, uid: str, now: float) -> Nomination | None:
        """Somebody asks for the request again: its time begins anew. None if no room is kept for it."""
        known = self._allocator.nominations.of(uid)
        if known is not None:
            self._allocator.nominate(replace(known, since=now))
        return known

    def ended(self) -> tuple[DropNomination, ...]:
        """Those that are stored and were placed, forgotten or freed since the last call."""
        if not self._stored:
            return ()
        before, self._stored = self._stored, {entry.request.uid for entry in self.all()}
        return tuple(DropNomination(uid) for uid in sorted(before - self._stored))

    def all(self) -> tuple[Nomination, ...]:
        """The requests that room is kept for, the oldest first."""
        return self._allocator.nominations.entries

    def expire(self, now: float) -> float | None:
        """Keep no room for whom nobody asks any more; returns when the next one is due."""
        for uid in self._allocator.nominations.lapsed(now):
            self._allocator.withdraw(uid)
            self._events.add("allocation.lapsed", message=f"nobody asked for {uid} again", uid=uid)
            self._changed(True)
        ended = self.ended()
        if ended:
            self._journal.write(*ended)
        return min((entry.since + NOMINATED_TTL_S for entry in self.all()), default=None)
