"""Quotas: what the requests of a namespace may hold. A namespace is a queue's name; quotas nest as queues do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ullage.core.books.usage import Usage
from ullage.core.verdict.quota import Quotas, QuotaStatus
from ullage.core.verdict.sentences import condition_text
from ullage.model.allocation import AllocationState
from ullage.model.claim import Request
from ullage.model.name import check_name
from ullage.model.nearest import Missing
from ullage.model.part import Isolation, Part
from ullage.model.queue import ROOT, Queue
from ullage.model.quota import Quota
from ullage.service.context import ServiceContext
from ullage.service.journal import Callback, in_one_write
from ullage.service.store_port import Drop, PutQuota, Snapshot


class NamespaceQuotas:
    """Use cases of quotas. They judge requests for cards; sessions have the limits of their queues."""

    def __init__(self, context: ServiceContext) -> None:
        self._state, self._journal, self._events = context.state, context.journal, context.events
        self._clock, self._changed = context.clock, context.changed
        self._known: dict[str, QuotaStatus] = {}
        self._stored: dict[str, PutQuota] = {}
        self._watched: tuple[object, ...] = ()

    def recover(self, snapshot: Snapshot) -> None:
        """Restore the stored quotas after a restart. Their last events are not repeated."""
        now = self._clock()
        for stored in snapshot.quotas:
            self._put(stored.namespace, stored.quota)
            since = None if stored.since is None else min(stored.since, now)
            self._stored[stored.namespace] = replace(stored, since=since)

    def follow(self, queues: Iterable[Queue]) -> None:
        """Let quotas nest as these queues do."""
        parents = {queue.name: queue.parent for queue in queues if queue.parent != ROOT}
        self._use(replace(self._quotas, parents=parents))

    @in_one_write
    def put(self, namespace: str, quota: Quota, done: Callback) -> QuotaStatus:
        """Create or replace the quota of a namespace. Present usage counts at once."""
        check_name("namespace", namespace)
        self._put(namespace, quota)
        status = self.status(namespace)
        self._journal.write(then=done)
        self._changed(True)
        return status

    def drop(self, namespace: str, done: Callback) -> None:
        """Remove the quota of a namespace.

        Raises:
            NotFound: it has none.

        """
        self.get(namespace)
        self._use(self._quotas.without(namespace))
        self._known.pop(namespace, None)
        self._stored.pop(namespace, None)
        self._journal.write(Drop(PutQuota, namespace), then=done)
        self._changed(True)

    def get(self, namespace: str) -> Quota:
        """Return the quota of a namespace.

        Raises:
            NotFound: it has none.

        """
        found = self._quotas.quotas.get(namespace)
        if found is None:
            raise Missing("quota", namespace, self._quotas.quotas, field="namespace")
        return found

    @in_one_write
    def status(self, namespace: str) -> QuotaStatus:
        """Return the usage of the quota of a namespace, its state, and since when it has this state."""
        before, stored = self._known.get(namespace), self._stored.get(namespace)
        status = self._quotas.status(self._state.fleet.usage, namespace, self._clock(), before)
        ready, since = status.condition.ready, status.condition.since
        if before is None and stored is not None and stored.since is not None and stored.ready == ready:
            since = stored.since
            status = replace(status, condition=replace(status.condition, since=since))
        self._known[namespace] = status
        record = PutQuota(namespace, self.get(namespace), ready, since)
        if record == stored:
            return status
        self._stored[namespace] = record
        self._journal.write(record)
        if ready != (stored is None or stored.ready):
            self._events.add(
                "quota.sufficient" if ready else "quota.alert",
                message=condition_text(status.condition),
                namespace=namespace,
            )
        return status

    def watch(self) -> None:
        """Compare all namespaces with their quotas. Record an event when one runs short, or no longer does."""
        fleet = self._state.fleet
        seen = (fleet, fleet.claim_changes, self._quotas)
        if seen != self._watched:
            self._watched = seen
            for namespace in self.names():
                self.status(namespace)

    def assumed(self, namespace: str) -> Usage:
        """Return the part of the usage of a namespace that is only assumed."""
        fleet = self._state.fleet
        usage: dict[str, Usage] = {}
        for allocation in fleet.ledger.values():
            if allocation.claim is not None and allocation.state is AllocationState.ASSUMED:
                name = allocation.claim.namespace
                usage[name] = usage.get(name, Usage()).plus(fleet.usage_of(allocation))
        return self._quotas.used(usage, namespace)

    def names(self) -> tuple[str, ...]:
        """Return the namespaces that have a quota."""
        return tuple(sorted(self._quotas.quotas))

    def admit(self, request: Request) -> Request:
        """Return a request with the defaults of the quota of its namespace.

        Raises:
            InvalidRequest: a limit is below the request, or its strategy is unknown.

        """
        self._state.allocator.rules.strategy_of(request)
        admitted = self._filled(request)
        part, limit = admitted.requirement.part, admitted.claim.limit
        if part is not None and limit is not None:
            limit.check_covers(part)
        return admitted

    def _filled(self, request: Request) -> Request:
        quota = self._quotas.quotas.get(request.claim.namespace)
        part = request.requirement.part
        if quota is None or part is None or request.requirement.cards.isolation is Isolation.SHARED or part.vram_ppm:
            return request
        asked = Part(part.compute_gflops, part.vram_bytes, part.compute_ppm)
        filled, limit = quota.with_defaults(asked, request.claim.limit)
        return replace(
            request,
            requirement=replace(
                request.requirement, part=Part(filled.compute_gflops, filled.vram_bytes, filled.compute_ppm)
            ),
            claim=replace(request.claim, limit=limit),
        )

    @property
    def _quotas(self) -> Quotas:
        return self._state.allocator.rules.quotas

    def _put(self, namespace: str, quota: Quota) -> None:
        self._use(self._quotas.updated(namespace, lambda: quota))

    def _use(self, quotas: Quotas) -> None:
        self._state.allocator.rules = replace(self._state.allocator.rules, quotas=quotas)
