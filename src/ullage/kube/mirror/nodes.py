"""Reads a Node of the API as a machine of the inventory, with the cards that its card readers report.

If nobody reports more than a number of cards, as with a plain device plugin, the cards are numbered: they can be
counted and held, but not distinguished on the machine itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ullage.core.books.inventory_check import check_card
from ullage.kube.client.objects import KubeNode as NodeObject
from ullage.kube.mirror.discovered import MEMORY_LABELS, PRODUCT_LABELS, bytes_of_mib
from ullage.kube.mirror.pools import NO_POOLS, CardPools
from ullage.kube.mirror.sliced_cards import sliced_cards
from ullage.model.card_figures import SHIPPED_FIGURES, Figures
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.links import joined_links
from ullage.model.node import Node, NodeState
from ullage.model.node_record import NodeRecord
from ullage.model.part import Isolation
from ullage.model.quantity import parse_count
from ullage.model.resources import MILLI
from ullage.model.taint import Taint
from ullage.model.topology import CardPicker, Link, Topology
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.registers import NodeText, registered_cards
from ullage.wire.vendors.shipped import FAMILIES, NATIVE_RESOURCES

MAX_CARDS = 1024
"""Maximum number of cards of one machine that are read."""

_PODS = 2**31 - 1
"""The number of pods of a machine that states no limit."""

NO_DOMAINS: Mapping[str, str] = {}

CardReader = Callable[[NodeObject], Sequence[Gpu] | None]
"""Return the cards that one source reports of a machine; None if it reports nothing there.

An attribute `links` returns the links that the source knows on a machine; those of a source with `behind_record` come
after those of an exporter. `names_cards_on` says whether pods there get the cards that a scheduler names. An attribute
`vendor` names the only vendor whose cards the source reports. Without it, each card has its own vendor.
"""


@dataclass(frozen=True, slots=True)
class CardSources:
    """What is known of cards: `readers` report them, `figures` are those of their models, `pools` finds their pools.

    Cards of `families` without a register are those that the capacity of their node counts.
    """

    readers: Sequence[CardReader] = ()
    figures: Figures = SHIPPED_FIGURES
    pools: CardPools = NO_POOLS
    families: Sequence[Family] = FAMILIES


NO_SOURCES = CardSources()


def node_of(
    node: NodeObject,
    sources: CardSources = NO_SOURCES,
    record: NodeRecord | None = None,
    domains: Mapping[str, str] = NO_DOMAINS,
) -> Node:
    """Return the machine that a Node describes. For each vendor the first reader that knows its cards counts.

    Cards of a vendor that no reader reports are numbered. Those that slices lie on, where a plain device plugin offers
    slices, come last: an exporter does not say which cards are sliced, so its cards are left out there.

    `record` is what an exporter reports: the topology, and the cards where no reader knows them. `domains` are further
    labels; the labels of the Node take precedence. What cannot be read is left out and stated in `topology_note`. The
    cards of a reader that fails are not guessed.
    """
    notes: list[str] = []
    amounts = node.status.allocatable or node.status.capacity or {}
    cards, known = _published(node, sources.readers, amounts, notes)
    labels = {**domains, **(node.metadata.labels or {})}
    sliced = sliced_cards(node, labels, notes)
    if not known and not sliced and record is not None and record.cards and all(card.uuid for card in record.cards):
        cards = [_completed(card, labels) for card in _of_vendor(record.cards, amounts)]
        known = {card.vendor for card in cards}
    facts = NodeText(node.metadata.name, {}, amounts)
    gpus = [
        *cards,
        *_numbered(facts, labels, sources.families, known=known, first=len(cards), notes=notes),
    ]
    gpus += [replace(card, index=len(gpus) + at) for at, card in enumerate(sliced)]
    placed = gpus if record is None else _placed(gpus, record)
    topology = _with_links(node, sources.readers, record, notes)
    known_figures = tuple(map(_soft_at_most, map(sources.figures.complete, placed)))
    return Node(
        name=node.metadata.name,
        cpu_milli=_amount(amounts, "cpu", MILLI, notes),
        memory_bytes=_amount(amounts, "memory", 1, notes),
        gpus=_within_bounds(sources.pools.of(node, known_figures, notes), node.metadata.name, notes),
        max_executors=_amount(amounts, "pods", 1, notes) if "pods" in amounts else _PODS,
        labels=labels,
        state=NodeState.READY if node.ready else NodeState.NOT_READY,
        cordoned=node.spec.unschedulable,
        gpu_source="kubernetes",
        topology=topology,
        topology_note="; ".join(notes),
        taints=_excluding_taints(node),
    )


def _excluding_taints(node: NodeObject) -> tuple[Taint, ...]:
    """Return the taints that keep new work off, in order, but those that repeat the state: cordoned, not ready."""
    if not node.spec.taints:
        return ()
    repeated = {"node.kubernetes.io/unschedulable"} if node.spec.unschedulable else set[str]()
    repeated |= set() if node.ready else {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
    found = (Taint(each.key, each.value, each.effect) for each in node.spec.taints if each.key not in repeated)
    return _shared_taints(tuple(sorted((taint for taint in found if taint.excludes), key=str)))


@lru_cache(1024)
def _shared_taints(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Return equal taints, which nodes of one kind have in common."""
    return taints


