"""Prometheus metrics of the front: calls are counted as they are answered, all else is collected at each scrape.

Collecting the cards is slow, a second for some thousands. It runs in a thread on a copy of the books, so that no
request waits for it.

Metrics that HAMi's scheduler also has keep its names and labels here, so that dashboards keep working: memory in bytes,
compute of a card in percent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from ullage.core.books.fleet import Fleet
from ullage.kube.front import Front
from ullage.kube.legacy_metrics import with_former_names
from ullage.kube.queues.admission import AdmissionController
from ullage.kube.resource_quotas import ResourceQuotas
from ullage.model.allocation import Allocation
from ullage.model.binding import BindingState
from ullage.model.gpu import Gpu
from ullage.model.quantity import PPM
from ullage.service.pages import written

MIB = 2**20
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CARD = ["node", "device_uuid", "device_index"]
_TYPED = [*_CARD, "device_type"]
_PERCENT = 100
_Named = Callable[[Iterator[Metric]], Iterator[Metric]]
"""Adds families under other names."""


class FrontMetrics:
    """`call` is the meter of the applications. `page` is what Prometheus scrapes."""

    def __init__(self, front: Front, *, legacy: bool = False) -> None:
        """With `legacy` the metrics of HAMi's scheduler also have their former names."""
        self._named: _Named = with_former_names if legacy else iter
        self._cluster, self._registry = front.cluster, CollectorRegistry(auto_describe=False)
        self._seconds = Histogram(
            "ullage_kube_call_seconds",
            "How long a question was answered for",
            ["verb"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._calls = Counter(
            "ullage_kube_calls", "Questions by their outcome: ok, or an error's code", ["verb", "code"],
            registry=self._registry,
        )  # fmt: skip
        self._registry.register(_Families(lambda: _front(front)))
        self._registry.register(_Families(lambda: _queues(front.admission)))
        if (quotas := front.quotas) is not None:
            self._registry.register(_Families(lambda: self._named(_quotas(quotas))))

    def call(self, verb: str, seconds: float, outcome: str) -> None:
        self._seconds.labels(verb).observe(seconds)
        self._calls.labels(verb, outcome).inc()

    async def page(self) -> bytes:
        books = _Books.of(self._cluster.allocator.fleet)
        return generate_latest(self._registry) + await written(lambda: _text(books, self._named))


class _Families(Collector):
    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families()


def _front(front: Front) -> Iterator[Metric]:
    """Yield the state of the front: whether it leads, and the age of its caches."""
    yield GaugeMetricFamily("ullage_kube_leader", "Whether this process leads", front.candidate.epoch is not None)
    yield GaugeMetricFamily("ullage_kube_ready", "Whether questions are answered", not front.extender.unready)
    age = GaugeMetricFamily(
        "ullage_kube_mirror_age_seconds", "Seconds since the API server last answered about this kind", labels=["kind"]
    )
    for kind, informer in (("nodes", front.nodes), ("pods", front.pods), ("namespaces", front.followed.namespaces)):
        age.add_metric([kind], informer.age_s)
    if front.claims is not None and front.claims.mirror.served:
        age.add_metric(["resourceclaims"], front.claims.mirror.claims.age_s)
    yield age
    yield CounterMetricFamily("ullage_kube_events_dropped", "Events on pods not written", front.events.dropped)
    yield GaugeMetricFamily("ullage_kube_binds_unconfirmed", "Binds of unknown outcome", front.unconfirmed.count)
    if front.preemptor is not None:
        evicted = front.preemptor.evicted
        yield CounterMetricFamily("ullage_kube_preempted", "Pods evicted for others of higher priority", evicted)
    refused = CounterMetricFamily(
        "ullage_kube_pods_refused",
        "Pods that kubelets refused although they seemed to fit",
        labels=["node", "reason"],
    )
    for labels, count in sorted(front.mirror.refused.items()):
        refused.add_metric(labels, count)
    yield refused
    held = front.cluster.allocator.fleet.ledger.values()
    yield GaugeMetricFamily("ullage_kube_pods", "Pods that hold cards", len(held))
    if front.claims is not None and front.claims.mirror.served:
        waiting = front.claims.claiming.waiting
        yield GaugeMetricFamily("ullage_kube_claims_waiting", "Pods whose claims are not allocated yet", waiting)
    ledger = None if front.bindings is None else front.bindings.store.store.now
    if front.bindings is not None and ledger is not None:
        rows = GaugeMetricFamily("ullage_kube_binding_rows", "Cards that applications have", labels=["state"])
        for state in (BindingState.BOUND, BindingState.DRAINING):
            rows.add_metric([state], sum(row.state is state for row in ledger.rows))
        yield rows
        found = len(front.bindings.conflicting_claims.now)
        meaning = "Cards that claims have and pods use, and that are bound to other applications"
        yield GaugeMetricFamily("ullage_kube_binding_conflicting_claims", meaning, found)


def _queues(admission: AdmissionController) -> Iterator[Metric]:
    """Yield for each queue how many pods wait, for how long, and what it holds."""
    waiting = GaugeMetricFamily("ullage_kube_queue_waiting", "Pods whose gate is closed", labels=["queue"])
    oldest = GaugeMetricFamily(
        "ullage_kube_queue_oldest_timestamp_seconds", "When the pod was made that waits longest", labels=["queue"]
    )
    share = GaugeMetricFamily(
        "ullage_kube_queue_share", "Dominant share when turns were decided last, 0 to 1", labels=["queue"]
    )
    waited = SummaryMetricFamily(
        "ullage_kube_queue_wait_seconds", "How long pods waited whose gate was opened", labels=["queue"]
    )
    returned = CounterMetricFamily(
        "ullage_kube_queue_not_placed", "Pods that were not placed in time after their turn", labels=["queue"]
    )
    for name, queue in admission.gates.figures().items():
        waiting.add_metric([name], queue.waiting)
        if queue.oldest is not None:
            oldest.add_metric([name], queue.oldest)
        share.add_metric([name], queue.share)
        waited.add_metric([name], count_value=queue.opened, sum_value=queue.waited_s)
        returned.add_metric([name], queue.returned)
    yield from (waiting, oldest, share, waited, returned)
    yield CounterMetricFamily(
        "ullage_kube_gate_writes_failed", "Writes of gates and reasons that failed", admission.failed
    )


def _quotas(quotas: ResourceQuotas) -> Iterator[Metric]:
    """Yield the ResourceQuotas of namespaces and their usage in HAMi's units: MiB, and percent of cards."""
    names = ["namespace", "quota_name"]
    used = GaugeMetricFamily(
        "hami_resource_quota_used", "What a namespace holds of a ResourceQuota", labels=[*names, "limit"]
    )
    limit = GaugeMetricFamily("hami_resource_quota_limit", "What a namespace may hold in all", labels=names)
    for namespace, each in quotas.figures():
        used.add_metric([namespace, each.resource, str(each.limit)], each.used)
        limit.add_metric([namespace, each.resource], each.limit)
    yield from (used, limit)


@dataclass(frozen=True, slots=True)
class _Books:
    """An immutable snapshot of the cards and their holders.

    For each card: its node, its GFLOPS and bytes (millionths where unknown), and how much of them is held.
    """

    cards: Sequence[Gpu]
    nodes: Sequence[str]
    compute: Sequence[int]
    compute_held: Sequence[int]
    vram: Sequence[int]
    vram_held: Sequence[int]
    card_of: Mapping[str, int]
    ledger: Sequence[Allocation]

    @classmethod
    def of(cls, fleet: Fleet) -> Self:
        compute, vram = fleet.compute_total, fleet.vram_total
        return cls(
            cards=fleet.cards,
            nodes=[fleet.nodes[row].name for row in fleet.card_row.tolist()],
            compute=compute.tolist(),
            compute_held=(compute - fleet.compute_free).tolist(),
            vram=vram.tolist(),
            vram_held=(vram - fleet.vram_free).tolist(),
            card_of=fleet.card_of,
            ledger=list(fleet.ledger.values()),
        )


def _text(books: _Books, named: _Named = iter) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(lambda: named(chain(_cards(books), _pods(books)))))
    return generate_latest(registry)


def _cards(books: _Books) -> Iterator[Metric]:
    """Yield the metrics of cards under HAMi's names. Unknown properties of a card are left out."""

    def family(name: str, meaning: str, labels: list[str]) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"hami_{name}", meaning, labels=labels)

    limit = family("gpu_memory_limit_bytes", "Memory of a card", _TYPED)
    cores = family("gpu_core_limit_ratio", "Compute of a card, in percent of it", _TYPED)
    taken = family("gpu_memory_allocated_bytes", "Memory of a card that is held", [*_TYPED, "device_cores"])
    busy = family("gpu_core_allocated_ratio", "Compute of a card that is held, in percent of it", _TYPED)
    users = family("gpu_shared_count", "Pods that have parts of a card, or all of it", _TYPED)
    part = family("node_gpu_memory_allocated_ratio", "Memory of a card that is held, from 0 to 1", _TYPED)
    overview = family(
        "node_gpu_overview", "Memory held of a card; its total is in the label device_memory_limit, in MiB",
        [*_TYPED, "device_cores", "device_memory_limit"],
    )  # fmt: skip
    holders: dict[str, int] = {}
    for allocation in books.ledger:
        for uuid in allocation.gpus:
            holders[uuid] = holders.get(uuid, 0) + 1
    for card, gpu in enumerate(books.cards):
        typed = [books.nodes[card], gpu.uuid, str(gpu.index), gpu.model or gpu.vendor or ""]
        cores.add_metric(typed, _PERCENT)
        busy.add_metric(typed, _percent(books.compute_held[card], books.compute[card]))
        users.add_metric(typed, holders.get(gpu.uuid, 0))
        if gpu.vram_bytes is not None:
            held = books.vram_held[card]
            limit.add_metric(typed, gpu.vram_bytes)
            taken.add_metric([*typed, str(_PERCENT)], held)
            part.add_metric(typed, held / gpu.vram_bytes)
            overview.add_metric([*typed, str(_PERCENT), str(gpu.vram_bytes // MIB)], held)
    yield from (limit, cores, taken, busy, users, part, overview)


def _pods(books: _Books) -> Iterator[Metric]:
    labels = ["namespace", "node", "pod", "device_uuid"]
    memory = GaugeMetricFamily("hami_vgpu_memory_allocated_bytes", "Memory of a card that a pod holds", labels=labels)
    cores = GaugeMetricFamily(
        "hami_vgpu_core_allocated_ratio", "Compute of a card that a pod holds, in percent of the card", labels=labels
    )
    instances = GaugeMetricFamily(
        "hami_node_gpu_mig_instance_info", "Slices of hardware that pods hold",
        labels=[*_CARD, "profile", "placement_start", "placement_size"],
    )  # fmt: skip
    for allocation in books.ledger:
        claim = allocation.claim
        if claim is None:
            continue
        for gpu, vram, ppm in _held(books, allocation):
            who = [claim.namespace, allocation.node, claim.pod, gpu.uuid]
            cores.add_metric(who, ppm * _PERCENT / PPM)
            if gpu.vram_bytes is not None:
                memory.add_metric(who, vram)
        for uuid, charge in zip(allocation.gpus, allocation.charges, strict=False):
            for slot in charge.slots if uuid in books.card_of else ():
                if slot.start is not None and slot.end is not None:
                    index = str(books.cards[books.card_of[uuid]].index)
                    place = [slot.template, str(slot.start), str(slot.end - slot.start)]
                    instances.add_metric([allocation.node, uuid, index, *place], 1)
    yield from (memory, cores, instances)


def _held(books: _Books, allocation: Allocation) -> Iterator[tuple[Gpu, int, int]]:
    """Yield each card with the bytes, and the millionths of its compute, that an allocation holds."""
    for place, uuid in enumerate(allocation.gpus):
        card = books.card_of.get(uuid)
        if card is None:
            continue
        vram, compute = books.vram[card], books.compute[card]
        if allocation.charges:
            charge = allocation.charges[place]
            yield books.cards[card], charge.vram, charge.compute * PPM // max(1, compute)
        else:
            yield books.cards[card], vram, PPM


def _percent(part: int, whole: int) -> float:
    return part * _PERCENT / whole if whole else 0.0
