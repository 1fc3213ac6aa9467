"""Conversion of the kubelet's names of devices into the names in the record of a node.

Device plugins name the devices that they hand out: NVIDIA's by uuid, AMD's by PCI address (`0000:19:00.0`), Huawei's
by the resource and the place in the order of the cards (`Ascend910-0`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ullage.model.gpu import Gpu
from ullage.model.holding import Holding, Use
from ullage.model.topology import CARD, Device
from ullage.wire.vendors.shipped import NATIVE_RESOURCES

_FIRST_DOMAIN = "0000:"
_PART = "::"


def in_names_of_record(use: Use, cards: Iterable[Gpu], card_resource: str, devices: Iterable[Device]) -> Use:
    """Return the holdings with the cards as `gpu` and with the uuids of cards and devices as ids.

    `card_resource` is the resource of the cards in the cluster; the uuid of a card means it under any resource
    (`nvidia.com/gpu.shared`). An id that names no known card or device stays as it is.
    """
    cards = tuple(cards)
    known: dict[str, dict[str, str]] = {}
    ends: list[tuple[str, Gpu | Device]] = [(card_resource, card) for card in cards]
    ends += [(device.resource, device) for device in devices if device.resource in NATIVE_RESOURCES]
    for resource, end in ends:
        names = known.setdefault(resource, {})
        names |= {name: end.uuid for name in names_of(resource, end) if name not in names}
    for resource, end in ends:
        known[resource][end.uuid] = end.uuid
    uuids = {card.uuid for card in cards}

    def renamed(container: Holding) -> Holding:
        devices: dict[str, set[str]] = {}
        for resource, ids in container.devices:
            for id_ in ids:
                own = _in_names(id_, known.get(resource, {}))
                is_card = resource == card_resource or own.partition(_PART)[0] in uuids
                devices.setdefault(CARD if is_card else resource, set()).add(own)
        return replace(container, devices=tuple((name, tuple(sorted(ids))) for name, ids in sorted(devices.items())))

    pods = (replace(pod, containers=tuple(map(renamed, pod.containers))) for pod in use.pods)
    return replace(use, pods=tuple(pods))


def names_of(resource: str, end: Gpu | Device) -> Iterator[str]:
    """Yield the names that a device plugin may use for a card or device, apart from its uuid."""
    yield f"{resource.rpartition('/')[2]}-{end.index}"
    if end.bus_id:
        yield end.bus_id
        yield end.bus_id.removeprefix(_FIRST_DOMAIN)


def _in_names(id_: str, names: Mapping[str, str]) -> str:
    """Return the id with the uuid of the device it names; the id of a part keeps its number (`GPU-1::2`)."""
    whole, part, number = id_.partition(_PART)
    return f"{names.get(whole) or names.get(whole.lower(), whole)}{part}{number}"
