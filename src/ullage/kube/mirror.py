"""What the API tells of nodes and pods, entered in the books: all that is known here can be made anew from it.

A pod that Ullage bound says on itself what it holds. One that another scheduler sent to a machine holds cards
of which only the number is known: the best that are free stand for them. A pod holds its cards until its
object is gone, or its processes have ended for good.

What a pod says is believed to the harm of nobody else: each card that it names is held, also one that another pod
names, one that no machine has, and one on a pod of which nothing else can be read. Whoever forges that keeps cards
from being used; nobody is given a card that somebody may be using.

Where an exporter tells what a machine is like and who holds what of it, that goes before all else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ullage.core.fleet import Beside
from ullage.kube.client.informer import Added, Changed, Informer, News, Removed
from ullage.kube.client.objects import Node as NodeObject
from ullage.kube.client.objects import Object, Pod
from ullage.kube.nodes import CardReader, node_of
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.error import Conflict, InvalidRequest, UllageError
from ullage.model.node import Node
from ullage.model.node_record import NodeRecord
from ullage.model.resources import MILLI
from ullage.service.bystanders import Bystanders
from ullage.service.cluster import Cluster
from ullage.service.devices import Devices
from ullage.wire.document import Document
from ullage.wire.pod import DOMAIN, ReadPod, named_cards, read_allocation
from ullage.wire.pod.containers import bound_spec, pod_amount
from ullage.wire.topology.numatopology import read_numatopology

Trouble = Callable[[str, str, UllageError], None]
"""Told of an object that cannot be read: its kind, its namespace and name, and why."""


REFUSALS = ("TopologyAffinityError", "SMTAlignmentError")
"""Why a kubelet refuses a pod that was thought to fit: its CPUs and cards are not in the zones that it needs."""


class Mirror:
    """Follows informers of nodes and pods. `settle` must be called before the books are looked at."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: Informer[NodeObject],
        pods: Informer[Pod],
        read_pod: ReadPod,
        *,
        domain: str = DOMAIN,
        topologies: Informer[Object] | None = None,
        readers: Sequence[CardReader] = (),
        devices: Devices | None = None,
        domains: Callable[[str], Mapping[str, str]] = lambda _node: {},
        trouble: Trouble = lambda _kind, _name, _error: None,
    ) -> None:
        """`topologies` are the Numatopology objects, `devices` what claims have, where the cluster has them.

        `domains` are labels of a node beside its own.
        """
        self._cluster, self._nodes, self._pods, self._read_pod = cluster, nodes, pods, read_pod
        self._domain, self._readers, self._trouble, self._devices = domain, readers, trouble, devices
        self._domains = domains
        self._machines: dict[str, Node] = {}
        self._stale = self._recovered = False
        self.term: int | None = None
        """The term of leading at whose beginning all that had been bound before it was heard."""
        self._waiting: dict[str, Pod] = {}
        """Pods of others for which the books have no cards: their machine has not been told yet, or it is full."""
        self._freed: set[str] = set()
        """Machines that a pod has left since somebody last looked whether those that wait have room."""
        self._told: dict[str, str] = {}
        """What was last said of a pod, so that it is said once."""
        self._bystanders = Bystanders(cluster)
        self._twice: frozenset[tuple[str, str]] = frozenset()
        """Machines and cards of theirs that another machine has, as it says."""
        self.refused: Counter[tuple[str, str]] = Counter()
        """Pods that kubelets refused, by node and reason, since the start."""
        self._records: dict[str, NodeRecord] = {}
        self._unobserved: set[str] = set()
        """Machines of which it has to be looked at again who holds what."""
        if topologies is not None:
            topologies.subscribe(self._on_topology)
        nodes.subscribe(self._on_node)
        pods.subscribe(self._on_pod)

    @property
    def ready(self) -> bool:
        """Whether the books are those of the API, as far as it was heard."""
        return self._recovered

    @property
    def machines(self) -> Mapping[str, Node]:
        """The machines by name, as each tells of itself: a card may be told by two of them."""
        return self._machines

    def recover(self) -> None:
        """Make the books what the informers mirror: both have listed. From now on decisions may be made.

        Pods that say what they hold come first, so that nobody else stands on their cards.
        """
        self._settle_machines()
        there = sorted(self._pods.objects.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.key))
        self._waiting.clear()
        self._bystanders.clear()
        self._cluster.recover(())
        self._recovered = True
        own = [(pod, found) for pod in there if (found := self._own(pod)) is not None]
        self._hold(*own)
        for pod in there:
            self._enter(pod)
        self._bystanders.settle()
        self._unobserved.update(self._records)
        self._observe()

    def settle(self) -> None:
        """Enter what waits: machines that changed, pods that there may be room for by now, and what machines show."""
        self._bystanders.settle()
        if self._stale or self._freed:
            freed, stale = self._freed, self._stale
            self._settle_machines()
            for pod in list(self._waiting.values()):
                if stale or pod.spec.node_name in freed:
                    self._enter(pod)
        self._observe()

    def describe_again(self, name: str) -> None:
        """Whoever tells the cards of a machine, or where it is, tells others by now."""
        node = self._nodes.objects.get(("", name))
        if node is not None:
            self._describe(node)

    def _observe(self) -> None:
        """Compare what machines show with the books; where news of either came, they are compared again."""
        if not self._recovered:
            return
        if self._devices is not None:
            self._devices.settle()
        names, self._unobserved = self._unobserved, set()
        for name in sorted(names & self._machines.keys() & self._records.keys()):
            use = self._records[name].use
            for each in self._cluster.observe(name, use).mismatches if use is not None else ():
                bound, shown = ", ".join(each.bound), ", ".join(each.shown)
                message = f"{each.uid}: {each.resource}: bound to {bound}, its node shows {shown}"
                self._trouble("Node", name, Conflict(message, code="allocation-mismatch"))

    def _settle_machines(self) -> None:
        self._freed = set()
        if self._stale:
            self._stale = False
            self._cluster.set_nodes(self._told_apart())

    def _told_apart(self) -> list[Node]:
        """The machines; a card that two of them claim is that of the first by name: nobody could tell them apart."""
        owner: dict[str, str] = {}
        for name in sorted(self._machines):
            for gpu in self._machines[name].gpus:
                owner.setdefault(gpu.uuid, name)
        twice = frozenset(
            (m.name, gpu.uuid) for m in self._machines.values() for gpu in m.gpus if owner[gpu.uuid] != m.name
        )
        for name, uuid in sorted(twice - self._twice):
            message = f"card {uuid} is that of {owner[uuid]}; names of cards are unique in a cluster"
            self._trouble("Node", name, Conflict(message, code="card-named-twice"))
        self._twice = twice
        return [
            replace(m, gpus=tuple(gpu for gpu in m.gpus if owner[gpu.uuid] == m.name)) if twice else m
            for m in self._machines.values()
        ]

    # --- machines ---

    def _on_node(self, news: News[NodeObject]) -> None:
        match news:
            case Removed(last):
                self._stale |= self._machines.pop(last.metadata.name, None) is not None
            case Added(new) | Changed(_, new):
                self._describe(new)

    def _describe(self, node: NodeObject) -> None:
        name = node.metadata.name
        machine = node_of(node, self._readers, self._records.get(name), self._domains(name))
        self._unobserved.add(machine.name)
        if machine != self._machines.get(machine.name):
            self._cluster.look_again(machine.name)
            self._machines[machine.name] = machine
            self._stale = True

    def _on_topology(self, news: News[Object]) -> None:
        """A machine whose object is deleted stays as it was told: cards that are held are not to lose their names."""
        match news:
            case Removed(last):
                if last.metadata.name not in self._machines:
                    self._records.pop(last.metadata.name, None)
            case Added(new) | Changed(_, new):
                self._take_record(new)

    def _take_record(self, found: Object) -> None:
        name = found.metadata.name
        try:
            record, dropped = read_numatopology(found.document, self._domain)
        except InvalidRequest as error:
            self._trouble("Numatopology", name, error)
            return
        for sentence in dropped:
            self._trouble("Numatopology", name, InvalidRequest(sentence))
        last = self._records.get(name)
        if last is not None and last.topology == replace(record.topology, observed_at=last.topology.observed_at):
            record = replace(record, topology=last.topology)  # what says nothing new is no other machine
        if last is None or last.use != record.use:
            self._cluster.look_again(name)
        self._records[name] = record
        self.describe_again(name)

    # --- pods ---

    def _on_pod(self, news: News[Pod]) -> None:
        if not self._recovered:
            return
        match news:
            case Removed(last):
                self._leave(last)
            case Added(new) | Changed(_, new):
                self._enter(new)

    def hear(self, pod: Pod) -> None:
        """Take a pod as it was just read: the watch will tell the same later."""
        if self._recovered:
            self._enter(pod)

    def expect(self, pod: Pod, node: str) -> None:
        """Whoever places a pod has to send it to this node: what it needs there beside cards is not free until then."""
        self._count(pod, pod.document, node)

    def _enter(self, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        self._unobserved.add(node)
        if pod.finished:
            self._leave(pod)
            return
        if not node:
            return
        held = self._cluster.held(uid)
        if held is not None and held.node == node and held.state is not AllocationState.ASSUMED:
            pass
        elif held is not None and held.node == node and _same(held, self._own(pod)):
            self._cluster.confirm(uid)
        else:
            self._cluster.gone(uid)  # wherever it was thought to be
            found = self._own(pod)
            if found is not None:
                self._hold((pod, found))
            else:
                document = pod.document
                self._stand_in(pod, document)
                self._count(pod, document, node)
        if pod.terminating:
            self._cluster.leaving(uid)

    def _leave(self, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        self._bystanders.drop(uid)
        self._waiting.pop(uid, None)
        self._told.pop(uid, None)
        self._unobserved.add(node)
        self._freed.add(node)
        if self._cluster.held(uid) is not None:
            self._ended(pod)
        self._cluster.gone(uid)

    def _ended(self, pod: Pod) -> None:
        """One who held cards has left its node, or was never let in there."""
        node, reason = pod.spec.node_name, pod.status.reason
        if reason not in REFUSALS:
            self._cluster.look_again(node)
            return
        self.refused[node, reason] += 1
        self._cluster.hold_back(pod.metadata.uid)
        self._tell(pod, Conflict(f"the kubelet of {node} refused it ({reason})", code="refused-there"))

    def _own(self, pod: Pod) -> Allocation | None:
        """What a pod says that it holds; where that cannot be read the cards that it names, whole."""
        if pod.finished or f"{self._domain}/gpu-ids" not in (pod.metadata.annotations or {}):
            return None
        try:
            return read_allocation(pod.document, self._domain, charge_of=self._cluster.charge_on, read=self._read_pod)
        except InvalidRequest as error:
            self._tell(pod, error)
            return named_cards(pod.document, self._domain)

    def _hold(self, *pods: tuple[Pod, Allocation]) -> None:
        """Enter what pods say that they hold; what cannot be so, whoever wrote it, is told and held all the same."""
        contradicted = self._cluster.found(*(found for _, found in pods))
        for pod, found in pods:
            self._waiting.pop(found.id, None)
            if found.requirement.cpu_milli or found.requirement.memory_bytes:
                self._bystanders.drop(found.id)
            else:
                self._count(pod, pod.document, found.node)  # what it names was read, and perhaps no more of it
            if (error := contradicted.get(found.id)) is not None:
                self._tell(pod, error)

    def _count(self, pod: Pod, document: Document, node: str) -> None:
        """Count what a pod has of its node beside what it holds by the books; claims have the place of their pod."""
        try:
            spec = bound_spec(document)
            has = Beside(pod_amount(spec, "cpu", MILLI), pod_amount(spec, "memory", 1), not spec.get("resourceClaims"))
        except InvalidRequest as error:
            self._tell(pod, error)
            has = Beside(slots=1)
        if (held := self._cluster.held(pod.metadata.uid)) is not None:
            known = held.requirement
            has = Beside(max(0, has.cpu_milli - known.cpu_milli), max(0, has.memory_bytes - known.memory_bytes))
        self._bystanders.put(pod.metadata.uid, node, has)

    def _stand_in(self, pod: Pod, document: Document) -> None:
        """Hold cards for a pod that does not say which it has."""
        self._waiting.pop(pod.metadata.uid, None)
        try:
            asked = self._read_pod(document)
            if asked is None or self._cluster.stand_in(asked.request, pod.spec.node_name):
                return
            if pod.spec.node_name in self._machines:
                message = f"{pod.spec.node_name} has no cards left for those that it must hold there"
                self._tell(pod, Conflict(message, code="no-room"))
        except UllageError as error:
            self._tell(pod, error)
        self._waiting[pod.metadata.uid] = pod

    def _tell(self, pod: Pod, error: UllageError) -> None:
        if self._told.get(pod.metadata.uid) != error.message:
            self._told[pod.metadata.uid] = error.message
            self._trouble("Pod", "/".join(pod.key), error)


def _same(held: Allocation, found: Allocation | None) -> bool:
    """Whether what a pod says is what was reserved for it, and not what another leader gave it."""
    return found is None or (found.gpus, found.charges) == (held.gpus, held.charges)
