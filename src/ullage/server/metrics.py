"""Prometheus metrics, read from the state at each scrape.

A thread writes the samples of all nodes and cards from a snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ullage.model.allocation import AllocationState
from ullage.model.resources import DIMENSIONS
from ullage.model.task import TaskState
from ullage.server.answers import Answers
from ullage.server.snapshot import StateSnapshot
from ullage.service.service import UllageService
from ullage.wire.catalog import QueueBody
from ullage.wire.node import GpuBody, NodeBody

EVENT_COUNTERS = (
    ("ullage_allocations", "allocation.bound", "Bound requests"),
    ("ullage_allocation_releases", "allocation.freed", "Requests that freed their cards"),
    ("ullage_allocation_expiries", "allocation.expired", "Reservations that expired without a commit"),
    ("ullage_nominations", "allocation.nominated", "Requests for which victims were evicted"),
    ("ullage_placement_mismatches", "allocation.mismatch", "Reports of a node with other ids for an owner than bound"),
    ("ullage_preemptions", "allocation.preempted", "Requests that were evicted for others"),
    (
        "ullage_topology_errors",
        "node.topology-incomplete",
        "Reports of machines with a refused or incomplete topology",
    ),
)
"""Counters, each with the kind of event that it counts."""

UNITS = ("cpu_milli", "memory_bytes", "gpu_milli")


class ServiceCollector(Collector):
    """The service as metric families."""

    def __init__(self, service: UllageService, answers: Answers) -> None:
        self._service = service
        self._answers = answers

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        yield from self.of_service()
        yield from _of_snapshot(self._answers.snapshot())

    def of_service(self) -> Iterator[Metric]:
        """Yield all families but those of each node, card and queue."""
        service = self._service
        sessions = service.state.sessions.values()
        tasks = {state.value: sum(record.counts[state] for record in sessions) for state in TaskState}
        yield _gauge("ullage_tasks", "Tasks of known sessions by state", "state", tasks)
        yield CounterMetricFamily("ullage_cycles", "Scheduling cycles run", value=service.loop.cycles)
        yield from self._requests()
        yield from self._room()
        waiting = Counter(record.waiting_for.value for record in sessions if record.open and record.waiting_for)
        meaning = "Open sessions that want more, by reason"
        yield _gauge("ullage_sessions_waiting", meaning, "reason", dict(sorted(waiting.items())))

    def _requests(self) -> Iterator[Metric]:
        service = self._service
        for name, kind, meaning in EVENT_COUNTERS:
            yield CounterMetricFamily(name, f"{meaning}, since the start", value=service.events.counts[kind])
        refused = CounterMetricFamily(
            "ullage_allocation_refusals", "Requests and changes of them that were refused, by reason", labels=["code"]
        )
        for code, count in sorted(service.allocations.refused.items()):
            refused.add_metric([code.value], count)
        yield refused
        adjusted = CounterMetricFamily(
            "ullage_allocation_adjustments", "Changes of the amounts of requests", labels=["direction"]
        )
        for direction, count in service.allocations.adjusted.items():
            adjusted.add_metric([direction], count)
        yield adjusted
        states = Counter(allocation.state for allocation in service.allocations.all())
        held = {state.value: states[state] for state in AllocationState if state is not AllocationState.FOREIGN}
        yield _gauge("ullage_requests", "Requests that hold cards, by state", "state", held)
        meaning, late = (
            "Bound owners that a reporting node has not reported in time",
            service.observations.unconfirmed(),
        )
        yield GaugeMetricFamily("ullage_placements_unconfirmed", meaning, len(late))
        foreign = {held.node: len(held.gpus) for held in service.observations.foreign()}
        yield _gauge("ullage_foreign_gpus", "Cards with unknown owners", "node", foreign)

    def _room(self) -> Iterator[Metric]:
        room = self._answers.room()
        idle = {each.model or "": each.idle_milli for each in room.models}
        yield _gauge("ullage_idle_milli", "Thousandths of cards that are idle", "model", idle)
        meaning = "Expected thousandths of idle cards that no task of the learned workload can use"
        fragments = {each.model or "": each.fragments_milli for each in room.models if each.fragments_milli is not None}
        yield _gauge("ullage_fragmentation_milli", meaning, "model", fragments)
        fits = {str(cards): units for cards, units in room.fits.items()}
        yield _gauge("ullage_fits", "Requests for so many whole cards that fit now", "cards", fits)
        yield CounterMetricFamily("ullage_learned_tasks", "Tasks that the workload is learned from", value=room.tasks)


def _gauge(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a gauge with one label, from its values by that label."""
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _of_snapshot(snapshot: StateSnapshot) -> Iterator[Metric]:
    yield from _queues(snapshot.queues())
    yield from _nodes(snapshot.nodes())
    yield from _gpus(snapshot.gpus())


def _queues(queues: Sequence[QueueBody]) -> Iterator[Metric]:
    shares = {queue.name: queue.share for queue in queues}
    yield _gauge("ullage_queue_share", "Dominant share of a queue, 0 to 1", "queue", shares)
    pending = {queue.name: queue.pending for queue in queues}
    yield _gauge("ullage_queue_pending_tasks", "Tasks that wait in a queue", "queue", pending)


def _nodes(nodes: Sequence[NodeBody]) -> Iterator[Metric]:
    for what in ("allocatable", "held"):
        meaning = f"Resources of a node ({what}): cpu and gpu in thousandths, memory in bytes"
        family = GaugeMetricFamily(f"ullage_node_{what}", meaning, labels=["node", "resource"])
        for node in nodes:
            for name, unit in zip(DIMENSIONS, UNITS, strict=True):
                family.add_metric([node.name, name], getattr(getattr(node, what), unit))
        yield family


def _gpus(gpus: Sequence[GpuBody]) -> Iterator[Metric]:
    labels = ["node", "gpu", "uuid", "resource"]
    meaning = "of a card: compute in GFLOPS, vram in bytes, card as a fraction"
    capacity = GaugeMetricFamily("ullage_gpu_capacity", f"Capacity {meaning}", labels=labels)
    held = GaugeMetricFamily("ullage_gpu_held", f"Held amount {meaning}", labels=labels)
    for gpu in gpus:
        card = [gpu.node, str(gpu.index), gpu.uuid]
        for name, whole, free in (
            ("card", 1, gpu.free.fraction),
            ("compute", gpu.compute_gflops, gpu.free.compute_gflops),
            ("vram", gpu.vram_bytes, gpu.free.vram_bytes),
        ):
            if whole is not None and free is not None:
                capacity.add_metric([*card, name], whole)
                held.add_metric([*card, name], whole - free)
    yield capacity
    yield held


def page(service: UllageService, answers: Answers) -> Callable[[], bytes]:
    """Return a function for a thread that writes the page for Prometheus of the current state."""
    snapshot = answers.snapshot()
    families = [*ServiceCollector(service, answers).of_service()]
    return lambda: _text([*families, *_of_snapshot(snapshot)])


def _text(families: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