def _within_bounds(gpus: Sequence[Gpu], node: str, notes: list[str]) -> tuple[Gpu, ...]:
    """Return the cards with amounts that the books can count; the others are noted."""
    found = []
    for gpu in gpus:
        try:
            check_card(gpu, node)
        except InvalidRequest as error:
            notes.append(f"{error.message}; the card is left out")
        else:
            found.append(gpu)
    return tuple(found)


def template_of(node: NodeObject, sources: CardSources = NO_SOURCES) -> Node:
    """Return the machine that an autoscaler would add, by the Node that describes it.

    Its cards have names of their own, because such a Node has the register of the node that it was copied from.
    """
    machine = node_of(node, sources)
    own = {gpu.uuid: f"{machine.name}/{gpu.uuid}" for gpu in machine.gpus}
    topology = machine.topology
    if topology is not None:
        links = (replace(link, a=own.get(link.a, link.a), b=own.get(link.b, link.b)) for link in topology.links)
        topology = replace(topology, links=tuple(links))
    return replace(machine, gpus=tuple(replace(gpu, uuid=own[gpu.uuid]) for gpu in machine.gpus), topology=topology)


def _with_links(
    node: NodeObject, readers: Sequence[CardReader], record: NodeRecord | None, notes: list[str]
) -> Topology | None:
    """Return the topology of a record with the links of readers too, and with who picks cards on the node.

    Links that cannot be read are left out, and noted.
    """
    known: list[Sequence[Link]] = [() if record is None else record.topology.links]
    behind: list[Sequence[Link]] = []
    for reader in readers:
        links: Callable[[NodeObject], Sequence[Link]] | None = getattr(reader, "links", None)
        try:
            found = () if links is None else links(node)
        except InvalidRequest as error:
            notes += [error.message] if error.message not in notes else []
            continue
        (behind if getattr(reader, "behind_record", False) else known).append(found)
    joined = joined_links((*known, *behind))
    if record is None:
        return Topology(links=joined, source="cards") if joined else None
    kubelet = record.topology.kubelet
    picks = None if kubelet is None else _picker(node, readers)
    if joined == record.topology.links and (kubelet is None or kubelet.picks is picks):
        return record.topology
    changed = kubelet if kubelet is None or picks is None else replace(kubelet, picks=picks)
    return replace(record.topology, links=joined, kubelet=changed)


def _picker(node: NodeObject, readers: Sequence[CardReader]) -> CardPicker:
    """Return who picks the cards of pods on a node."""
    for reader in readers:
        names: Callable[[NodeObject], bool] | None = getattr(reader, "names_cards_on", None)
        if names is not None and names(node):
            return CardPicker.NAMED
    amounts = node.status.allocatable or node.status.capacity or {}
    return CardPicker.PARTITION if amounts.get(_NVIDIA, "0") != "0" else CardPicker.LOWEST


_NVIDIA = "nvidia.com/gpu"
"""The resource of NVIDIA's device plugin, which picks cards by their links."""


def _soft_at_most(card: Gpu) -> Gpu:
    """Return a card without partitions and hard limits, unless a source states that it enforces them."""
    return replace(card, isolations=_SOFTLY) if card.isolations is None else card


_SOFTLY = frozenset({Isolation.SHARED, Isolation.SOFT})


