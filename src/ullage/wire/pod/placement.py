"""The place of a pod in its machine, as annotations of the pod; after a restart the ledger is rebuilt from them.

Ours is `numa-placement`, under the domain of the pod's other annotations; it has ids. Volcano's is
`volcano.sh/topology-decision`; it has amounts by zone: `{"numa": {"0": {"cpu": "4", "nvidia.com/gpu": "2"}}}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from ullage.model.error import invalid
from ullage.model.gpu import Gpu
from ullage.model.idset import format_ids, parse_ids
from ullage.model.quantity import MAX_INT32, parse_count
from ullage.model.topology import CARD, CPU, HUGEPAGES, MAX_ZONE_BYTES, MAX_ZONES, MEMORY, Topology
from ullage.model.zone_placement import Rank, ZonePlacement
from ullage.wire.body import body_of
from ullage.wire.document import Document, mapping
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod.alignment import VOLCANO
from ullage.wire.pod.keys import DOMAIN, Keys
from ullage.wire.vendors.shipped import as_resource

_OURS = "numa-placement"
_DECISION = "topology-decision"

DECISION = f"{VOLCANO}/{_DECISION}"
"""Volcano's annotation in full. Only a scheduler writes it."""

_Zone = Annotated[int, msgspec.Meta(ge=0, lt=MAX_ZONES)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=MAX_ZONE_BYTES)]


class PlacementRecord(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`numa-placement`: `cpus` is a set such as 0-3,8; all other fields are as in the placement."""

    zones: tuple[_Zone, ...] = ()
    cpus: str = ""
    devices: dict[str, tuple[str, ...]] = {}
    memory: tuple[tuple[_Zone, _Bytes], ...] = ()
    amounts: tuple[tuple[_Zone, str, _Bytes], ...] = ()
    rank: Rank = Rank.PREDICTED
    rule: str = ""

    @classmethod
    def of(cls, placement: ZonePlacement) -> PlacementRecord:
        return body_of(cls, placement, cpus=format_ids(placement.cpus), devices=dict(placement.devices))

    def placement(self, key: str) -> ZonePlacement:
        """Return the placement; `key` is the annotation that an error names."""
        cpus = parse_ids(self.cpus, key)
        fields = {"cpus": cpus, "zones": tuple(sorted(set(self.zones))), "devices": sorted(self.devices.items())}
        return msgspec.convert(msgspec.structs.asdict(self) | fields, ZonePlacement)


def placement_annotations(placement: ZonePlacement, domain: str = DOMAIN) -> dict[str, str]:
    """Return the annotation `numa-placement` of a pod, under its full key."""
    return {f"{domain}/{_OURS}": msgspec.json.encode(PlacementRecord.of(placement)).decode()}


def decision_annotations(
    placement: ZonePlacement, machine: Topology, cards: Iterable[Gpu], card_resource: str
) -> dict[str, str]:
    """Return Volcano's `topology-decision` for a pod; `card_resource` is the resource of cards in its cluster.

    A device in several zones counts in the first of them that the placement has; one of unknown zone is left out.
    """
    decision: dict[str, dict[str, str]] = {}
    for zone, resource, amount in sorted(_counted(placement, machine, cards)):
        at = decision.setdefault(str(zone), {})
        name = card_resource if resource == CARD else resource
        at[name] = str(int(at.get(name, "0")) + amount)
    return {DECISION: msgspec.json.encode({"numa": decision}).decode()}


def read_placement(pod: Document, domain: str = DOMAIN) -> ZonePlacement | None:
    """Return where a pod was placed, by our annotation or else by Volcano's; None without either.

    Volcano's has amounts only.
    """
    keys = Keys(pod, domain)
    placed = keys.json(_OURS, PlacementRecord, "it is written at bind; remove it, or restore what was written")
    if placed is None:
        return Keys(pod, VOLCANO).parse(_DECISION, _decided)
    return keys.parse(_OURS, lambda _, key: placed.placement(key))


def _counted(placement: ZonePlacement, machine: Topology, cards: Iterable[Gpu]) -> Iterator[tuple[int, str, int]]:
    """Yield (zone, resource, amount) of everything that is held."""
    yield from placement.amounts
    yield from ((zone, MEMORY, amount) for zone, amount in placement.memory)
    home = {cpu.id: cpu.zone for cpu in machine.cpus}
    for id_ in placement.cpus:
        zone = home.get(id_)
        if zone is not None:
            yield zone, CPU, 1
    places = {device.uuid: device.zones for device in machine.devices} | {card.uuid: card.zones for card in cards}
    for resource, uuids in placement.devices:
        for uuid in uuids:
            zones = places.get(uuid, ())
            touched = [zone for zone in zones if zone in placement.zones] or zones
            if touched:
                yield touched[0], resource, 1


def _decided(text: str, key: str) -> ZonePlacement:
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise invalid(key, text, 'JSON such as {"numa": {"0": {"cpu": "4"}}} is needed') from None
    memory: dict[int, int] = {}
    amounts: dict[tuple[int, str], int] = {}
    for number, held in mapping(mapping(document, key).get("numa"), f"{key}.numa").items():
        zone, path = parse_count(number, key, MAX_ZONES - 1), f"{key}.numa.{number}"
        memory.setdefault(zone, 0)
        for name, quantity in mapping(held, path).items():
            in_bytes = name == MEMORY or name.startswith(HUGEPAGES)
            amount = parse_quantity(quantity, f"{path}.{name}", maximum=MAX_ZONE_BYTES if in_bytes else MAX_INT32)
            if name == MEMORY:
                memory[zone] += amount
            elif amount:
                resource = as_resource(name)
                amounts[zone, resource] = amounts.get((zone, resource), 0) + amount
    return ZonePlacement(
        zones=tuple(sorted(memory)),
        memory=tuple(sorted((zone, amount) for zone, amount in memory.items() if amount)),
        rank=Rank.BOUND,
        amounts=tuple(sorted((zone, resource, amount) for (zone, resource), amount in amounts.items())),
    )
