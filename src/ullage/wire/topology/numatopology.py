"""Numatopology (`nodeinfo.volcano.sh/v1alpha1`): the report of an exporter on a node, read into a record.

It is cluster-scoped and named after its node. All fields are optional. Writers in Go omit zeros: a missing number is
0, and a missing set is empty. A card of unknown zone is not in `gpuDetail`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ullage.model.error import invalid
from ullage.model.gpu import Gpu
from ullage.model.idset import MAX_ID
from ullage.model.node_record import NodeRecord, Stock
from ullage.model.quantity import MAX_INT32, MAX_INT64, parse_count
from ullage.model.resources import MILLI, Resources
from ullage.model.topology import CARD, Cpu, Kubelet, Topology, Zone, ZonePolicy, zones_of
from ullage.wire.document import Document, text, whole
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod.keys import DOMAIN
from ullage.wire.topology.dropped import Dropped, as_object
from ullage.wire.topology.pod_allocations import read_use
from ullage.wire.topology.supplement import Supplement, read_supplement
from ullage.wire.vendors.shipped import NATIVE_RESOURCES

KIND = "Numatopology"
SOURCE = "numatopology"
SHORT_CARD = "gpu"
"""The name that one exporter uses for cards; all other resources have their full names."""

_MAX_CARDS = 4096


def read_numatopology(document: object, domain: str = DOMAIN) -> tuple[NodeRecord, tuple[str, ...]]:
    """Return the record of a node, and a sentence for each entry that was dropped.

    Cards are listed by their index in one card resource, or in the short name `gpu`. Where `numares` has several card
    resources, the right one is the one in our own annotation, else the only one with as many cards as `gpuDetail`. If
    there is none, only the cards of `gpuDetail` are read. The full name of the resource states their vendor.

    Raises:
        InvalidRequest: it is not a Numatopology, or it contradicts itself (`topology-invalid`,
            `amount-out-of-range`); then the topology of the node is not known.

    """
    found, name = as_object(document, KIND)
    dropped = Dropped()
    spec = dropped.section(found.get("spec"), "spec")
    annotations = dropped.section(found["metadata"].get("annotations"), "metadata.annotations")
    found_supplement = read_supplement(annotations.get(f"{domain}/topology"), f"{domain}/topology", dropped)
    supplement = found_supplement or Supplement()
    card_name, stock = _stock(spec, found_supplement, dropped)
    vendor = NATIVE_RESOURCES.get(card_name)
    raw = _cards(spec, found_supplement, stock.get(CARD, Stock(0)), dropped)
    cards = tuple(replace(card, vendor=vendor) for card in raw)
    cpus = (*_cpus(spec, dropped), *supplement.cpus)
    reserved = _reserved(spec, dropped)
    reserved_cpus = frozenset(dropped.read(lambda: dropped.ids(supplement.reserved_cpus, "reserved_cpus"), ()))
    zones = {zone.id: zone for zone in supplement.zones}
    for place in (*((cpu.zone,) for cpu in cpus if cpu.zone is not None), *(card.zones for card in cards)):
        for id_ in place:
            zones.setdefault(id_, Zone(id_))
    topology = Topology(
        zones=tuple(zones[id_] for id_ in sorted(zones)),
        distances=supplement.distances,
        cpus=tuple(sorted(cpus, key=lambda cpu: cpu.id)),
        devices=supplement.devices,
        links=supplement.links,
        reserved_cpus=reserved_cpus,
        reserved_count=0 if reserved_cpus else -(-reserved.cpu_milli // MILLI),
        kubelet=_kubelet(spec, found_supplement, dropped),
        source=SOURCE,
        observed_at=_moment(annotations, dropped),
    )
    return NodeRecord(
        node=name,
        topology=topology,
        cards=cards,
        card_resource="" if card_name == SHORT_CARD else card_name,
        stock=stock,
        reserved=reserved,
        use=read_use(spec.get("podAllocations"), card_name, supplement, dropped),
    ), dropped.warnings


# --- resources ---


def _stock(spec: Document, own: Supplement | None, dropped: Dropped) -> tuple[str, dict[str, Stock]]:
    """Return the name of the card resource ("" if unknown), and the stock of each resource."""
    numares = dropped.section(spec.get("numares"), "spec.numares")
    card_name = _card_name(spec, numares, own, dropped)
    stock = {}
    for name, raw in numares.items():
        path = f"spec.numares.{name}"
        if name == SHORT_CARD and not card_name:
            dropped.warn(f"{path}: left out, as other resources of cards are named in full")
            continue
        with dropped.entry():
            entry = _entry(raw, path)
            free = dropped.ids(entry.get("allocatable") or "", f"{path}.allocatable")
            total = whole(entry.get("capacity"), f"{path}.capacity", MAX_INT32)
            stock[CARD if name == card_name else text(name)] = Stock(total, free)
    return card_name, stock


def _card_name(spec: Document, numares: Document, own: Supplement | None, dropped: Dropped) -> str:
    if own is not None:
        name = own.card_resource or SHORT_CARD
        if name in numares or not own.cards:
            return name if name in numares else ""
    names = [name for name in numares if name == SHORT_CARD or name in NATIVE_RESOURCES]
    if len(names) <= 1:
        return "".join(names)
    count = len(dropped.section(spec.get("gpuDetail"), "spec.gpuDetail"))
    counted = [name for name in names if isinstance(numares[name], Mapping) and numares[name].get("capacity") == count]
    if len(counted) == 1:
        return str(counted[0])
    dropped.warn(f"spec.gpuDetail: it is unknown which of {', '.join(names)} its {count} cards are")
    return ""


def _reserved(spec: Document, dropped: Dropped) -> Resources:
    path = "spec.resReserved"
    raw = dropped.section(spec.get("resReserved"), path)
    amounts = {"cpu": 0, "memory": 0}
    for name, units, most in (("cpu", MILLI, MAX_INT32 * MILLI), ("memory", 1, MAX_INT64)):
        with dropped.entry():
            amounts[name] = parse_quantity(raw.get(name, 0), f"{path}.{name}", units=units, maximum=most)
    return Resources(amounts["cpu"], amounts["memory"])


# --- places ---


def _cpus(spec: Document, dropped: Dropped) -> list[Cpu]:
    cpus = []
    for key, raw in dropped.section(spec.get("cpuDetail"), "spec.cpuDetail").items():
        path = f"spec.cpuDetail.{key}"
        with dropped.entry():
            entry = _entry(raw, path)
            socket = whole(entry.get("socket"), f"{path}.socket", MAX_INT32)
            core = whole(entry.get("core"), f"{path}.core", MAX_INT32)
            cpus.append(Cpu(_index(key, path), _zone(entry, path), socket, core))
    return cpus


def _cards(spec: Document, supplement: Supplement | None, stock: Stock, dropped: Dropped) -> tuple[Gpu, ...]:
    """Return the cards by index.

    Without a supplement they include those that `numares` counts and `gpuDetail` lacks.
    """
    cards = {}
    for key, detail in dropped.section(spec.get("gpuDetail"), "spec.gpuDetail").items():
        path = f"spec.gpuDetail.{key}"
        with dropped.entry():
            entry, index = _entry(detail, path), _index(key, path)
            zone = _zone(entry, path)
            bus_id, model = (text(entry.get(name)) or None for name in ("busID", "deviceModel"))
            cards[index] = Gpu("", index, zones=() if zone is None else (zone,), bus_id=bus_id, model=model)
    if supplement is None:
        for index in (*range(min(stock.total, _MAX_CARDS)), *stock.free):
            cards.setdefault(index, Gpu("", index))
    for facts in supplement.cards if supplement else ():
        known = cards.get(facts.index) or Gpu("", facts.index, bus_id=facts.bus_id, model=facts.model)
        zones = zones_of(facts.zones) or known.zones
        cards[facts.index] = replace(
            known,
            uuid=facts.uuid,
            zones=zones,
            healthy=facts.healthy,
            vram_bytes=facts.vram_bytes,
            compute_gflops=facts.compute_gflops,
        )
    return tuple(cards[index] for index in sorted(cards))


def _index(key: object, path: str) -> int:
    return parse_count(text(key), path, MAX_ID)


def _zone(entry: Document, path: str) -> int | None:
    """Return the zone of an entry: 0 if it is omitted; None, which is unknown, if it is negative."""
    raw = entry.get("numa")
    if isinstance(raw, int) and raw < 0:
        return None
    return whole(raw, f"{path}.numa", MAX_INT32)


def _entry(raw: object, path: str) -> Document:
    if not isinstance(raw, Mapping):
        raise invalid(path, raw, "a mapping is needed")
    return raw


# --- kubelet and time ---


def _kubelet(spec: Document, supplement: Supplement | None, dropped: Dropped) -> Kubelet | None:
    """Return how the kubelet aligns; None only if we wrote the object for a node without a kubelet."""
    if spec.get("policies") is None and supplement is not None:
        return supplement.kubelet
    policies = dropped.section(spec.get("policies"), "spec.policies")
    known = (supplement.kubelet if supplement else None) or Kubelet()
    path = "spec.policies.TopologyManagerPolicy"
    policy = dropped.choice(policies.get("TopologyManagerPolicy"), path, [*ZonePolicy])
    static = policies.get("CPUManagerPolicy") == "static"
    return replace(known, policy=ZonePolicy(policy), static_cpus=static)


def _moment(annotations: Document, dropped: Dropped) -> float | None:
    """Return the seconds since the epoch of the writer's timestamp."""
    raw = annotations.get("timestamp")
    if raw is None:
        return None
    return dropped.read(lambda: float(parse_count(text(raw), "metadata.annotations.timestamp", MAX_INT64)), None)