def _published(
    node: NodeObject, readers: Sequence[CardReader], amounts: Mapping[str, str], notes: list[str]
) -> tuple[Sequence[Gpu], set[str | None]]:
    """Return the cards that readers report, and the vendors covered; None among these stands for all vendors."""
    cards: list[Gpu] = []
    known: set[str | None] = set()
    for reader in readers:
        vendor: str | None = getattr(reader, "vendor", None)
        try:
            found = reader(node)
        except InvalidRequest as error:
            notes.append(error.message)
            found = ()
        if found is None or None in known:
            continue
        own = _of_vendor(found, amounts)
        cards += [card for card in own if card.vendor not in known]
        known |= {card.vendor for card in own} | ({vendor} if vendor or not own else set())
    return cards, known


def _of_vendor(cards: Sequence[Gpu], amounts: Mapping[str, str]) -> Sequence[Gpu]:
    """Return the cards. If the kubelet offers cards of one vendor only, cards of unknown vendor get that vendor."""
    offered = {NATIVE_RESOURCES[resource] for resource in amounts if resource in NATIVE_RESOURCES}
    if len(offered) != 1 or all(card.vendor for card in cards):
        return cards
    (vendor,) = offered
    return [card if card.vendor else replace(card, vendor=vendor) for card in cards]


def _placed(cards: Sequence[Gpu], record: NodeRecord) -> list[Gpu]:
    """Return the cards with their places in the record: matched by uuid, or by order if the record has no uuids."""
    places = {card.uuid: card for card in record.cards if card.uuid}
    if not places and len(cards) == len(record.cards):
        places = {card.uuid: place for card, place in zip(cards, record.cards, strict=True)}
    return [_at(card, places[card.uuid]) if card.uuid in places else card for card in cards]


def _at(card: Gpu, place: Gpu) -> Gpu:
    return replace(
        card,
        zones=card.zones or place.zones,
        bus_id=card.bus_id or place.bus_id,
        model=card.model or place.model,
        healthy=card.healthy and place.healthy,
    )


def _numbered(
    node: NodeText,
    labels: Mapping[str, str],
    families: Sequence[Family],
    *,
    known: set[str | None],
    first: int,
    notes: list[str],
) -> list[Gpu]:
    """Return cards of which only the number is known, with what feature discovery states about all of them."""
    found: list[Gpu] = []
    for family in families:
        if family.register.format == "capacity" and family.name not in known and None not in known:
            cards = _counted(family, node, notes)
            found += [replace(card, index=first + len(found) + at) for at, card in enumerate(cards)]
            known = known | ({family.name} if cards else set())
    for resource, vendor in NATIVE_RESOURCES.items():
        if resource not in node.amounts or vendor in known or None in known:
            continue
        model, vram = _discovered(labels, vendor)
        at = first + len(found)
        found += [
            Gpu(f"{node.name}/{resource}/{number}", at + number, model=model, vendor=vendor, vram_bytes=vram)
            for number in range(_count(node.amounts[resource], resource, notes))
        ]
    return found


def _counted(family: Family, node: NodeText, notes: list[str]) -> Sequence[Gpu]:
    """Return the cards that the capacity of a node counts for a family."""
    try:
        return [card.gpu for card in registered_cards(family, node) or ()]
    except InvalidRequest as error:
        notes.append(error.message)
        return ()


def _completed(card: Gpu, labels: Mapping[str, str]) -> Gpu:
    """Return a card with what feature discovery states for its vendor, if only PCI names its model."""
    if card.vendor is None or _PCI_NAME.fullmatch(card.model or "") is None:
        return card
    model, vram = _discovered(labels, card.vendor)
    return replace(card, model=model or card.model, vram_bytes=vram if card.vram_bytes is None else card.vram_bytes)


def _discovered(labels: Mapping[str, str], vendor: str) -> tuple[str | None, int | None]:
    """Return model and bytes of a vendor's cards, from labels; nothing for partitions and shared cards."""
    model = labels.get(PRODUCT_LABELS.get(vendor, ""), "")
    if not model or model.endswith("-SHARED") or "-MIG-" in model:
        return None, None
    return model, bytes_of_mib(labels.get(MEMORY_LABELS.get(vendor, ""), ""))


_PCI_NAME = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}", re.ASCII)
"""PCI vendor and device id of a card that no driver names."""


def _count(value: str, resource: str, notes: list[str]) -> int:
    try:
        return parse_count(value, resource, MAX_CARDS)
    except InvalidRequest as error:
        notes.append(error.message)
        return 0


def _amount(amounts: dict[str, str], resource: str, units: int, notes: list[str]) -> int:
    try:
        return parse_quantity(amounts.get(resource, "0"), resource, units=units)
    except InvalidRequest as error:
        notes.append(error.message)
        return 0
