"""Requests for cards: what others than our own executors hold, in the same books as theirs.

Each step is decided in memory, all or nothing, and answered when it is durable. A restart finds every
allocation as it was, assumed ones too; those that are never committed are swept in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ullage.core.adjust import Adjustment, Change
from ullage.core.allocator import ASSUMED_TTL_S, Decision, Freed
from ullage.core.quota import QuotaStatus
from ullage.core.selection import Refusal
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Request
from ullage.model.error import NotFound
from ullage.model.name import check_name
from ullage.model.quota import Quota
from ullage.service.events import Events
from ullage.service.journal import Callback, Journal
from ullage.service.ports import DropAllocation, DropQuota, PutAllocation, PutQuota, Snapshot
from ullage.service.state import State

Outcome = Allocation | Refusal


class Allocations:
    """Use cases of requests for cards and of quotas."""

    def __init__(
        self,
        state: State,
        journal: Journal,
        events: Events,
        clock: Callable[[], float],
        changed: Callable[[bool], None],
    ) -> None:
        self._state = state
        self._allocator = state.allocator
        self._journal = journal
        self._events = events
        self._clock = clock
        self._changed = changed

    def recover(self, snapshot: Snapshot) -> None:
        """After a restart: the ledger and the quotas as they were stored. From here on it is ready."""
        rules = self._allocator.rules
        for stored in snapshot.quotas:
            rules = replace(rules, quotas=rules.quotas.updated(stored.namespace, lambda stored=stored: stored.quota))  # type: ignore[misc]
        self._allocator.rules = rules
        self._allocator.reconcile(snapshot.allocations, self._clock())
        self._allocator.set_ready()

    # --- requests ---

    def alloc(self, request: Request, done: Callback) -> Outcome:
        """Place a request and bind it; a repeated uid is answered with what it holds.

        Raises:
            NotFound: the pool is not known. Unavailable: not ready.

        """
        return self._settle(self._allocator.alloc(request, self._clock()), done)

    def assume(self, request: Request, gpus: Sequence[str] | None, done: Callback) -> Outcome:
        """Reserve named cards, or the best ones, until `commit` or `forget`.

        Raises:
            InvalidRequest, NotFound, Conflict: as `Allocator.assume`.

        """
        if gpus is None:
            held = self._allocator.held(request.uid)
            found = self._allocator.simulate(request).outcome if held is None else held
            if isinstance(found, Refusal):
                return self._settle(found, done)
            gpus = found.gpus
        return self._settle(self._allocator.assume(request, gpus, self._clock()), done)

    def bind(self, request: Request, gpus: Sequence[str], done: Callback) -> Outcome:
        """`assume` and `commit` in one durable step.

        Raises:
            InvalidRequest, NotFound, Conflict: as `Allocator.assume`.

        """
        return self._settle(self._allocator.bind(request, gpus, self._clock()), done)

    def commit(self, uid: str, done: Callback) -> Allocation:
        """Make an assumption durable for good.

        Raises:
            Conflict: the uid is not assumed.

        """
        allocation = self._allocator.commit(uid, self._clock())
        self._settle(allocation, done)
        return allocation

    def forget(self, uid: str, done: Callback) -> Allocation | None:
        """Undo whatever the uid holds; nothing to undo is fine."""
        undone = self._allocator.unreserve(uid, self._clock())
        self._dropped(undone, done)
        return undone

    def dealloc(self, uid: str, gpus: Sequence[str] | None, done: Callback) -> Freed:
        """Free what the uid holds: its owner is known to be gone. Never refuses."""
        held = self._allocator.held(uid)
        freed = self._allocator.dealloc(uid, self._clock(), gpus)
        self._dropped(held, done)
        return freed

    def adjust(self, uid: str, change: Change, dry_run: bool, done: Callback) -> Adjustment | Refusal:
        """Change how much a bound allocation takes of its cards.

        Raises:
            Conflict: the uid is not bound.

        """
        outcome = self._allocator.adjust(uid, change, dry_run=dry_run)
        if isinstance(outcome, Adjustment) and not dry_run:
            self._events.add("allocation.adjusted", uid=uid)
            self._journal.write(PutAllocation(outcome.allocation), then=done)
            self._changed(True)
        else:
            self._journal.write(then=done)
        return outcome

    def simulate(self, request: Request) -> Decision:
        """What `alloc` would do now, with every step; nothing changes.

        Raises:
            NotFound: the pool is not known. Unavailable: not ready.

        """
        return self._allocator.simulate(request)

    def get(self, uid: str) -> Allocation:
        """The allocation of a request.

        Raises:
            NotFound: there is none.

        """
        found = self._state.fleet.ledger.get(uid)
        if found is None or found.claim is None:
            raise NotFound(f"allocation {uid} does not exist", field="uid")
        return found

    def all(self) -> tuple[Allocation, ...]:
        """Allocations of requests by uid; those of executors are not among them."""
        return tuple(a for _, a in sorted(self._state.fleet.ledger.items()) if a.claim is not None)

    def expire(self, now: float) -> float | None:
        """Sweep assumptions past their time; returns when the next one is due."""
        held = self.all()
        for uid in self._allocator.sweep(now, alive=lambda _allocation: True, waits=lambda _uid: False):
            self._events.add("allocation.expired", message=f"{uid} was assumed and never committed", uid=uid)
            self._journal.write(DropAllocation(uid))
            self._changed(True)
        due = (a.assumed_at for a in held if a.state is AllocationState.ASSUMED and a.assumed_at is not None)
        return min((at + ASSUMED_TTL_S for at in due if at + ASSUMED_TTL_S > now), default=None)

    # --- quotas ---

    def put_quota(self, namespace: str, quota: Quota, done: Callback) -> QuotaStatus:
        """Create or replace the quota of a namespace; what is held already counts at once."""
        check_name("namespace", namespace)
        rules = self._allocator.rules
        self._allocator.rules = replace(rules, quotas=rules.quotas.updated(namespace, lambda: quota))
        self._journal.write(PutQuota(namespace, quota), then=done)
        return self.quota_status(namespace)

    def drop_quota(self, namespace: str, done: Callback) -> None:
        """Forget the quota of a namespace.

        Raises:
            NotFound: it has none.

        """
        self.quota(namespace)
        rules = self._allocator.rules
        self._allocator.rules = replace(rules, quotas=rules.quotas.without(namespace))
        self._journal.write(DropQuota(namespace), then=done)

    def quota(self, namespace: str) -> Quota:
        """The quota of a namespace.

        Raises:
            NotFound: it has none.

        """
        found = self._allocator.rules.quotas.quotas.get(namespace)
        if found is None:
            raise NotFound(f"namespace {namespace} has no quota", field="namespace")
        return found

    def quota_status(self, namespace: str) -> QuotaStatus:
        """How a namespace stands with its quota."""
        return self._allocator.rules.quotas.status(self._state.fleet.usage, namespace, self._clock())

    def quotas(self) -> tuple[str, ...]:
        """Namespaces that have a quota."""
        return tuple(sorted(self._allocator.rules.quotas.quotas))

    # --- steps ---

    def _settle(self, outcome: Outcome, done: Callback) -> Outcome:
        if isinstance(outcome, Allocation):
            bound = outcome.state is AllocationState.BOUND
            self._events.add(
                "allocation.bound" if bound else "allocation.assumed",
                uid=outcome.id,
                node=outcome.node,
                gpus=" ".join(outcome.gpus),
            )
            self._journal.write(PutAllocation(outcome), then=done)
            self._changed(True)
        else:
            self._journal.write(then=done)
        return outcome

    def _dropped(self, allocation: Allocation | None, done: Callback) -> None:
        if allocation is None:
            self._journal.write(then=done)
            return
        self._events.add("allocation.freed", uid=allocation.id, node=allocation.node, gpus=" ".join(allocation.gpus))
        self._journal.write(DropAllocation(allocation.id), then=done)
        self._changed(True)
