"""The construction of a Kubernetes front from its parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from ullage.core.placing.rules import Rules
from ullage.kube.bindings.conflicting_claims import ConflictingClaims
from ullage.kube.bindings.filter import BindingFilter
from ullage.kube.bindings.store import KubeBindings
from ullage.kube.bindings.terms import BindingTerms
from ullage.kube.bindings.upkeep import Upkeep
from ullage.kube.claims.claiming import Claiming
from ullage.kube.claims.devices import DeviceMirror
from ullage.kube.claims.making import ClaimMaking
from ullage.kube.client.api import ALL, KubeApi, Selection
from ullage.kube.client.lease import Candidate, clock_s
from ullage.kube.context import KubeContext
from ullage.kube.controller import OnError
from ullage.kube.device_plugins import PLAIN_TERMS, DevicePlugins, PluginTerms
from ullage.kube.events import EventRecorder
from ullage.kube.evicting.disruption import report_unreadable
from ullage.kube.evicting.preemption import Preemptor
from ullage.kube.evicting.queue_preemption import QueuePreemption
from ullage.kube.evicting.sweep import Sweep
from ullage.kube.extender.extender import Extender
from ullage.kube.extender.filtering import OFFERED_NODES
from ullage.kube.followed import Followed
from ullage.kube.front import Front, FrontBindings, FrontClaims, Running
from ullage.kube.leader.leader_label import LeaderLabel
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.kube.leader.takeover import Takeover
from ullage.kube.leader.unconfirmed import UnconfirmedBinds
from ullage.kube.mirror.cards import PublishedCards
from ullage.kube.mirror.mirror import Mirror
from ullage.kube.mirror.nodes import CardReader, CardSources
from ullage.kube.mirror.pools import CardPools
from ullage.kube.mirror.repelling_pods import RepellingPods
from ullage.kube.mirror.unbound_choices import CHOICE_S
from ullage.kube.mirror.zone_records import NrtOrder, ZoneRecords
from ullage.kube.queues.admission import AdmissionController
from ullage.kube.queues.direct_binds import DirectBinds
from ullage.kube.queues.hypernodes import HyperNodes
from ullage.kube.queues.pod_groups import PodGroups
from ullage.kube.resource_quotas import ResourceQuotas
from ullage.kube.webhook.admission import named_queue
from ullage.kube.webhook.removed_annotations import RemovedAnnotations
from ullage.model.card_driver import NVIDIA, CardDriver
from ullage.model.card_figures import SHIPPED_FIGURES, Figures
from ullage.model.card_pool import PoolRule
from ullage.model.queue import Queue
from ullage.service.bindings import Bindings
from ullage.service.claims import Claims
from ullage.service.cluster import Cluster
from ullage.service.devices import Devices
from ullage.service.gates import RESERVE_AFTER_S, Gates, GateTerms
from ullage.service.queue_holdings import labelled
from ullage.service.vanished_cards import VanishedCards
from ullage.wire.dialect import PLAIN_SETTINGS, PodSettings
from ullage.wire.dra.selector import selects
from ullage.wire.pod.gate import gate_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """The settings of a front: which objects of the cluster count, and how.

    `machines` are the nodes that count, `readers` read their cards, `figures` are the capacity of card models, `pools`
    the rules of pools for nodes that do not name the pools of their cards. `topologies`: whether the cluster has
    Numatopology objects, `noderesourcetopologies`: whether NodeResourceTopology objects are read, and whether they come
    before those, `pessimistic_zones`: whether pods that such an object does not include count in all zones,
    `resource_quotas`: whether those count; then nothing is decided before they are known.
    `bindings`: the terms of bindings of applications to cards; None without them. `cleanup_delay_s`: seconds after the
    start in which pods with missing cards are not evicted; None for ever. `queues` are the configured queues of pods
    that wait for admission; room is reserved for a pod after `reserve_after_s`. `claims`: whether ResourceClaims
    count, where the cluster has them; claims of gated pods of `scheduler` are allocated here, and with
    `claims_from_words` those that the webhook made pods refer to are created, of that DeviceClass. `preemption`:
    whether pods are evicted for others of higher priority where kube-scheduler cannot see that it would help.
    `offered_nodes` are the most nodes among which kube-scheduler chooses (0: all). `choice_s`: for how long the cards
    are held that another scheduler chose for a pod which it has not bound.
    """

    pods: PodSettings = PLAIN_SETTINGS
    readers: Sequence[CardReader] = ()
    figures: Figures = SHIPPED_FIGURES
    pools: tuple[PoolRule, ...] = ()
    machines: Selection = ALL
    topologies: bool = False
    noderesourcetopologies: NrtOrder = NrtOrder.OFF
    pessimistic_zones: bool = False
    resource_quotas: bool = False
    bindings: BindingTerms | None = None
    cleanup_delay_s: float | None = None
    queues: Sequence[Queue] = ()
    reserve_after_s: float = RESERVE_AFTER_S
    preemption: bool = True
    offered_nodes: int = OFFERED_NODES
    claims: bool = True
    claims_from_words: str = ""
    card_drivers: Sequence[CardDriver] = (NVIDIA,)
    scheduler: str = "ullage"
    plugins: PluginTerms = PLAIN_TERMS
    choice_s: float = CHOICE_S


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
    events = EventRecorder(candidate)
    context = _context(api, candidate, rules, settings, events=events, clock=clock, now=now, on_error=on_error)
    quotas = _quotas(context)
    report_unreadable(context.followed.budgets, on_error)
    devices = Devices(context.cluster, settings.card_drivers, clock=clock, on_error=on_error)
    hypernodes = HyperNodes(context)
    mirror = _mirror(context, settings, devices, hypernodes)
    term = ReadyTerm(candidate, mirror)
    term.subscribe(mirror.report_again)
    bindings = _bindings(context, settings, term, devices)
    allowed = None if bindings is None else bindings.filter
    groups = PodGroups(api, tiers=lambda: hypernodes.tiers, tier_names=lambda: hypernodes.tier_names)
    hypernodes.subscribe(mirror.machines.describe_again, groups.look_again)
    admission = _admission(context, settings, term, groups=groups, allowed=allowed)
    claims = _claims(context, settings, term, devices=devices, gates=admission.gates, allowed=allowed)
    device_mirror = None if claims is None else claims.mirror
    unconfirmed = UnconfirmedBinds(context, term, allowed)
    plugins = DevicePlugins(context, settings.plugins, mirror.machines.describe_again)
    preemption = _Preemption.of(context, term, admission.gates) if settings.preemption else None
    preemptor = None if preemption is None else preemption.preemptor
    extender = Extender(
        *(context, term, unconfirmed, plugins),
        binding_filter=allowed,
        claims=device_mirror,
        preemptor=preemptor,
        offered_nodes=settings.offered_nodes,
    )
    direct = DirectBinds(context, term, admission, extender, plugins=plugins)
    RemovedAnnotations(context, term)
    takeover = Takeover(context, term, unconfirmed, device_mirror)
    parts: list[Running] = [*context.followed.all, *groups.informers, hypernodes.informer, candidate, takeover]
    some = (unconfirmed, plugins, events, LeaderLabel(context, term), hypernodes, mirror.choices)
    parts += [*admission.controllers, direct.controller, *(each.controller for each in some)]
    parts += [*_parts(claims, bindings, preemption, _sweep(context, settings, term)), *mirror.machines.informers]
    return Front(
        context=context,
        parts=parts,
        mirror=mirror,
        takeover=takeover,
        unconfirmed=unconfirmed,
        plugins=plugins,
        extender=extender,
        events=events,
        admission=admission,
        quotas=quotas,
        claims=claims,
        bindings=bindings,
        preemptor=preemptor,
    )


def _sweep(context: KubeContext, settings: FrontSettings, term: ReadyTerm) -> Sweep | None:
    delay_s = settings.cleanup_delay_s
    return None if delay_s is None else Sweep(context, term, VanishedCards(delay_s))


def _context(
    api: KubeApi,
    candidate: Candidate,
    rules: Rules,
    settings: FrontSettings,
    *,
    events: EventRecorder,
    clock: Callable[[], float],
    now: Callable[[], float],
    on_error: OnError,
) -> KubeContext:
    return KubeContext(
        api=api,
        candidate=candidate,
        cluster=Cluster(rules, clock, now),
        followed=Followed.of(api, settings.machines, topologies=settings.topologies, quotas=settings.resource_quotas),
        pod_settings=settings.pods,
        scheduler=settings.scheduler,
        record_event=events.record,
        on_error=on_error,
        clock=clock,
        now=now,
    )


def _mirror(context: KubeContext, settings: FrontSettings, devices: Devices, hypernodes: HyperNodes) -> Mirror:
    cards = _cards(context, settings, devices)
    records = ZoneRecords(context, settings.noderesourcetopologies, pessimistic=settings.pessimistic_zones)
    return Mirror(
        context,
        cards,
        devices=devices,
        domains=hypernodes.labels_of,
        records=records,
        choice_s=settings.choice_s,
    )


def _cards(context: KubeContext, settings: FrontSettings, devices: Devices) -> CardSources:
    readers: tuple[CardReader, ...] = (*settings.readers, PublishedCards(devices))
    return CardSources(
        readers, settings.figures, CardPools(context.domain, settings.pools), context.pod_settings.families
    )


def _quotas(context: KubeContext) -> ResourceQuotas | None:
    found = context.followed.quotas
    if found is None:
        return None
    return ResourceQuotas(context.cluster, found, context.pod_settings.families, context.on_error)


def _bindings(context: KubeContext, settings: FrontSettings, term: ReadyTerm, devices: Devices) -> FrontBindings | None:
    if settings.bindings is None:
        return None
    conflicting = ConflictingClaims(context, devices.claimed)
    store = KubeBindings(context, settings.bindings, term, conflicting)
    allowed = BindingFilter(context, store, settings.bindings.scope)
    upkeep = Upkeep(context, store, term, allowed, conflicting_claims=conflicting)
    return FrontBindings(store, allowed, upkeep, use=Bindings(store), conflicting_claims=conflicting)


def _admission(
    context: KubeContext,
    settings: FrontSettings,
    term: ReadyTerm,
    *,
    groups: PodGroups,
    allowed: BindingFilter | None,
) -> AdmissionController:
    queue_of = labelled(gate_of(context.domain), named_queue(context.followed.namespaces, context.domain))
    terms = GateTerms(reserve_after_s=settings.reserve_after_s)
    repelling = RepellingPods(context)
    gates = Gates(context.cluster, queue_of, context.clock, settings.queues, terms=terms, repelling=repelling)

    def at_once(namespace: str) -> bool:
        return allowed is not None and allowed.covers(namespace)

    return AdmissionController(context, term, gates, queue_of=queue_of, groups=groups, at_once=at_once)


def _claims(
    context: KubeContext,
    settings: FrontSettings,
    term: ReadyTerm,
    *,
    devices: Devices,
    gates: Gates,
    allowed: BindingFilter | None,
) -> FrontClaims | None:
    if not settings.claims:
        return None
    decided = Claims(context.cluster, devices, selects)
    devices_seen = DeviceMirror(context, decided, term.mirror.machines.describe_again)
    term.subscribe(devices_seen.report_again)
    claiming = Claiming(
        context, term, devices_seen, decided, gates=gates, scheduler=settings.scheduler, binding_filter=allowed
    )
    device_class = settings.claims_from_words
    making = ClaimMaking(context, term, device_class, settings.scheduler) if device_class else None
    return FrontClaims(devices_seen, claiming, making)


class _Preemption(NamedTuple):
    """What makes room for pods: for those that kube-scheduler asks about, and for those that wait in queues."""

    preemptor: Preemptor
    of_queues: QueuePreemption

    @classmethod
    def of(cls, context: KubeContext, term: ReadyTerm, gates: Gates) -> Self:
        preemptor = Preemptor(context, term)
        return cls(preemptor, QueuePreemption(context, term, gates, preemptor))


def _parts(
    claims: FrontClaims | None, bindings: FrontBindings | None, preemption: _Preemption | None, sweep: Sweep | None
) -> Iterator[Running]:
    if claims is not None:
        yield claims.mirror
        yield claims.claiming.controller
    if claims is not None and claims.making is not None:
        yield claims.making.controller
    if bindings is not None:
        yield from bindings.store.informers
        yield bindings.upkeep.controller
    if preemption is not None:
        yield preemption.preemptor.controller
        yield preemption.of_queues.controller
    if sweep is not None:
        yield sweep.controller
