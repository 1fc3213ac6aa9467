"""What pods outside the ledger hold by zone, on nodes whose NodeResourceTopology does not name its pods.

A record says how much of a zone was not available when it was written. The pods that are included in it are those of
its fingerprint, or without one the pods that ran when it was read. What the ledger has for these pods is not counted
twice. Of pods that came later the ledger has the predicted zones.

In pessimistic mode a prediction is not trusted: until a record has a fingerprint that matches the pods of the node,
each pod that came after the last one that did counts in all zones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ullage.kube.client.informer import Added, Changed, Delta, Removed
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.model.error import InvalidRequest
from ullage.model.holding import ZoneAmounts
from ullage.model.node_record import NodeRecord
from ullage.model.provider import pages_of
from ullage.model.topology import CPU, HUGEPAGES, MEMORY
from ullage.wire.pod.aligned import exclusive_amounts
from ullage.wire.topology.pod_fingerprint import fingerprint_of, is_comparable

Amounts = Counter[tuple[int, str]]
"""Amounts by zone and resource."""


class _PodHere(NamedTuple):
    """A pod on a node: its names, whether it runs, and what it needs exclusively."""

    namespace: str
    name: str
    runs: bool
    needs: Mapping[str, int]


class _Basis(NamedTuple):
    """The last record that counts, the uids of its pods, and what it has beyond the ledger's entries of these."""

    record: NodeRecord
    pods: frozenset[str]
    unknown: Amounts


class ZoneUsage:
    """Follows the pods of nodes, and computes what has to be held by zone beyond the ledger."""

    def __init__(self, context: KubeContext, *, pessimistic: bool = False) -> None:
        self._cluster, self._pessimistic = context.cluster, pessimistic
        self._on: dict[str, dict[str, _PodHere]] = {}
        self._node_of: dict[str, str] = {}
        self._basis: dict[str, _Basis] = {}
        context.followed.pods.subscribe(self._on_pod)

    def enter(self, node: str, record: NodeRecord) -> None:
        """Enter in the books what pods hold by zone of a node beyond the ledger."""
        amounts = self.amounts(node, record)
        self._cluster.allocator.set_zone_usage(node, amounts)
        self._cluster.enter_other_usage(node)

    def amounts(self, node: str, record: NodeRecord) -> ZoneAmounts:
        """Return what pods hold by zone of a node beyond the ledger; no more than is left there."""
        here = self._on.get(node, {})
        basis = self._basis[node] = self._settled(self._basis.get(node), record, here)
        wanted = basis.unknown.copy()
        if self._pessimistic:
            for uid in here.keys() - basis.pods:
                wanted.update(self._elsewhere(uid, here[uid], record))
        left = _allocatable(record)
        left.subtract(self._held(here))
        found = {key: min(amount, left[key]) for key, amount in wanted.items()}
        return tuple(
            (zone, resource, found[zone, resource]) for zone, resource in sorted(found) if found[zone, resource] > 0
        )

    def matches(self, node: str) -> bool:
        """Return whether all pods of a node are included in the record that counts."""
        basis = self._basis.get(node)
        return basis is not None and basis.pods >= self._on.get(node, {}).keys()

    def _settled(self, last: _Basis | None, record: NodeRecord, here: Mapping[str, _PodHere]) -> _Basis:
        """Return the basis: a new one if the record is new and may be trusted, else the last one."""
        comparable = is_comparable(record.included.fingerprint)
        if last is not None and last.record is record and (not comparable or last.pods >= here.keys()):
            return last
        pods = _included(record, here) if comparable else _running(here)
        if pods is None and last is not None and self._pessimistic:
            return last
        if pods is None:
            if last is not None and last.record is record:
                return last
            pods = _running(here)
        unknown: Amounts = Counter({(zone, resource): amount for zone, resource, amount in record.held})
        unknown.subtract(self._held(pods))
        return _Basis(record, pods, +unknown)

    def _held(self, uids: Iterable[str]) -> Amounts:
        """Return what the ledger has for these pods by zone."""
        found: Amounts = Counter()
        for held in (each for uid in uids for each in self._cluster.held_by_family(uid)):
            if held.placement is not None:
                for zone, resource, amount in held.placement.amounts:
                    found[zone, resource] += amount
                for zone, amount in held.placement.memory:
                    found[zone, MEMORY] += amount
        return found

    def _elsewhere(self, uid: str, pod: _PodHere, record: NodeRecord) -> Amounts:
        """Return what a pod holds if it may be in any zone, beyond what the ledger has for it."""
        known = self._held([uid])
        return Counter(
            {
                (zone, resource): pod.needs[resource] - known[zone, resource]
                for zone, resource in _allocatable(record)
                if pod.needs.get(resource, 0) > known[zone, resource]
            }
        )

    def _on_pod(self, delta: Delta[Pod]) -> None:
        match delta:
            case Removed(last):
                self._drop(last.metadata.uid)
            case Added(new) | Changed(_, new):
                self._put(new)

    def _put(self, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if pod.finished or not node:
            self._drop(uid)
            return
        runs, known = pod.status.phase == "Running", self._on.get(node, {}).get(uid)
        if known is not None:
            needs = known.needs
        else:
            try:
                needs = exclusive_amounts(pod.document)
            except InvalidRequest:
                needs = {}
        self._node_of[uid] = node
        self._on.setdefault(node, {})[uid] = _PodHere(pod.metadata.namespace, pod.metadata.name, runs, needs)

    def _drop(self, uid: str) -> None:
        node = self._node_of.pop(uid, "")
        self._on.get(node, {}).pop(uid, None)


def _allocatable(record: NodeRecord) -> Amounts:
    found: Amounts = Counter()
    for zone in record.topology.zones:
        if zone.memory is not None:
            found[zone.id, MEMORY] = zone.memory.allocatable
        for size, room in zone.hugepages.items():
            found[zone.id, pages_of(size)] = room.allocatable
        for resource, room in zone.amounts.items():
            found[zone.id, resource] = room.allocatable
    return found


def _running(here: Mapping[str, _PodHere]) -> frozenset[str]:
    return frozenset(uid for uid, pod in here.items() if pod.runs)


def _included(record: NodeRecord, here: Mapping[str, _PodHere]) -> frozenset[str] | None:
    """Return the pods whose fingerprint the record has; None if it is that of other pods.

    A writer that lists pods of which it saw exclusive resources knows the managers of its kubelet, which a reader does
    not: CPUs and memory may be exclusive or not. A pod that was bound a moment ago may be included or not.
    """
    for uids in (_running(here), frozenset(here)):
        for names in _listings(record, {uid: here[uid] for uid in uids}):
            if fingerprint_of(names) == record.included.fingerprint:
                return uids
    return None


def _listings(record: NodeRecord, pods: Mapping[str, _PodHere]) -> Iterator[frozenset[tuple[str, str]]]:
    if not record.included.exclusive_only:
        yield frozenset((pod.namespace, pod.name) for pod in pods.values())
        return
    resources = {resource for _, resource in _allocatable(record)}
    own = {resource for resource in resources if resource == MEMORY or resource.startswith(HUGEPAGES)}
    for counted in dict.fromkeys(
        (frozenset(resources), frozenset(resources - own), frozenset(resources - own - {CPU}))
    ):
        yield frozenset((pod.namespace, pod.name) for pod in pods.values() if counted & pod.needs.keys())
