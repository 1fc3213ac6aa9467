"""The records that exporters write of nodes: Numatopology and NodeResourceTopology, and which one counts for a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import StrEnum

from ullage.kube.client.informer import Added, Changed, Delta, Removed
from ullage.kube.client.kinds import NODE_RESOURCE_TOPOLOGIES
from ullage.kube.client.objects import Object
from ullage.kube.client.served import LateInformer
from ullage.kube.context import KubeContext
from ullage.kube.mirror.zone_usage import ZoneUsage
from ullage.model.error import Conflict, InvalidRequest
from ullage.model.node_record import NodeRecord
from ullage.model.topology import CPU, Topology
from ullage.wire.topology.noderesourcetopology import KIND as NRT
from ullage.wire.topology.noderesourcetopology import read_noderesourcetopology
from ullage.wire.topology.numatopology import KIND as NUMATOPOLOGY
from ullage.wire.topology.numatopology import read_numatopology


class NrtOrder(StrEnum):
    """Whether NodeResourceTopology objects are read, and which object counts for a node that has both kinds."""

    OFF = "off"
    SECOND = "second"
    FIRST = "first"


class ZoneRecords:
    """Follows both kinds of objects. Of a node with both, one counts as a whole; differences are reported.

    The object of the kind that comes second counts where the other kind is missing. An object that is deleted counts
    until there is another one, so that cards in use keep their names.
    """

    def __init__(self, context: KubeContext, order: NrtOrder = NrtOrder.OFF, *, pessimistic: bool = False) -> None:
        """`pessimistic`: pods that a record does not include count in all zones of their node."""
        self._on_error, self._domain = context.on_error, context.domain
        self._kinds = (NRT, NUMATOPOLOGY) if order is NrtOrder.FIRST else (NUMATOPOLOGY, NRT)
        self._read: dict[str, dict[str, NodeRecord]] = {NRT: {}, NUMATOPOLOGY: {}}
        self._deleted: set[tuple[str, str]] = set()
        """Kind and node of records whose object is gone."""
        self._reported: dict[str, str] = {}
        """The last reported difference of each node."""
        self._subscribers: list[Callable[[str], None]] = []
        self.by_node: dict[str, NodeRecord] = {}
        """The record that counts, by node."""
        if context.followed.topologies is not None:
            context.followed.topologies.subscribe(self._on_numatopology)
        self.informer: LateInformer[Object] | None = None
        """The informer of NodeResourceTopology objects; None if these are not read."""
        self.usage = None if order is NrtOrder.OFF else ZoneUsage(context, pessimistic=pessimistic)
        """What pods hold by zone where a record does not name them."""
        if order is not NrtOrder.OFF:
            self.informer = LateInformer(context.api, NODE_RESOURCE_TOPOLOGIES, self._on_nrt)

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with the name of each node whose record has changed."""
        self._subscribers.append(changed)

    async def wait_ready(self) -> None:
        """Return as soon as the objects are known, or it is known that there are none."""
        if self.informer is not None:
            await self.informer.wait_ready()

    def drop(self, node: str) -> None:
        """Forget the deleted objects of a node that is gone."""
        for kind in self._kinds:
            if (kind, node) in self._deleted:
                self._forget(kind, node)

    def _on_numatopology(self, delta: Delta[Object]) -> None:
        self._on_object(NUMATOPOLOGY, delta)

    def _on_nrt(self, delta: Delta[Object]) -> None:
        self._on_object(NRT, delta)

    def _on_object(self, kind: str, delta: Delta[Object]) -> None:
        match delta:
            case Removed(last):
                node = last.metadata.name
                self._deleted.add((kind, node))
                if any(node in self._read[other] for other in self._kinds if other != kind):
                    self._forget(kind, node)
                self._settle(node)
            case Added(new) | Changed(_, new):
                self._take(kind, new)

    def _take(self, kind: str, found: Object) -> None:
        node = found.metadata.name
        try:
            record, dropped = (
                read_numatopology(found.document, self._domain)
                if kind == NUMATOPOLOGY
                else read_noderesourcetopology(found.document)
            )
        except InvalidRequest as error:
            self._on_error(kind, node, error)
            return
        for sentence in dropped:
            self._on_error(kind, node, InvalidRequest(sentence))
        self._deleted.discard((kind, node))
        for other in self._kinds:
            if other != kind and (other, node) in self._deleted:
                self._forget(other, node)
        self._read[kind][node] = _continued(record, self._read[kind].get(node))
        self._settle(node)

    def _forget(self, kind: str, node: str) -> None:
        self._deleted.discard((kind, node))
        self._read[kind].pop(node, None)
        if self.by_node.get(node) is not None and not any(node in self._read[each] for each in self._kinds):
            del self.by_node[node]

    def _settle(self, node: str) -> None:
        """Choose the record that counts for a node, and report if the two differ in another way than before."""
        found = [self._read[kind][node] for kind in self._kinds if node in self._read[kind]]
        if not found:
            return
        counts, *others = found
        text = "; ".join(sentence for other in others for sentence in differences(counts.topology, other.topology))
        if text and text != self._reported.get(node):
            message = f"it differs from the {self._kinds[0]}, which counts: {text}"
            self._on_error(self._kinds[1], node, Conflict(message, code="topologies-differ"))
        self._reported[node] = text
        self.by_node[node] = counts
        for changed in self._subscribers:
            changed(node)


def _continued(record: NodeRecord, last: NodeRecord | None) -> NodeRecord:
    """Return a record after the one before it: an equal topology stays the same, and no usage frees nothing."""
    if last is None:
        return record
    if last.topology == replace(record.topology, observed_at=last.topology.observed_at):
        record = replace(record, topology=last.topology)
    return replace(record, use=last.use) if record.use is None else record


def differences(one: Topology, other: Topology) -> Iterator[str]:
    """Yield a sentence for each fact of zones that two records of a node state differently."""
    if one.zone_ids != other.zone_ids:
        yield f"zones {_listed(one.zone_ids)}, not {_listed(other.zone_ids)}"
        return
    if one.kubelet is not None and other.kubelet is not None:
        for name in ("policy", "scope"):
            here, there = getattr(one.kubelet, name), getattr(other.kubelet, name)
            if here != there:
                yield f"{name} {here}, not {there}"
    here, there = _cpus(one), _cpus(other)
    for zone in one.zone_ids if here and there else ():
        if here.get(zone, 0) != there.get(zone, 0):
            yield f"{here.get(zone, 0)} CPUs in zone {zone}, not {there.get(zone, 0)}"


def _listed(zones: tuple[int, ...]) -> str:
    return ",".join(map(str, zones)) or "none"


def _cpus(topology: Topology) -> dict[int, int]:
    """Return the number of CPUs of each zone; empty if it is unknown."""
    found = {zone.id: zone.amounts[CPU].total for zone in topology.zones if CPU in zone.amounts}
    for cpu in topology.cpus:
        if cpu.zone is not None:
            found[cpu.zone] = found.get(cpu.zone, 0) + 1
    return found
