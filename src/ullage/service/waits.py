"""The stored waits of sessions: since when, for which promised places, and the places that were won already.

Executors end with the server, so only the claim of its winner is left of an eviction. It is stored, so that no eviction
is useless and no wait begins again after a restart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf

from ullage.core.sharing.promise import places_of
from ullage.core.sharing.world import WORKING, Promise
from ullage.model.allocation import Allocation
from ullage.service.context import ServiceContext
from ullage.service.executors import GANG_BACKOFF_S
from ullage.service.state import ExecutorRecord, SessionRecord
from ullage.service.store_port import Drop, PutWait, Record, Snapshot, WonPlace


class Waits:
    """Stores the waits of open sessions after each cycle that changed them."""

    def __init__(self, context: ServiceContext) -> None:
        self._state, self._journal, self._clock = context.state, context.journal, context.clock
        self._stored: dict[str, PutWait] = {}

    def recover(self, snapshot: Snapshot) -> None:
        """After a restart, with the sessions in place: waits go on, and won places are promised again.

        The wall clock may have been ahead when they were stored: nothing began after `now`.
        """
        now = self._clock()
        for stored in snapshot.waits:
            self._stored[stored.session] = stored
            record = self._state.sessions.get(stored.session)
            if record is None or not record.open:
                continue  # the next `save` drops it
            record.waiting_since = None if stored.since is None else min(stored.since, now)
            record.not_before = min(stored.not_before, now + GANG_BACKOFF_S)
            won = [each.place for each in stored.won if each.until is None or each.until > snapshot.alive_at]
            if stored.places or won:
                self._state.promises[record.id] = Promise((*stored.places, *won), stored.paid or bool(won))
        self._state.keep_promises()

    def save(self) -> None:
        """Store what changed since the last call."""
        open_ = (record for record in self._state.sessions.values() if record.open)
        waits = {record.id: wait for record in open_ if (wait := self._wait_of(record)) is not None}
        changed: list[Record] = [wait for name, wait in waits.items() if wait != self._stored.get(name)]
        over: list[Record] = [Drop(PutWait, name) for name in self._stored if name not in waits]
        self._stored = waits
        if changed or over:
            self._journal.write(*over, *changed)

    def of_unknown_nodes(
        self, before: dict[str, Promise], started: Collection[str], held: Mapping[str, tuple[Allocation, ...]]
    ) -> dict[str, Promise]:
        """Return the promises of places on nodes that have not reported yet, of sessions that started nothing.

        Places that the cycle has `held` are left out.
        """
        found = {}
        for session, promise in before.items():
            record = self._state.sessions.get(session)
            if record is None or not record.open or session in started:
                continue
            counted = {place.id for place in held.get(session, ())}
            units = places_of(session, promise.places, record.session.spec.batch_size)
            awaited = (unit for unit in units if self._is_unknown(unit) and unit[0].id not in counted)
            places = [place for unit in awaited for place in unit]
            if places:
                found[session] = replace(promise, places=tuple(places))
        return found

    def _is_unknown(self, unit: tuple[Allocation, ...]) -> bool:
        return any(place.node not in self._state.nodes for place in unit)

    def _wait_of(self, record: SessionRecord) -> PutWait | None:
        promise, won = self._state.promises.get(record.id), self._won(record)
        if record.waiting_since is None and promise is None and not (record.not_before or won):
            return None
        promise = promise or Promise(())
        places = tuple(replace(place, id=f"promised/{n}") for n, place in enumerate(promise.places))
        return PutWait(record.id, record.waiting_since, record.not_before, places, paid=promise.paid, won=won)

    def _won(self, record: SessionRecord) -> tuple[WonPlace, ...]:
        """Return the protected places of a session. A gang is protected as long as one of its members is."""
        gangs: dict[str, list[ExecutorRecord]] = {}
        for executor in record.executors.values():
            if executor.winner == record.id and executor.phase in WORKING:
                gangs.setdefault(executor.gang.id if executor.gang else executor.id, []).append(executor)
        found: list[WonPlace] = []
        ledger, now = self._state.fleet.ledger, self._clock()
        for members in gangs.values():
            until = max(member.protected_until for member in members)
            if now < until:
                places = [replace(ledger[each.id], id=f"won/{n}") for n, each in enumerate(members, len(found))]
                found += [WonPlace(place, None if until == inf else until) for place in places]
        return tuple(found)
