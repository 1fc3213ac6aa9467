"""Ullage in front of one cluster: what it hears, what it knows, and who may decide."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ullage.core.selection import Rules
from ullage.kube.bindings.front import BindingTerms, FrontBindings
from ullage.kube.bindings.store import Sources
from ullage.kube.claims.claiming import Claiming
from ullage.kube.claims.devices import DeviceMirror
from ullage.kube.client.api import ALL, KubeApi, Selection
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import NAMESPACES, NODES, NUMATOPOLOGIES, POD_DISRUPTION_BUDGETS, PODS, RESOURCE_QUOTAS
from ullage.kube.client.lease import Candidate, clock_s
from ullage.kube.client.objects import Node, Object, Pod, ResourceQuota
from ullage.kube.device_plugins import PLAIN_TERMS, DevicePlugins, PluginTerms
from ullage.kube.doubt import Doubts
from ullage.kube.events import PodEvents
from ullage.kube.extender import Extender, nothing_claimed
from ullage.kube.mirror import Mirror, Trouble
from ullage.kube.nodes import CardReader
from ullage.kube.queues.hypernodes import HyperNodes
from ullage.kube.queues.pod_groups import PodGroups
from ullage.kube.queues.turns import TurnKeeper
from ullage.kube.recent import recent
from ullage.kube.resource_quotas import NamespaceQuotas
from ullage.kube.sweep import Sweep
from ullage.kube.webhook.admission import named_queue
from ullage.model.card_driver import NVIDIA, CardDriver
from ullage.model.error import InvalidRequest, UllageError
from ullage.model.queue import Queue
from ullage.service.claims import Claims
from ullage.service.cluster import Cluster
from ullage.service.devices import Devices
from ullage.service.gates import RESERVE_AFTER_S, Gates
from ullage.service.queue_holdings import labelled
from ullage.service.vanished_cards import VanishedCards
from ullage.wire.dialect import PLAIN_SETTINGS, PodSettings, read_pod
from ullage.wire.document import Document
from ullage.wire.dra.selector import selects
from ullage.wire.pod import PodRequest
from ullage.wire.pod.gate import gate_of

_LOOK_S = 0.2
"""Between looks at whether another term has begun."""


class FrontClaims(NamedTuple):
    """What follows claims, and what allocates them."""

    mirror: DeviceMirror
    claiming: Claiming


class Front:
    """`run` keeps it up until it is cancelled; `extender` answers from the moment it is ready.

    Every process follows the cluster, and only the one that leads decides. `machines` are the nodes that count.
    """

    def __init__(
        self,
        api: KubeApi,
        candidate: Candidate,
        rules: Rules,
        *,
        pods: PodSettings = PLAIN_SETTINGS,
        readers: Sequence[CardReader] = (),
        topologies: bool = False,
        resource_quotas: bool = False,
        machines: Selection = ALL,
        bindings: BindingTerms | None = None,
        cleanup_delay_s: float | None = None,
        queues: Sequence[Queue] = (),
        reserve_after_s: float = RESERVE_AFTER_S,
        claims: bool = True,
        card_drivers: Sequence[CardDriver] = (NVIDIA,),
        scheduler: str = "ullage",
        plugins: PluginTerms = PLAIN_TERMS,
        clock: Callable[[], float] = clock_s,
        now: Callable[[], float] = time.time,
        trouble: Trouble = lambda _kind, _name, _error: None,
    ) -> None:
        """`topologies`: whether the cluster has Numatopology objects; then nothing is decided before they are known.

        `resource_quotas`: whether those count; then nothing is decided before they are known either.

        `bindings`: how those of applications to cards count; None where they do not. `cleanup_delay_s`: how long after
        the start pods are left alone whose cards are gone; None for good.
        `queues` are those of pods that wait for their turn, as far as they are not just named by pods.

        `claims`: whether ResourceClaims are looked at, where the cluster has them; those of pods of `scheduler` that
        wait behind the gate for them are allocated here. `now` is the time in seconds since 1970.
        """

        def asked(pod: Document) -> PodRequest | None:
            return read_pod(pod, pods)

        self.candidate = candidate
        self.nodes, self.pods = Informer(api, NODES, machines), Informer(api, PODS)
        self.namespaces = Informer(api, NAMESPACES)
        self.budgets = Informer(api, POD_DISRUPTION_BUDGETS)
        self.topologies = Informer(api, NUMATOPOLOGIES) if topologies else None
        self.cluster = Cluster(rules, clock, now)
        self.quotas = Informer(api, RESOURCE_QUOTAS) if resource_quotas else None
        if self.quotas is not None:
            NamespaceQuotas(self.cluster, self.quotas, pods.hami, trouble)
        devices = Devices(self.cluster, card_drivers, clock=clock, trouble=trouble)
        readers = (*readers, lambda node: devices.cards_on(node.metadata.name))
        self.hypernodes = HyperNodes(api, self.nodes, trouble)
        self.mirror = Mirror(
            self.cluster,
            self.nodes,
            self.pods,
            asked,
            domain=pods.domain,
            topologies=self.topologies,
            readers=readers,
            devices=devices,
            domains=self.hypernodes.labels_of,
            trouble=trouble,
        )
        self.hypernodes.on_move(self._nodes_moved)
        self.events = PodEvents(candidate)
        self.groups = PodGroups(api, tiers=lambda: self.hypernodes.tiers)
        queue_of = labelled(gate_of(pods.domain), named_queue(self.namespaces, pods.domain))
        gates = Gates(
            self.cluster,
            queue_of,
            clock,
            queues,
            reserve_after_s=reserve_after_s,
        )
        self.turns = TurnKeeper(
            gates,
            queue_of,
            self.mirror,
            self.pods,
            self.nodes,
            self.namespaces,
            self.groups,
            candidate,
            asked,
            domain=pods.domain,
            tell=self.events.tell,
            at_once=lambda namespace: self.bindings is not None and self.bindings.gate.covers(namespace),
        )
        self.claims = None if not claims else self._claimed(api, devices, pods.domain, scheduler, trouble)
        self.bindings = None if bindings is None else self._bound(api, bindings, pods, readers, trouble)
        gate = None if self.bindings is None else self.bindings.gate
        self.doubts = Doubts(
            api, candidate, self.cluster, self.mirror, self.pods, pods.domain, gate=gate, trouble=trouble, clock=clock
        )
        self.plugins = DevicePlugins(
            api,
            candidate,
            self.nodes,
            self.pods,
            words=pods.hami,
            terms=plugins,
            tell=self.events.tell,
            look_again=self.mirror.describe_again,
            now=now,
        )
        self.extender = Extender(
            self.cluster,
            self.mirror,
            api,
            candidate,
            self.doubts,
            recent(asked),
            self.plugins,
            pods.domain,
            self.events.tell,
            gate,
            nothing_claimed if self.claims is None else self.claims.mirror.claimed,
            self.budgets.objects.values,
        )
        self._asked = asked
        self.sweep = None
        if cleanup_delay_s is not None:
            vanished = VanishedCards(cleanup_delay_s)
            self.sweep = Sweep(
                candidate,
                self.nodes,
                self.pods,
                readers,
                vanished,
                self.events.tell,
                domain=pods.domain,
                trouble=trouble,
            )
        if self.bindings is not None:
            self.bindings.store.unready = lambda: self.extender.unready

    def _nodes_moved(self, names: Collection[str]) -> None:
        for name in names:
            self.mirror.describe_again(name)
        self.groups.look_again()

    def _claimed(self, api: KubeApi, devices: Devices, domain: str, scheduler: str, trouble: Trouble) -> FrontClaims:
        decided = Claims(self.cluster, devices, selects)
        mirror = DeviceMirror(api, decided, self.nodes, self._describe_again, trouble)
        claiming = Claiming(
            api,
            self.candidate,
            decided,
            mirror,
            self.mirror,
            self.pods,
            domain=domain,
            scheduler=scheduler,
            may_have=lambda pod, uid: None if self.bindings is None else self.bindings.gate.whole_cards(pod, uid),
            tell=self.events.tell,
            trouble=trouble,
        )
        return FrontClaims(mirror, claiming)

    def _describe_again(self, node: str) -> None:
        """A driver tells of other cards of a node."""
        self.mirror.describe_again(node)
        if self.bindings is not None:
            self.bindings.store.look_again(node)

    def _bound(
        self,
        api: KubeApi,
        terms: BindingTerms,
        pods: PodSettings,
        readers: Sequence[CardReader],
        trouble: Trouble,
    ) -> FrontBindings:
        sources = Sources(self.nodes, self.pods, self.namespaces)
        return FrontBindings.of(api, self.candidate, self.cluster, sources, terms, pods, readers, trouble)

    async def run(self) -> None:
        """Follow the cluster, and try to lead it."""
        async with asyncio.TaskGroup() as tasks:
            for informer in (*self._informers, self.namespaces, self.budgets):
                tasks.create_task(informer.run())
            tasks.create_task(self.candidate.run())
            tasks.create_task(self.events.run())
            tasks.create_task(self.doubts.run())
            if self.sweep is not None:
                tasks.create_task(self.sweep.run())
            if self.bindings is not None:
                for each in self.bindings.store.informers:
                    tasks.create_task(each.run())
                tasks.create_task(self.bindings.upkeep.run())
            tasks.create_task(self.groups.run())
            tasks.create_task(self.hypernodes.run())
            tasks.create_task(self.turns.run())
            if self.claims is not None:
                tasks.create_task(self.claims.mirror.run())
                tasks.create_task(self.claims.claiming.run())
            tasks.create_task(self.plugins.run())
            tasks.create_task(self._recover())

    @property
    def _informers(self) -> tuple[Informer[Node] | Informer[Pod] | Informer[Object] | Informer[ResourceQuota], ...]:
        """Those that nothing is decided without."""
        return (self.nodes, self.pods, *(each for each in (self.topologies, self.quotas) if each is not None))

    async def let_go(self) -> None:
        """Let another one lead at once; nothing may be asked or written any more.

        While a bind is in doubt, or one of an earlier term may be, the lease runs out: the next leader sees to it.
        """
        if self.doubts.quiet and self.mirror.term == self.candidate.epoch:
            await self.candidate.release()

    async def _recover(self) -> None:
        for informer in self._informers:
            await informer.wait_synced()
        if self.claims is not None:
            await self.claims.mirror.wait_synced()
        self.mirror.recover()
        gc.freeze()  # what was read stays: looking for garbage among 50,000 pods stops everything for a second
        while True:
            await self._begin(await self.candidate.elected())
            await asyncio.sleep(_LOOK_S)

    async def _begin(self, epoch: int) -> None:
        """Begin a term with all that was bound before it: a watch may be behind what another leader wrote.

        A leader that did not let go of its own accord may have sent binds that are still to come.
        """
        if self.mirror.term == epoch:
            return
        try:
            await self.pods.catch_up()
            if not self.candidate.handed_over:
                await self.doubts.begin(epoch, [pod for pod in self.pods.objects.values() if self._may_be_bound(pod)])
            self.candidate.check(epoch)
            if self.claims is not None:
                await self.claims.mirror.catch_up()
        except UllageError:
            return  # the informer says what is wrong; until it is over nothing is decided
        self.turns.begin()
        self.mirror.term = epoch
        if self.bindings is not None:
            self.bindings.store.wake()

    def _may_be_bound(self, pod: Pod) -> bool:
        if pod.spec.node_name or pod.finished or pod.spec.scheduling_gates:  # nobody is asked about those with gates
            return False
        try:
            return self._asked(pod.document) is not None
        except InvalidRequest:
            return True
