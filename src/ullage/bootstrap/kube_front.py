"""The wiring of a Kubernetes front: which part follows and calls which."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ullage.core.placing.rules import Rules
from ullage.kube.bindings.front import BindingTerms, FrontBindings
from ullage.kube.bindings.store import Sources
from ullage.kube.claims.claiming import Claiming
from ullage.kube.claims.devices import DeviceMirror
from ullage.kube.client.api import ALL, KubeApi, Selection
from ullage.kube.client.lease import Candidate, clock_s
from ullage.kube.device_plugins import PLAIN_TERMS, DevicePlugins, PluginTerms
from ullage.kube.disruption import report_unreadable
from ullage.kube.events import EventRecorder
from ullage.kube.extender import Extender, nothing_claimed
from ullage.kube.followed import Followed
from ullage.kube.front import Front, FrontClaims
from ullage.kube.leader_label import LeaderLabel
from ullage.kube.machines import OnError
from ullage.kube.mirror import Mirror
from ullage.kube.nodes import CardReader
from ullage.kube.pools import CardPools
from ullage.kube.preemption import Preemptor
from ullage.kube.queues.admission import AdmissionController
from ullage.kube.queues.hypernodes import HyperNodes
from ullage.kube.queues.pod_groups import PodGroups
from ullage.kube.recent import recent
from ullage.kube.resource_quotas import NamespaceQuotas
from ullage.kube.sweep import Sweep
from ullage.kube.takeover import Takeover
from ullage.kube.unconfirmed import UnconfirmedBinds
from ullage.kube.webhook.admission import named_queue
from ullage.model.card_driver import NVIDIA, CardDriver
from ullage.model.card_figures import SHIPPED_FIGURES, Figures
from ullage.model.card_pool import PoolRule
from ullage.model.claim import Request
from ullage.model.queue import Queue
from ullage.service.claims import Claims
from ullage.service.cluster import Cluster
from ullage.service.devices import Devices
from ullage.service.gates import RESERVE_AFTER_S, Gates
from ullage.service.queue_holdings import labelled
from ullage.service.vanished_cards import VanishedCards
from ullage.wire.dialect import PLAIN_SETTINGS, PodReader, PodSettings
from ullage.wire.document import Document
from ullage.wire.dra.selector import selects
from ullage.wire.pod import ReadPod
from ullage.wire.pod.gate import gate_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """The settings of a front: which objects of the cluster count, and how.

    `machines` are the nodes that count, `readers` read their cards, `figures` are the capacity of card models, `pools`
    the rules of pools for nodes that do not name the pools of their cards. `topologies`: whether the cluster has
    Numatopology objects, `resource_quotas`: whether those count; then nothing is decided before they are known.
    `bindings`: the terms of bindings of applications to cards; None without them. `cleanup_delay_s`: seconds after the
    start in which pods with missing cards are not evicted; None for ever. `queues` are the configured queues of pods
    that wait for admission; room is reserved for a pod after `reserve_after_s`. `claims`: whether ResourceClaims
    count, where the cluster has them; claims of gated pods of `scheduler` are allocated here. `preemption`: whether
    pods are evicted for others of higher priority where kube-scheduler cannot see that it would help.
    """

    pods: PodSettings = PLAIN_SETTINGS
    readers: Sequence[CardReader] = ()
    figures: Figures = SHIPPED_FIGURES
    pools: tuple[PoolRule, ...] = ()
    machines: Selection = ALL
    topologies: bool = False
    resource_quotas: bool = False
    bindings: BindingTerms | None = None
    cleanup_delay_s: float | None = None
    queues: Sequence[Queue] = ()
    reserve_after_s: float = RESERVE_AFTER_S
    preemption: bool = True
    claims: bool = True
    card_drivers: Sequence[CardDriver] = (NVIDIA,)
    scheduler: str = "ullage"
    plugins: PluginTerms = PLAIN_TERMS


PLAIN = FrontSettings()


def make_front(
    api: KubeApi,
    candidate: Candidate,
    rules: Rules,
    settings: FrontSettings = PLAIN,
    *,
    clock: Callable[[], float] = clock_s,
    now: Callable[[], float] = time.time,
    on_error: OnError = lambda _kind, _name, _error: None,
) -> Front:
    """Return a front that runs nothing yet. `clock` is in seconds and monotonic; `now` is the time since 1970.

    Parts are notified of an object in the order in which they are made: the mirror comes before all parts that read
    its books.
    """
    pods, domain, asked = settings.pods, settings.pods.domain, PodReader(settings.pods)
    cluster = Cluster(rules, clock, now)
    followed = Followed.of(api, settings.machines, topologies=settings.topologies, quotas=settings.resource_quotas)
    quotas = None if followed.quotas is None else NamespaceQuotas(cluster, followed.quotas, pods.hami, on_error)
    report_unreadable(followed.budgets, on_error)
    devices = Devices(cluster, settings.card_drivers, clock=clock, trouble=on_error)
    readers = (*settings.readers, lambda node: devices.cards_on(node.metadata.name))
    events = EventRecorder(candidate)
    hypernodes = HyperNodes(api, followed.nodes, on_error)
    mirror = Mirror(
        cluster,
        followed.nodes,
        followed.pods,
        asked,
        domain=domain,
        topologies=followed.topologies,
        readers=readers,
        devices=devices,
        domains=hypernodes.labels_of,
        figures=settings.figures,
        pools=CardPools(domain, settings.pools),
        on_error=on_error,
        record_event=events.record,
    )
    bindings = None
    if settings.bindings is not None:
        sources, terms = Sources(followed.nodes, followed.pods, followed.namespaces), settings.bindings
        bindings = FrontBindings.of(
            api, candidate, cluster, sources, terms, asked, readers, devices.claimed, events.record, on_error
        )
    gate = None if bindings is None else bindings.gate
    groups = PodGroups(api, tiers=lambda: hypernodes.tiers)
    hypernodes.on_move(_moving(mirror, groups))
    queue_of = labelled(gate_of(domain), named_queue(followed.namespaces, domain))
    admission = AdmissionController(
        Gates(cluster, queue_of, clock, settings.queues, reserve_after_s=settings.reserve_after_s),
        queue_of,
        mirror,
        followed.pods,
        followed.nodes,
        followed.namespaces,
        groups,
        candidate,
        asked,
        domain=domain,
        record_event=events.record,
        at_once=lambda namespace: gate is not None and gate.covers(namespace),
    )
    claims = None
    if settings.claims:
        decided = Claims(cluster, devices, selects)
        described = _describing(mirror, bindings)
        devices_there = DeviceMirror(
            api, decided, followed.nodes, described, on_error, queue_key=gate_of(domain), record_event=events.record
        )
        claiming = Claiming(
            api,
            candidate,
            decided,
            devices_there,
            mirror,
            followed.pods,
            domain=domain,
            scheduler=settings.scheduler,
            may_have=lambda pod: None if gate is None else gate.whole_cards(pod.document, pod.metadata.uid),
            asks=_requesting(asked),
            in_order=admission.gates.in_order,
            reserve=admission.gates.keep,
            record_event=events.record,
            on_error=on_error,
        )
        claims = FrontClaims(devices_there, claiming)
    unconfirmed = UnconfirmedBinds(
        api, candidate, cluster, mirror, followed.pods, domain, gate=gate, on_error=on_error, clock=clock
    )
    plugins = DevicePlugins(
        api,
        candidate,
        followed.nodes,
        followed.pods,
        words=pods.hami,
        terms=settings.plugins,
        record_event=events.record,
        look_again=mirror.describe_again,
        now=now,
    )
    preemptor = None
    if settings.preemption:
        preemptor = Preemptor(
            cluster,
            mirror,
            candidate,
            followed.pods,
            followed.nodes,
            followed.budgets.objects.values,
            asked,
            events.record,
            domain=domain,
            clock=clock,
            on_error=on_error,
        )
    extender = Extender(
        cluster,
        mirror,
        api,
        candidate,
        unconfirmed,
        recent(asked),
        plugins,
        domain,
        events.record,
        gate,
        nothing_claimed if claims is None else claims.mirror.claimed,
        followed.budgets.objects.values,
        preemptor,
    )
    if bindings is not None:
        bindings.store.unready = lambda: extender.unready
    begin = _beginning(admission, preemptor, bindings, mirror, claims)
    takeover = Takeover(
        candidate, mirror, unconfirmed, followed, None if claims is None else claims.mirror, asked, begin
    )
    sweep = None
    if settings.cleanup_delay_s is not None:
        vanished = VanishedCards(settings.cleanup_delay_s)
        sweep = Sweep(candidate, mirror, followed.pods, vanished, events.record, domain=domain, on_error=on_error)
    return Front(
        read_pod=asked,
        candidate=candidate,
        cluster=cluster,
        followed=followed,
        mirror=mirror,
        takeover=takeover,
        unconfirmed=unconfirmed,
        plugins=plugins,
        extender=extender,
        events=events,
        admission=admission,
        groups=groups,
        hypernodes=hypernodes,
        leader_label=LeaderLabel(candidate, mirror, followed.pods, on_error=on_error),
        quotas=quotas,
        claims=claims,
        bindings=bindings,
        preemptor=preemptor,
        sweep=sweep,
    )


def _requesting(read: ReadPod) -> Callable[[Document], Request | None]:
    """Return a function that gives the request of a pod for cards."""

    def requested(pod: Document) -> Request | None:
        found = read(pod)
        return None if found is None else found.request

    return requested


def _moving(mirror: Mirror, groups: PodGroups) -> Callable[[Collection[str]], None]:
    """Return the handler for nodes whose domains change."""

    def moved(names: Collection[str]) -> None:
        for name in names:
            mirror.describe_again(name)
        groups.look_again()

    return moved


def _describing(mirror: Mirror, bindings: FrontBindings | None) -> Callable[[str], None]:
    """Return the handler for a driver's change of a node's cards."""

    def described(node: str) -> None:
        mirror.describe_again(node)
        if bindings is not None:
            bindings.store.look_again(node)

    return described


def _beginning(
    admission: AdmissionController,
    preemptor: Preemptor | None,
    bindings: FrontBindings | None,
    mirror: Mirror,
    claims: FrontClaims | None,
) -> Callable[[], None]:
    """Return the handler for the start of a term."""

    def begun() -> None:
        admission.begin()
        if preemptor is not None:
            preemptor.begin()
        if bindings is not None:
            bindings.store.wake()
        mirror.report_again()
        if claims is not None:
            claims.mirror.report_again()

    return begun
