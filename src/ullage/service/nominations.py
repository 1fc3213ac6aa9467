"""Nominated requests, for which room is reserved: how they are stored, restored and ended.

A nominated request is placed only when its owner requests it again. One event says when it would get its cards.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ullage.core.admitting.wake import NO_CAUSES, Causes, Pending, woken_by_nodes, woken_by_quota
from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import Usage
from ullage.core.evicting.preemption import choice_after
from ullage.core.placing.decision import Refusal
from ullage.core.placing.feasibility import what_decides
from ullage.core.placing.nomination import NOMINATED_TTL_S
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import cards_on
from ullage.core.verdict.cards import any_takes
from ullage.model.claim import Request
from ullage.model.nomination import Nomination
from ullage.service.context import ServiceContext
from ullage.service.store_port import Drop, PutNomination, Snapshot


class NominatedRequests:
    """Stores nominations. The allocator ends them by itself: `ended` returns the records to write with that change."""

    def __init__(self, context: ServiceContext) -> None:
        self._allocator, self._journal = context.state.allocator, context.journal
        self._events, self._changed = context.events, context.changed
        self._stored: set[str] = set()
        self._refused: dict[str, Causes] = {}
        self._ready: set[str] = set()
        self._waiting: set[str] = set()
        self._seen: tuple[Fleet, int, Rules, dict[str, Usage]] | None = None

    def recover(self, snapshot: Snapshot, now: float) -> None:
        """Restore nominations after the ledger, in the same order. Their time begins again."""
        for nomination in sorted(snapshot.nominations, key=lambda stored: stored.since):
            self.put(replace(nomination, since=now))
            uid, fleet = nomination.request.uid, self._allocator.fleet
            if uid in fleet.ledger and not self._allocator.nominations.moving(fleet, uid):
                self._allocator.withdraw(uid)
                self._journal.write(*self.ended())

    def put(self, *nominations: Nomination) -> tuple[PutNomination, ...]:
        """Reserve room for requests. Return the records to write with that change."""
        self._allocator.nominate(*nominations)
        self._stored.update(nomination.request.uid for nomination in nominations)
        return tuple(map(PutNomination, nominations))

    def record(self, nomination: Nomination) -> None:
        """Record who is evicted for a request and where room is reserved for it."""
        ledger, claimant = self._allocator.fleet.ledger, nomination.request.uid
        for held in (ledger[victim.uid] for victim in nomination.victims):
            self._events.add("allocation.preempted", uid=held.id, claimant=claimant, node=held.node, gpus=held.gpus)
        self._events.add("allocation.nominated", uid=claimant, node=nomination.node, gpus=nomination.gpus)

    def renew(self, request: Request, now: float) -> Nomination | None:
        """Restart the time of a request that is made again. Return None if no room is reserved for it.

        If it asks for something else now, room for that is reserved in the place of its victims.
        """
        known = self._allocator.nominations.of(request.uid)
        if known is None:
            return None
        known = self._as_asked(known, request)
        self._journal.write(*self.put(replace(known, since=now)))
        self._ready.discard(request.uid)
        return known

    def _as_asked(self, known: Nomination, request: Request) -> Nomination:
        fleet, rules = self._allocator.fleet, self._allocator.rules
        if what_decides(known.request) == what_decides(request) or known.node not in fleet.row_of:
            return known
        choice = choice_after(fleet, rules, request, fleet.row_of[known.node], nominations=self._allocator.nominations)
        if choice is None:
            return known
        return replace(known, request=request, gpus=choice.gpus, charges=choice.charges)

    def give_up(self, request: Request) -> None:
        """End the nomination of a request that asks for something else, and does not fit when its victims leave."""
        known = self._allocator.nominations.of(request.uid)
        if known is not None and what_decides(known.request) != what_decides(request):
            self._allocator.withdraw(request.uid)
            self._journal.write(*self.ended())
            self._changed(True)

    def ended(self) -> tuple[Drop, ...]:
        """Return the records of stored nominations that ended since the last call."""
        if not self._stored:
            return ()
        before, self._stored = self._stored, {entry.request.uid for entry in self.all()}
        return tuple(Drop(PutNomination, uid) for uid in sorted(before - self._stored))

    def all(self) -> tuple[Nomination, ...]:
        """Return the nominations, the oldest first."""
        return self._allocator.nominations.entries

    def expire(self, now: float) -> float | None:
        """Record which requests would fit now, and end expired nominations. Return when the next one expires."""
        for uid in self._allocator.nominations.lapsed(now):
            self._allocator.withdraw(uid)
            self._events.add("allocation.lapsed", message=f"{uid} was not requested again in time", uid=uid)
            self._changed(True)
        ended = self.ended()
        if ended:
            self._journal.write(*ended)
        if self._stored:
            self._record_ready()
        return min((entry.since + NOMINATED_TTL_S for entry in self.all()), default=None)

    def _record_ready(self) -> None:
        """Record an event for each request that changed conditions may help and that would get its cards now."""
        ledger = self._allocator.fleet.ledger  # a request that moves is considered once it has left
        waiting = {entry.request.uid: entry for entry in self.all() if entry.request.uid not in ledger}
        self._ready &= waiting.keys()
        self._refused = {uid: causes for uid, causes in self._refused.items() if uid in waiting}
        alone = [
            entry
            for uid, entry in waiting.items()
            if uid not in self._ready and entry.request.claim.gang is None and not self._waits_for_leaving(entry)
        ]
        came, self._waiting = waiting.keys() - self._waiting, set(waiting)
        woken = self._woken(alone)
        for uid in [entry.request.uid for entry in alone if entry.request.uid in came or entry.request.uid in woken]:
            outcome = self._allocator.simulate(waiting[uid].request).outcome
            if isinstance(outcome, Refusal):
                self._refused[uid] = Causes.of(outcome)
            else:
                self._ready.add(uid)
                self._events.add("allocation.ready", uid=uid, node=outcome.node, gpus=outcome.gpus)
        fleet = self._allocator.fleet
        self._seen = fleet, fleet.clock, self._allocator.rules, dict(fleet.usage)

    def _waits_for_leaving(self, entry: Nomination) -> bool:
        """Return whether allocations that leave still hold the room made for a request. It wakes when they are gone."""
        fleet = self._allocator.fleet
        holders = fleet.card_holders(fleet.card_of[uuid] for uuid in entry.gpus if uuid in fleet.card_of)
        return entry.hold and not fleet.leaving.isdisjoint(holders)

    def _woken(self, waiting: list[Nomination]) -> list[str]:
        """Return requests that a change since the last call may have helped; all, if rules or inventory are new."""
        fleet, rules = self._allocator.fleet, self._allocator.rules
        rows = None
        if self._seen is not None and self._seen[0] is fleet and self._seen[2] is rules:
            rows = fleet.touched_since(self._seen[1])
        if self._seen is None or rows is None:
            return [entry.request.uid for entry in waiting]
        before, now = self._seen[3], fleet.usage
        changed = [name for name in before if before[name] != now.get(name)]
        quotas = {level for name in changed for level in rules.quotas.levels(name)}
        pending = [Pending(e.request, self._refused.get(e.request.uid, NO_CAUSES), e.node) for e in waiting]
        woken = {*woken_by_quota(quotas, pending), *woken_by_nodes([fleet.nodes[row].name for row in rows], pending)}
        cards = cards_on(fleet, np.array(rows, dtype=np.int64))
        woken.update(entry.request.uid for entry in waiting if any_takes(fleet, entry.request.requirement, cards))
        return [entry.request.uid for entry in waiting if entry.request.uid in woken]
