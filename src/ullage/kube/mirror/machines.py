"""The machines of a cluster, as their Nodes, their card readers and an exporter describe them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import msgspec

from ullage.kube.client.informer import Added, Changed, Delta, Removed
from ullage.kube.client.kinds import NODES, Unreadable
from ullage.kube.client.objects import KubeNode as NodeObject
from ullage.kube.client.objects import Object
from ullage.kube.client.served import LateInformer
from ullage.kube.context import KubeContext
from ullage.kube.mirror.nodes import CardSources, node_of, template_of
from ullage.kube.mirror.zone_records import ZoneRecords
from ullage.model.error import Conflict, InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.holding import Use
from ullage.model.node import Node
from ullage.model.node_record import NodeRecord
from ullage.wire.document import Document


class Machines:
    """Follows the informer of nodes, and the records that exporters write of nodes."""

    def __init__(
        self,
        context: KubeContext,
        cards: CardSources,
        domains: Callable[[str], Mapping[str, str]],
        records: ZoneRecords,
    ) -> None:
        """`domains` returns further labels of a node."""
        self._nodes, self._cards, self._domains = context.followed.nodes, cards, domains
        self._drop_rejections, self._on_error = context.cluster.drop_rejections, context.on_error
        self.by_name: dict[str, Node] = {}
        """Machines by name, as each describes itself. Two of them may name the same card."""
        self._records, self._use = records, dict[str, Use | None]()
        self._most_cards: int | None = None
        self.unobserved: set[str] = set()
        """Machines whose card usage must be compared again."""
        self.stale = False
        """Whether a machine was added, removed or changed since the last check."""
        self._twice: frozenset[tuple[str, str]] = frozenset()
        """Pairs of a machine and a card of it that another machine also names."""
        self._on_change: list[Callable[[str], None]] = []
        records.subscribe(self._on_record)
        self._nodes.subscribe(self._on_node)

    @property
    def records(self) -> Mapping[str, NodeRecord]:
        """What an exporter reports of machines, by name."""
        return self._records.by_node

    @property
    def most_cards(self) -> int:
        """The cards of the machine that has most."""
        if self._most_cards is None:
            self._most_cards = max((len(machine.gpus) for machine in self.by_name.values()), default=0)
        return self._most_cards

    def enter_zone_usage(self, name: str) -> None:
        """Enter in the books what pods hold by zone of a machine whose record does not name its pods."""
        record = self.records.get(name)
        if record is not None and record.use is None and self._records.usage is not None:
            self._records.usage.enter(name, record)

    @property
    def informers(self) -> list[LateInformer[Object]]:
        """The informers of records whose kind the cluster may lack."""
        return [] if self._records.informer is None else [self._records.informer]

    async def wait_ready(self) -> None:
        """Return as soon as the records are known whose kind the cluster may lack."""
        await self._records.wait_ready()

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with the name of each machine that describes itself in another way."""
        self._on_change.append(changed)

    def describe_again(self, name: str) -> None:
        """Read a machine again: the source of its cards or of its domain has changed."""
        node = self._nodes.objects.get(("", name))
        if node is not None:
            self._describe(node)

    def templates(self, described: Mapping[str, Document]) -> list[Node]:
        """Return the machines that these Nodes describe and the cluster does not have.

        Raises:
            InvalidRequest: one of them is no Node; the message names it.

        """
        found = []
        for name, document in described.items():
            if name not in self.by_name:
                try:
                    node = NODES.read(msgspec.json.encode(document))
                except Unreadable as error:
                    raise InvalidRequest(f"Nodes: {name} is no Node: {error.__context__}", field="Nodes") from None
                found.append(template_of(node, self._cards))
        return found

    def distinct(self, shut: Collection[str]) -> list[Node]:
        """Return the machines. The cards of those in `shut` are cordoned.

        A card that two machines name belongs to the first of them by name, because the two cannot be distinguished. One
        that two device plugins of a machine register belongs to the first of these.
        """
        owner, twice = dict[str, str](), set[tuple[str, str]]()
        for name in sorted(self.by_name):
            for gpu in self.by_name[name].gpus:
                if gpu.uuid in owner:
                    twice.add((name, gpu.uuid))
                owner.setdefault(gpu.uuid, name)
        for name, uuid in sorted(twice - self._twice):
            other = f"{owner[uuid]}; card ids must be unique in a cluster"
            again = "a second register of the node; only one device plugin may serve a card"
            message = f"card {uuid} is also named by {again if owner[uuid] == name else other}"
            self._on_error("Node", name, Conflict(message, code="card-named-twice"))
        self._twice = frozenset(twice)
        apart = [replace(m, gpus=_owned(m, owner)) if twice else m for m in self.by_name.values()]
        return [
            replace(m, gpus=tuple(replace(gpu, cordoned=True) for gpu in m.gpus)) if m.name in shut else m
            for m in apart
        ]

    def _on_node(self, delta: Delta[NodeObject]) -> None:
        match delta:
            case Removed(last):
                self._most_cards = None
                self.stale |= self.by_name.pop(last.metadata.name, None) is not None
                self._on_record(last.metadata.name)
            case Added(new) | Changed(_, new):
                self._describe(new)

    def _describe(self, node: NodeObject) -> None:
        name = node.metadata.name
        record, domains = self.records.get(name), self._domains(name)
        machine = node_of(node, self._cards, record, domains)
        self.unobserved.add(name)
        last = self.by_name.get(name)
        if machine == last:
            return
        if machine.topology_note and (last is None or last.topology_note != machine.topology_note):
            self._on_error("Node", name, InvalidRequest(machine.topology_note))
        self._drop_rejections(name)
        self._most_cards = None
        self.by_name[name] = machine
        self.stale = True
        for changed in self._on_change:
            changed(name)

    def _on_record(self, name: str) -> None:
        """Follow the record of a machine. Of a machine that is gone, deleted records are forgotten."""
        if name not in self.by_name:
            self._records.drop(name)
        record = self.records.get(name)
        use = None if record is None else record.use
        if self._use.get(name) != use:
            self._drop_rejections(name)
        self._use[name] = use
        if record is None:
            del self._use[name]
        self.describe_again(name)


def _owned(machine: Node, owner: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the cards of a machine that belong to it, each once."""
    found: dict[str, Gpu] = {}
    for gpu in machine.gpus:
        if owner[gpu.uuid] == machine.name:
            found.setdefault(gpu.uuid, gpu)
    return tuple(found.values())
