"""Enters ResourceSlices, DeviceClasses and ResourceClaims from the API in the device books.

A cluster may lack these kinds, or get them later: they are watched as soon as they exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from ullage.kube.claims.taint_rules import TaintRules
from ullage.kube.claims.unread import UnreadClaims
from ullage.kube.client.informer import Added, Changed, Delta, Informer, Removed
from ullage.kube.client.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from ullage.kube.client.objects import Object, Pod
from ullage.kube.client.served import MISSING, wait_served
from ullage.kube.context import KubeContext
from ullage.model.error import InvalidRequest, NotFound, UllageError
from ullage.service.claims import Claims
from ullage.service.devices import PoolKey
from ullage.wire.document import Document
from ullage.wire.dra.claim import extended_claim, read_claim, read_device_class
from ullage.wire.dra.unread_claim import read_held
from ullage.wire.pod.gate import gate_of
from ullage.wire.topology.resourceslice import pool_of, read_resource_slices

LOOK_S = 60.0
"""Seconds between checks whether a cluster without claims has these kinds by now."""

KINDS = (RESOURCE_SLICES, DEVICE_CLASSES, RESOURCE_CLAIMS)


class DeviceMirror:
    """`run` watches the kinds once they exist.

    `describe` is called for a machine whose reported cards have changed.
    """

    def __init__(self, context: KubeContext, claims: Claims, describe: Callable[[str], None]) -> None:
        self._queue_key = gate_of(context.domain)
        """The annotation that names the queue of a claim, and the label of the same meaning."""
        self._unread = UnreadClaims(claims.devices, context.record_event)
        self._api, self._claims, self._describe, self._on_error = context.api, claims, describe, context.on_error
        self.slices, self.classes, self.claims = (Informer(context.api, kind) for kind in KINDS)
        self._subscribers: list[Callable[[], None]] = []
        self._taint_rules = TaintRules(context.api, claims.devices, self._notify, context.on_error)
        self._slices_of: dict[PoolKey, dict[str, Document]] = {}
        self._looked = asyncio.Event()
        self.served = False
        self.unreadable: dict[str, str] = {}
        """Requests of unknown form, by the uid of the claim."""
        self.slices.subscribe(self._on_slice)
        self.classes.subscribe(self._on_class)
        self.claims.subscribe(self._on_claim)
        context.followed.nodes.subscribe(lambda _delta: self._notify())

    async def run(self) -> None:
        def missed(error: UllageError) -> None:
            if not isinstance(error, NotFound):
                self._on_error("ResourceClaim", "", error)
            if isinstance(error, MISSING):
                self._looked.set()

        await wait_served(self._api, *([kind] for kind in KINDS), missed=missed, again_s=LOOK_S)
        self.served = True
        self._looked.set()
        async with asyncio.TaskGroup() as tasks:
            for informer in (self.slices, self.classes, self.claims, self._taint_rules.informer):
                tasks.create_task(informer.run())

    async def wait_synced(self) -> None:
        """Return when all objects have been entered, or the kinds are known to be missing."""
        await self._looked.wait()
        if self.served:
            for informer in (self.slices, self.classes, self.claims):
                await informer.wait_synced()
            await self._taint_rules.informer.wait_ready()

    async def catch_up(self) -> None:
        """Enter the current state, however far behind the watches are.

        Raises:
            UllageError: a list failed.

        """
        if self.served:
            await self.claims.catch_up()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after every change that may help a waiting pod."""
        self._subscribers.append(changed)

    def _notify(self) -> None:
        for changed in self._subscribers:
            changed()

    def report_again(self) -> None:
        """Record again the events from before this process led."""
        self._unread.report_again()

    async def claimed(self, pod: Pod) -> tuple[str, ...]:
        """Return the cards that a scheduler has claimed for the resources that the containers of a pod request.

        Raises:
            NotFound: its claim is gone.

        """
        name = extended_claim(pod.document)
        if not name or not self.served:
            return ()
        found = await self._api.get(RESOURCE_CLAIMS, name, pod.metadata.namespace)
        return self._claims.devices.cards_of(read_claim(found.document))

    def _on_slice(self, delta: Delta[Object]) -> None:
        """Read the pool of a slice again: which of its slices count depends on all of them."""
        found = delta.last if isinstance(delta, Removed) else delta.new
        document, name = found.document, found.metadata.name
        try:
            key = pool_of(document)
        except InvalidRequest as error:
            self._on_error("ResourceSlice", name, error)
            return
        slices = self._slices_of.setdefault(key, {})
        slices.pop(name, None)
        if not isinstance(delta, Removed):
            slices[name] = document
        pools, dropped = read_resource_slices(slices.values())
        for sentence in dropped:
            self._on_error("ResourceSlice", name, InvalidRequest(sentence))
        if not slices:
            del self._slices_of[key]
        for node in sorted(self._claims.devices.set_pool(key, next(iter(pools), None))):
            self._describe(node)
        self._notify()

    def _on_class(self, delta: Delta[Object]) -> None:
        match delta:
            case Added(new) | Changed(_, new):
                try:
                    self._claims.set_class(new.metadata.name, read_device_class(new.document))
                except InvalidRequest as error:
                    self._claims.set_class(new.metadata.name, None)
                    self._on_error("DeviceClass", new.metadata.name, error)
            case Removed(last):
                self._claims.set_class(last.metadata.name, None)
        self._notify()

    def _on_claim(self, delta: Delta[Object]) -> None:
        match delta:
            case Added(new) | Changed(_, new):
                self._take_claim(new)
            case Removed(last):
                self.unreadable.pop(last.metadata.uid, None)
                self._unread.forget(last.metadata.uid)
                self._claims.devices.remove_claim(last.metadata.uid)
        self._notify()

    def _take_claim(self, found: Object) -> None:
        document, uid, devices = found.document, found.metadata.uid, self._claims.devices
        self.unreadable.pop(uid, None)
        try:
            claim = read_claim(document)
        except InvalidRequest as error:
            self._on_error("ResourceClaim", "/".join(found.key), error)
            self.unreadable[uid] = error.message
            try:
                claim = read_held(document)
            except InvalidRequest as unread:
                self._unread.withhold(found, unread)
                return
        self._unread.forget(uid)
        queue = (found.metadata.annotations or {}).get(self._queue_key)
        if queue:
            claim = replace(claim, labels={**claim.labels, self._queue_key: queue})
        devices.set_claim(claim)
