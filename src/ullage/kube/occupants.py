"""Who runs where by which bindings, and what pods ask of nodes: an index of the pods that hold anything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ullage.core.binding.rows import Ledger
from ullage.kube.informer import Added, Changed, Informer, News, Removed
from ullage.kube.objects import Pod
from ullage.model.binding import Tenant
from ullage.model.compute import Room
from ullage.model.error import InvalidRequest
from ullage.model.resources import MILLI
from ullage.service.cluster import Cluster
from ullage.wire.document import Document, mapping
from ullage.wire.pod import DOMAIN
from ullage.wire.pod.bind import BINDINGS
from ullage.wire.pod.containers import pod_amount

Identity = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that has not ended: whose it is, its node ("" before it has one), its bindings and what it asks."""

    tenant: Tenant
    node: str
    bindings: tuple[str, ...]
    room: Room


class Occupants:
    """Follows an informer of pods. `reserve` goes before what the API tells: a pod that is just being bound."""

    def __init__(
        self, pods: Informer[Pod], cluster: Cluster, tenant: Callable[[Document], Tenant], domain: str = DOMAIN
    ) -> None:
        self._cluster, self._tenant, self._key = cluster, tenant, f"{domain}/{BINDINGS}"
        self._there: dict[str, Occupant] = {}
        self._alike: defaultdict[Identity, set[str]] = defaultdict(set)
        self._reserved: dict[str, tuple[str, ...]] = {}
        self.used: defaultdict[str, Room] = defaultdict(Room)
        """What the pods of a node ask of it."""
        pods.subscribe(self._hear)

    def reserve(self, uid: str, bindings: tuple[str, ...]) -> None:
        """A pod begins to run by these bindings: until the API tells of it, or `undo`, they are held."""
        self._reserved[uid] = bindings

    def undo(self, uid: str) -> None:
        """It does not after all."""
        self._reserved.pop(uid, None)

    def siblings(self, uid: str, tenant: Tenant) -> set[str]:
        """Cards that other pods of the same application, owner and namespace hold, or are about to."""
        others = self._alike.get(identity(tenant), set()) - {uid}
        return {card for other in others for card in self._cluster.cards_of(other)}

    def held(self, ledger: Ledger) -> frozenset[str]:
        """Ids of the rows by which anybody runs.

        Of a pod that says nothing of its bindings it is by all of its application on its node, or on its cards
        where these are known.
        """
        named = {name for each in self._reserved.values() for name in each}
        silent: dict[tuple[str, str], list[tuple[str, Occupant]]] = {}
        for uid, each in self._there.items():
            if each.node and each.bindings:
                named.update(each.bindings)
            elif each.node and each.tenant.app:
                silent.setdefault((each.tenant.app, each.node), []).append((uid, each))
        for row in ledger.rows:
            for uid, each in silent.get((row.app.name, row.card.node), ()):
                cards = self._cluster.cards_of(uid)
                if each.tenant.owner in ("", row.app.owner) and (not cards or row.card.device in cards):
                    named.add(row.id)
        return frozenset(named)

    def identities(self) -> Iterator[Identity]:
        """Whose pods there are, each once."""
        return iter(self._alike)

    def _hear(self, news: News[Pod]) -> None:
        match news:
            case Removed(last):
                self._forget(last.metadata.uid)
                self._reserved.pop(last.metadata.uid, None)
            case Added(new) | Changed(_, new):
                self._forget(new.metadata.uid)
                if not new.finished:
                    self._enter(new)
                if new.spec.node_name or new.finished:
                    self._reserved.pop(new.metadata.uid, None)

    def _enter(self, pod: Pod) -> None:
        uid, found = pod.metadata.uid, self._occupant(pod)
        self._there[uid] = found
        self.used[found.node] += found.room
        if found.tenant.app:
            self._alike[identity(found.tenant)].add(uid)

    def _forget(self, uid: str) -> None:
        last = self._there.pop(uid, None)
        if last is None:
            return
        room = last.room
        self.used[last.node] += Room(-room.cpu_milli, -room.memory_bytes, -room.disk_bytes)
        alike = self._alike.get(identity(last.tenant))
        if alike is not None:
            alike.discard(uid)
            if not alike:
                del self._alike[identity(last.tenant)]

    def _occupant(self, pod: Pod) -> Occupant:
        """What of a pod cannot be read counts nothing: whoever placed it has let it pass."""
        document = pod.document
        try:
            tenant = self._tenant(document)
        except InvalidRequest:
            tenant = Tenant(namespace=pod.metadata.namespace)
        try:
            spec = mapping(document.get("spec"), "spec")
            room = Room(pod_amount(spec, "cpu", MILLI), pod_amount(spec, "memory", 1))
        except InvalidRequest:
            room = Room()
        named = (pod.metadata.annotations or {}).get(self._key, "")
        return Occupant(tenant, pod.spec.node_name, tuple(filter(None, named.split(","))), room)


def identity(tenant: Tenant) -> Identity:
    """By what pods are of the same application."""
    return tenant.app, tenant.owner, tenant.namespace
