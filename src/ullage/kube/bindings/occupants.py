"""An index of pods that hold cards: which bindings they use where, and what pods of each owner request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from ullage.binding.rows import Ledger
from ullage.kube.bindings.nodes import ONE_MEMORY
from ullage.kube.client.informer import Added, Changed, Delta, Informer, Removed
from ullage.kube.client.objects import Pod
from ullage.model.binding import Tenant
from ullage.model.compute import AppKey, CardUser, HostRoom
from ullage.model.error import InvalidRequest
from ullage.model.resources import MILLI
from ullage.service.cluster import Cluster
from ullage.wire.document import Document
from ullage.wire.pod import DOMAIN
from ullage.wire.pod.bind import BINDINGS
from ullage.wire.pod.containers import bound_spec, pod_amount
from ullage.wire.pod.keys import comma_list

Identity = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that has not ended: its tenant, its node ("" before it has one), its request, and what it holds.

    `bindings` are names and `cards` are uuids. Another scheduler writes neither.
    """

    tenant: Tenant
    node: str
    bindings: tuple[str, ...]
    cards: frozenset[str]
    room: HostRoom
    name: str = ""


class Occupants:
    """Follows an informer of pods. `reserve` takes precedence over the API for a pod that is being bound."""

    def __init__(
        self, pods: Informer[Pod], cluster: Cluster, tenant: Callable[[Document], Tenant], domain: str = DOMAIN
    ) -> None:
        self._pods, self._cluster, self._tenant = pods, cluster, tenant
        self._key, self._cards_key = f"{domain}/{BINDINGS}", f"{domain}/gpu-ids"
        self.there: dict[str, Occupant] = {}
        """Pods by uid, as the API reports them."""
        self._by_identity: defaultdict[Identity, set[str]] = defaultdict(set)
        self._reserved: dict[str, Occupant] = {}
        self.used_by: defaultdict[str, HostRoom] = defaultdict(HostRoom)
        """What the pods of each owner request of nodes."""
        pods.subscribe(self._on_pod)

    def reserve(self, pod: Pod, node: str, bindings: tuple[str, ...], cards: Iterable[str]) -> None:
        """Hold these bindings for a pod that is being bound, until the API reports it or `undo` is called."""
        found = self._occupant(pod)
        self._reserved[pod.metadata.uid] = replace(found, node=node, bindings=bindings, cards=frozenset(cards))

    def undo(self, uid: str) -> None:
        """Release what was held for a pod that is not bound after all."""
        self._reserved.pop(uid, None)

    def siblings(self, uid: str, tenant: Tenant) -> set[str]:
        """Return cards that other pods of the same application, owner and namespace hold or are about to hold."""
        uids = self._by_identity.get(identity(tenant), set())
        begun = {other for other, each in self._reserved.items() if identity(each.tenant) == identity(tenant)}
        return {card for other in (uids | begun) - {uid} for card in self._cluster.cards_of(other)}

    def held(self, ledger: Ledger) -> frozenset[str]:
        """Return the ids of the rows that running pods use.

        A pod may name no bindings, or only bindings that are no rows. Such a pod uses all rows of its application on
        its node, or on its cards if it names these.
        """
        rows = {row.id for row in ledger.rows}
        named: set[str] = set()
        silent: defaultdict[tuple[str, str], list[Occupant]] = defaultdict(list)
        for each in chain(self.there.values(), self._reserved.values()):
            if each.node and not rows.isdisjoint(each.bindings):
                named.update(each.bindings)
            elif each.node and each.tenant.app:
                silent[each.tenant.app, each.node].append(each)
        for row in ledger.rows:
            for each in silent.get((row.app.name, row.card.node), ()):
                known = each.cards if row.accelerator not in ONE_MEMORY else ()
                if each.tenant.owner in ("", row.app.owner) and (not known or row.card.device in known):
                    named.add(row.id)
        return frozenset(named)

    def users(self) -> Iterator[CardUser]:
        """Yield pods of applications that hold cards by the books."""
        for uid, each in chain(self.there.items(), self._reserved.items()):
            for found in self._cluster.held_by_family(uid) if each.node and each.tenant.app else ():
                if found.gpus:
                    held: dict[str, int | None] = dict.fromkeys(found.gpus)
                    held |= {uuid: charge.vram for uuid, charge in zip(found.gpus, found.charges, strict=False)}
                    yield CardUser(AppKey(*identity(each.tenant)), found.node, held)

    def held_cards(self) -> frozenset[str]:
        """Return the cards that pods hold by the books, of applications or not."""
        there = chain(self.there.items(), self._reserved.items())
        return frozenset(card for uid, each in there if each.node for card in self._cluster.cards_of(uid))

    def cards_of(self, uid: str) -> tuple[str, ...]:
        """Return the cards that a pod holds by the books."""
        return self._cluster.cards_of(uid)

    def identities(self) -> Iterator[Identity]:
        return iter(self._by_identity)

    def look_again(self, namespace: str) -> None:
        """Read the pods of a namespace again: their tenants have changed."""
        for (space, _), pod in self._pods.objects.items():
            uid = pod.metadata.uid
            if space == namespace and uid in self.there:
                self._forget(uid)
                self._enter(pod)
            if space == namespace and uid in self._reserved:
                self._reserved[uid] = replace(self._reserved[uid], tenant=self._occupant(pod).tenant)

    def _on_pod(self, delta: Delta[Pod]) -> None:
        match delta:
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
        self.there[uid] = found
        self.used_by[found.tenant.owner] += found.room
        if found.tenant.app:
            self._by_identity[identity(found.tenant)].add(uid)

    def _forget(self, uid: str) -> None:
        last = self.there.pop(uid, None)
        if last is None:
            return
        owner, room = last.tenant.owner, last.room
        self.used_by[owner] += HostRoom(-room.cpu_milli, -room.memory_bytes)
        if self.used_by[owner] == HostRoom():
            del self.used_by[owner]
        uids = self._by_identity.get(identity(last.tenant))
        if uids is not None:
            uids.discard(uid)
            if not uids:
                del self._by_identity[identity(last.tenant)]

    def _occupant(self, pod: Pod) -> Occupant:
        """Return the occupant. Unreadable fields of a pod count as empty, as its scheduler has accepted them."""
        document = pod.document
        try:
            tenant = self._tenant(document)
        except InvalidRequest:
            tenant = Tenant(namespace=pod.metadata.namespace)
        try:
            spec = bound_spec(document)
            room = HostRoom(pod_amount(spec, "cpu", MILLI), pod_amount(spec, "memory", 1))
        except InvalidRequest:
            room = HostRoom()
        notes = pod.metadata.annotations or {}
        bindings, cards = (comma_list(notes.get(key, "")) for key in (self._key, self._cards_key))
        return Occupant(tenant, pod.spec.node_name, bindings, frozenset(cards), room=room, name=pod.metadata.name)


def identity(tenant: Tenant) -> Identity:
    """Return the key that pods of the same application share."""
    return tenant.app, tenant.owner, tenant.namespace
