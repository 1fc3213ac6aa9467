"""The upkeep of bindings: drops rows that no pod uses any more, and writes the projections of the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ullage.kube.bindings.conflicting_claims import ConflictingClaims
from ullage.kube.bindings.filter import BindingFilter
from ullage.kube.bindings.projection import node_changes, object_changes, state_changes
from ullage.kube.bindings.store import KubeBindings
from ullage.kube.bindings.unused import unused
from ullage.kube.client.changes import Change, Create, Delete, Patch, Replace
from ullage.kube.client.lease import NotLeading
from ullage.kube.context import KubeContext
from ullage.kube.controller import Controller
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.model.error import Conflict, UllageError
from ullage.service.bindings import Bindings

LOOK_AGAIN_S = 10.0
"""Maximum seconds between two passes without an event."""

SETTLE, PROJECT = "settle", "project"
"""The keys."""

GAP_S = 0.05
"""Seconds between two passes: events in this time are handled together."""


class Upkeep:
    """Settles bindings that are being released, and writes projections, after every change and regularly."""

    def __init__(
        self,
        context: KubeContext,
        bindings: KubeBindings,
        term: ReadyTerm,
        binding_filter: BindingFilter,
        conflicting_claims: ConflictingClaims,
    ) -> None:
        self._candidate, self._bindings, self._followed = context.candidate, bindings, context.followed
        self._term, self._binding_filter, self._conflicting_claims = term, binding_filter, conflicting_claims
        self._use, self._on_error = Bindings(bindings), context.on_error
        self._unused: dict[str, str] = {}
        """Bindings that were created after the pods of their application, with their explanation."""
        self.controller = Controller(
            "Bindings",
            self.reconcile,
            on_error=context.on_error,
            guard=lambda: term.begun() and bindings.synced,
            gap_s=GAP_S,
        )
        term.subscribe(self.wake)
        bindings.subscribe(self.wake, self._pod_ended)

    async def reconcile(self, key: str) -> float:
        """Settle bindings that are being released (`SETTLE`), or write what differs from the ledger (`PROJECT`)."""
        epoch = self._term.check()
        ledger = await self._bindings.ledger()
        if key == PROJECT:
            self._conflicting_claims.update(self._bindings.claims)
            async for change in self._changes():
                await self._write(epoch, change)
        elif any(row.draining for row in ledger.rows):
            await self._use.remove_drained()
        return LOOK_AGAIN_S

    def wake(self) -> None:
        """Reconcile both soon."""
        self.controller.add(SETTLE)
        self.controller.add(PROJECT)

    def _pod_ended(self) -> None:
        """Ignore ended pods unless something waits for pods to end."""
        ledger = self._bindings.store.now
        if self._unused:
            self.wake()
        elif ledger is not None and any(row.draining for row in ledger.rows):
            self.controller.add(SETTLE)

    async def _changes(self) -> AsyncIterator[Change]:
        ledger, shown = await self._bindings.ledger(), self._bindings.objects.objects
        for change in [*object_changes(ledger, shown), *node_changes(ledger, self._followed.nodes.objects)]:
            yield change
        claims, foreign = self._bindings.claims, self._bindings.foreign
        occupants = self._bindings.occupants
        self._unused = unused(claims, occupants.there, occupants.cards_of)
        for change in list(state_changes(claims, foreign, self._binding_filter.conflicts, shown, unused=self._unused)):
            yield change
        allocations = self._bindings.allocations
        found = None if allocations is None else allocations.change(ledger, self._bindings.imports)
        if found is not None:
            yield found
        names = [name for _, name in self._followed.nodes.objects]
        for change in list(self._binding_filter.retries(self._followed.pods.objects, names)):
            yield change

    async def _write(self, epoch: int, change: Change) -> None:
        try:
            await self._candidate.write(epoch, change)
        except NotLeading:
            raise
        except UllageError as error:  # the other writes go on, and this one is retried in the next pass
            if not isinstance(error, Conflict):  # else the cache is behind, and an event follows soon
                self._on_error(*_what(change), error)


def _what(change: Change) -> tuple[str, str]:
    match change:
        case Create(kind, {"metadata": {"name": name}}) | Replace(kind, name) | Patch(kind, name) | Delete(kind, name):
            return kind.name, str(name)
    return "Bindings", ""
