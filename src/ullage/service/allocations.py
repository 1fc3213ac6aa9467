"""Requests for cards: what others than our own executors hold, in the same books as theirs.

Each step is decided in memory, all or nothing, and answered when it is durable. A restart finds every
allocation as it was, assumed ones too; those that are never committed are swept in time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ullage.core.books.capacity import NodeCapacity, node_capacity
from ullage.core.books.departed import Freed
from ullage.core.holdings import ASSUMED_TTL_S
from ullage.core.placing.adjust import Adjustment, AmountsChange
from ullage.core.placing.decision import Decision, Refusal
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Request
from ullage.model.nearest import Missing
from ullage.model.rejection import Code
from ullage.service.context import ServiceContext
from ullage.service.events import allocation_facts
from ullage.service.journal import Callback, in_one_write
from ullage.service.nominations import NominatedRequests
from ullage.service.store_port import Drop, PutAllocation, Record, Snapshot

Outcome = Allocation | Refusal


class AllocationRequests:
    """Use cases of requests for cards. `left` is called with each that ended, so that no gang requests it again.

    `refused` counts refusals by their code and `adjusted` changes by their direction, since the start.
    """

    def __init__(self, context: ServiceContext, nominated: NominatedRequests, left: Callable[[str], None]) -> None:
        self._state, self._allocator, self._journal = context.state, context.state.allocator, context.journal
        self._nominated, self._left = nominated, left
        self._events, self._clock, self._changed = context.events, context.clock, context.changed
        self._assumed: dict[str, float] = {}
        self._release_by: dict[str, float] = {}
        self.refused: Counter[Code] = Counter()
        self.adjusted: Counter[str] = Counter(up=0, down=0)

    def recover(self, snapshot: Snapshot) -> None:
        """Restore the stored ledger after a restart. From here on it is ready.

        The wall clock may have been ahead when it was stored: no wait lasts for that jump.
        """
        now = self._clock()
        stored = [allocation.not_after(now) for allocation in snapshot.allocations]
        self._allocator.reconcile(stored, now)
        self._nominated.recover(snapshot, now)
        self._allocator.set_ready()
        waiting = [(a.assumed_at or 0.0, a.id) for a in stored if a.state is AllocationState.ASSUMED]
        self._assumed = {uid: at for at, uid in sorted(waiting)}
        self._release_by = {a.id: a.release_by for a in stored if a.release_by is not None}

    # --- requests ---

    def alloc(self, request: Request, done: Callback) -> Outcome:
        """Place a request and bind it; a repeated uid is answered with what it holds.

        Raises:
            NotFound: the pool is not known. Unavailable: not ready.

        """
        before = self._allocator.held(request.uid)
        return self._answer(before, self._allocator.alloc(request, self._clock()), done)

    def assume(self, request: Request, gpus: Sequence[str] | None, done: Callback) -> Outcome:
        """Reserve named cards, or the best ones, until `commit` or `forget`.

        Without names a repeated uid is answered with what it holds, whatever is asked now.

        Raises:
            InvalidRequest, NotFound, Conflict: as `FleetAllocator.assume`.

        """
        if gpus is None:
            held = self._allocator.held(request.uid)
            if held is not None:
                return self._answer(held, held, done)
            found = self._allocator.simulate(request).outcome
            if isinstance(found, Refusal):
                return self._answer(None, found, done)
            gpus = found.gpus
        before = self._allocator.held(request.uid)
        return self._answer(before, self._allocator.assume(request, gpus, self._clock()), done)

    def bind(self, request: Request, gpus: Sequence[str], done: Callback) -> Outcome:
        """`assume` and `commit` in one durable step.

        Raises:
            InvalidRequest, NotFound, Conflict: as `FleetAllocator.assume`.

        """
        before = self._allocator.held(request.uid)
        return self._answer(before, self._allocator.bind(request, gpus, self._clock()), done)

    def commit(self, uid: str, done: Callback) -> Allocation:
        """Make an assumption durable for good.

        Raises:
            Conflict: the uid is not assumed.

        """
        before = self._allocator.held(uid)
        allocation = self._allocator.commit(uid, self._clock())
        self._answer(before, allocation, done)
        return allocation

    @in_one_write
    def forget(self, uid: str, done: Callback) -> Allocation | None:
        """Release whatever the uid holds or is reserved for it. A repeat changes nothing."""
        self._left(uid)
        undone = self._allocator.unreserve(uid, self._clock())
        self._store_drop(undone, done)
        return undone

    @in_one_write
    def dealloc(self, uid: str, gpus: Sequence[str] | None, done: Callback | None) -> Freed:
        """Free what the uid holds, because its owner is gone. Never refuses."""
        held = self._allocator.held(uid)
        self._left(uid)
        freed = self._allocator.dealloc(uid, self._clock(), gpus)
        self._store_drop(held, done)
        return freed

    @in_one_write
    def release(self, uid: str, within_s: float | None, done: Callback) -> Allocation:
        """Ask the owner of an allocation to leave. The cards stay charged until `dealloc`, or until `within_s` is over.

        A repeat does not extend the time.

        Raises:
            NotFound: there is none.

        """
        before = self.get(uid)
        now = self._clock()
        allocation = self._allocator.release(uid, None if within_s is None else now + within_s, now)
        assert allocation is not None, "it is in the ledger"
        if allocation.release_by is not None:
            self._release_by[uid] = allocation.release_by
        if allocation == before:
            self._journal.write(then=done)
            return allocation
        self._assumed.pop(uid, None)
        self._events.add("allocation.releasing", uid=uid, node=allocation.node, gpus=allocation.gpus)
        self._journal.write(PutAllocation(allocation), then=done)
        self._changed(True)
        return allocation

    @in_one_write
    def adjust(self, uid: str, change: AmountsChange, dry_run: bool, done: Callback) -> Adjustment | Refusal:
        """Change how much a bound allocation takes of its cards.

        Raises:
            Conflict: the uid is not bound.

        """
        before = self._allocator.held(uid)
        outcome = self._allocator.adjust(uid, change, dry_run=dry_run)
        if isinstance(outcome, Refusal):
            self.refused[outcome.code] += not dry_run
        elif not dry_run and outcome.allocation != before:
            grows = max(*outcome.delta_request, *outcome.delta_limit) > 0
            self.adjusted["up" if grows else "down"] += 1
            self._events.add("allocation.adjusted", uid=uid)
            self._journal.write(PutAllocation(outcome.allocation), then=done)
            self._changed(True)
            return outcome
        self._journal.write(then=done)
        return outcome

    def simulate(self, request: Request) -> Decision:
        """Return what `alloc` would do now, with every step. Nothing changes.

        Raises:
            NotFound: the pool is not known. Unavailable: not ready.

        """
        return self._allocator.simulate(request)

    def get(self, uid: str) -> Allocation:
        """Return the allocation of a request.

        Raises:
            NotFound: there is none.

        """
        found = self._state.fleet.ledger.get(uid)
        if found is None or found.claim is None:
            ledger = self._state.fleet.ledger
            raise Missing("allocation", uid, (uid for uid, a in ledger.items() if a.claim is not None), field="uid")
        return found

    def owner(self, uid: str) -> str | None:
        """Return the user who asked for a request that holds cards or waits for them; None if there is none."""
        found = self._state.fleet.ledger.get(uid)
        if found is not None:
            return "" if found.claim is None else found.claim.owner
        waiting = (entry.request for entry in self._nominated.all() if entry.request.uid == uid)
        return next((request.claim.owner for request in waiting), None)

    def all(self) -> tuple[Allocation, ...]:
        """Return the allocations of requests by uid, without those of executors."""
        return tuple(a for _, a in sorted(self._state.fleet.ledger.items()) if a.claim is not None)

    def expire(self, now: float) -> float | None:
        """Drop assumptions and free releasing allocations past their time. Return when the next one is due."""
        for uid, at in tuple(self._assumed.items()):
            if at + ASSUMED_TTL_S > now:
                break  # they stand in the order of their times
            del self._assumed[uid]
            if self._allocator.forget(uid, now) is not None:
                self._events.add("allocation.expired", message=f"{uid} was assumed and never committed", uid=uid)
                self._journal.write(Drop(PutAllocation, uid))
                self._changed(True)
        for uid, at in [(uid, at) for uid, at in self._release_by.items() if at <= now]:
            del self._release_by[uid]
            held = self._state.fleet.ledger.get(uid)
            if held is not None and held.release_by == at:
                self.dealloc(uid, None, None)
        due = [at + ASSUMED_TTL_S for at in self._assumed.values()][:1]
        return min((*due, *self._release_by.values()), default=None)

    @in_one_write
    def free_pod(self, namespace: str, pod: str, pod_uid: str | None, done: Callback) -> tuple[Freed, ...]:
        """Free what a pod that is gone holds: the pod of that uid, or all pods of its name."""
        freed = self._allocator.dealloc_by_pod(namespace, pod, self._clock(), pod_uid)
        dropped = (Drop(PutAllocation, each.uid) for each in freed)
        self._journal.write(*dropped, *self._nominated.ended(), then=done)
        for each in freed:
            self._left(each.uid)
            self._drop_deadlines(each.uid)
            self._events.add("allocation.freed", uid=each.uid, gpus=each.gpus)
        self._changed(True)
        return freed

    def capacity(self, node: str) -> NodeCapacity:
        """Return what the cards of a node have in total, what is free, and what may still be allocated.

        Raises:
            NotFound: no such node.

        """
        rules = self._allocator.rules
        return node_capacity(self._state.fleet, node, rules.oversubscription, rules.disks)

    def unused_nodes(self) -> tuple[str, ...]:
        """Return the nodes with cards and without allocations."""
        return tuple(sorted(self._allocator.unused_nodes()))

    # --- steps ---

    @in_one_write
    def _answer(self, before: Allocation | None, outcome: Outcome, done: Callback) -> Outcome:
        """Store what changed. A repeat changes nothing, and is answered once the first request is stored."""
        if not isinstance(outcome, Allocation) or outcome == before:
            if isinstance(outcome, Refusal):
                self.refused[outcome.code] += 1
            self._journal.write(then=done)
            return outcome
        bound = outcome.state is AllocationState.BOUND
        if outcome.state is AllocationState.ASSUMED:
            self._assumed.setdefault(outcome.id, outcome.assumed_at or self._clock())
        else:
            self._assumed.pop(outcome.id, None)
        self._events.add("allocation.bound" if bound else "allocation.assumed", **allocation_facts(outcome))
        self._journal.write(PutAllocation(outcome), *self._nominated.ended(), then=done)
        self._changed(True)
        return outcome

    def _store_drop(self, allocation: Allocation | None, done: Callback | None) -> None:
        records: tuple[Record, ...] = self._nominated.ended()
        if allocation is not None:
            self._drop_deadlines(allocation.id)
            self._events.add("allocation.freed", uid=allocation.id, node=allocation.node, gpus=allocation.gpus)
            records = (Drop(PutAllocation, allocation.id), *records)
        self._journal.write(*records, then=done)
        if records:
            self._changed(True)

    def _drop_deadlines(self, uid: str) -> None:
        self._assumed.pop(uid, None)
        self._release_by.pop(uid, None)
