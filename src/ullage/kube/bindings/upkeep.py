"""The upkeep of bindings: drops rows that no pod uses any more, and writes the projections of the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ullage.kube.bindings.gate import Gate
from ullage.kube.bindings.intruders import Intruders
from ullage.kube.bindings.latecomers import unused
from ullage.kube.bindings.projection import node_changes, object_changes, state_changes
from ullage.kube.bindings.store import KubeBindings
from ullage.kube.client.changes import Change, Create, Delete, Patch, Replace
from ullage.kube.client.lease import NotLeading
from ullage.kube.context import KubeContext
from ullage.model.error import Conflict, UllageError
from ullage.service.bindings import Bindings

LOOK_AGAIN_S = 10.0
"""Maximum seconds between two passes without an event."""

GAP_S = 0.05
"""Seconds between two passes: events in this time are handled together."""


class Upkeep:
    """`run` makes a pass after every change while this process leads. `look` makes one pass."""

    def __init__(self, context: KubeContext, bindings: KubeBindings, gate: Gate, intruders: Intruders) -> None:
        self._candidate, self._bindings, self._nodes = context.candidate, bindings, context.followed.nodes
        self._gate, self._intruders = gate, intruders
        self._use, self._on_error = Bindings(bindings), context.on_error
        self._woken = asyncio.Event()
        self._stale = True
        self._late: dict[str, str] = {}
        """Bindings that were created after the pods of their application, with their explanation."""
        bindings.subscribe(self._wake, self._pod_ended)

    async def run(self) -> None:
        """Make a pass after every change, and regularly."""
        while True:
            try:
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await self._woken.wait()
            except TimeoutError:
                self._stale = True
            self._woken.clear()
            await self.look()
            await asyncio.sleep(GAP_S)

    async def look(self) -> None:
        """Make one pass. Failures are reported, and retried in the next pass."""
        epoch = self._candidate.epoch
        if epoch is None or not self._bindings.synced:
            return
        try:
            ledger = await self._bindings.ledger()
            if self._bindings.unready:
                return
            if any(row.draining for row in ledger.rows):
                await self._use.settle()
            if self._stale:
                self._stale = False
                self._intruders.look(self._bindings.claims)
                async for change in self._changes():
                    await self._write(epoch, change)
        except UllageError as error:
            self._stale = True
            self._on_error("Bindings", "", error)

    def _wake(self) -> None:
        self._stale = True
        self._woken.set()

    def _pod_ended(self) -> None:
        """Ignore ended pods unless something waits for pods to end."""
        ledger = self._bindings.store.now
        if self._late:
            self._wake()
        elif ledger is not None and any(row.draining for row in ledger.rows):
            self._woken.set()

    async def _changes(self) -> AsyncIterator[Change]:
        ledger, shown = await self._bindings.ledger(), self._bindings.objects.objects
        for change in [*object_changes(ledger, shown), *node_changes(ledger, self._nodes.objects)]:
            yield change
        claims, foreign = self._bindings.claims, self._bindings.foreign
        occupants = self._bindings.occupants
        self._late = unused(claims, occupants.there, occupants.cards_of)
        for change in list(state_changes(claims, foreign, self._gate.conflicts, shown, unused=self._late)):
            yield change
        allocations = self._bindings.allocations
        found = None if allocations is None else allocations.change(ledger, self._bindings.imports)
        if found is not None:
            yield found
        names = [name for _, name in self._nodes.objects]
        for change in list(self._gate.woken(self._bindings.pods, names)):
            yield change

    async def _write(self, epoch: int, change: Change) -> None:
        try:
            await self._candidate.write(epoch, change)
        except NotLeading:
            raise
        except UllageError as error:
            self._stale = True  # the other writes go on, and this one is retried
            if not isinstance(error, Conflict):  # else the cache is behind, and an event follows soon
                self._on_error(*_what(change), error)


def _what(change: Change) -> tuple[str, str]:
    """Return the kind and the name of the written object."""
    match change:
        case Create(kind, {"metadata": {"name": name}}) | Replace(kind, name) | Patch(kind, name) | Delete(kind, name):
            return kind.name, str(name)
    return "Bindings", ""
