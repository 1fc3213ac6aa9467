"""The file in which a kubelet records the devices that it allocated (`kubelet_internal_checkpoint`).

The kubelet writes it only at an allocation, so pods stay in it after their end, and its content is shown as stale. The
ids of an entry are listed by zone; "-1" is an unknown zone. A document without the keys that a kubelet always writes
does not say which devices are held. It is refused, because unknown devices must not count as free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.model.error import invalid
from ullage.model.holding import Holding, PodHolding, Use
from ullage.wire.document import mapping, named, present, sequence, text
from ullage.wire.topology.dropped import Dropped
from ullage.wire.topology.podresources import read_zones


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The devices by uid of the pod that holds them; their zones; and all ids of each resource, sorted."""

    use: Use
    zones: Mapping[str, tuple[int, ...]]
    registered: Mapping[str, tuple[str, ...]]


def read_device_state(document: object) -> tuple[DeviceState, tuple[str, ...]]:
    """Return the state, and a sentence for each entry that was dropped."""
    dropped = Dropped()
    data = present(document, "Data", "checkpoint")
    entries = present(data, "PodDeviceEntries", "Data")
    held: dict[str, dict[str, dict[str, set[str]]]] = {}
    zones: dict[str, set[int]] = {}
    for path, entry in dropped.rows(entries, "Data.PodDeviceEntries"):
        with dropped.entry():
            ids = _ids_by_zone(entry.get("DeviceIDs"), f"{path}.DeviceIDs")
            pod, container, resource = (
                named(entry.get(key), f"{path}.{key}") for key in ("PodUID", "ContainerName", "ResourceName")
            )
            held.setdefault(pod, {}).setdefault(container, {}).setdefault(resource, set()).update(ids)
            for id_, places in ids.items():
                zones.setdefault(id_, set()).update(places)
    registered = {}
    for name, listed in dropped.section(data.get("RegisteredDevices"), "Data.RegisteredDevices").items():
        with dropped.entry():
            ids_of = sequence(listed, f"Data.RegisteredDevices.{name}")
            registered[text(name)] = tuple(sorted({text(id_) for id_ in ids_of}))
    pods = tuple(
        PodHolding(uid=uid, containers=tuple(_holding(name, devices) for name, devices in sorted(containers.items())))
        for uid, containers in sorted(held.items())
    )
    placed = {id_: tuple(sorted(places)) for id_, places in sorted(zones.items())}
    return DeviceState(Use(pods, stale=True), placed, registered), dropped.warnings


def _ids_by_zone(raw: object, path: str) -> dict[str, set[int]]:
    """Return the zones of each id; kubelets before 1.20 wrote a list, without zones."""
    if isinstance(raw, list):
        return {named(id_, path): set() for id_ in raw}
    if raw is None:
        raise invalid(path, raw, "the ids of the devices are needed")
    ids: dict[str, set[int]] = {}
    for key, listed in mapping(raw, path).items():
        for id_ in sequence(listed, f"{path}.{key}"):
            ids.setdefault(named(id_, f"{path}.{key}"), set()).update(read_zones([key]))
    return ids


def _holding(name: str, devices: Mapping[str, set[str]]) -> Holding:
    return Holding(name, devices=tuple((resource, tuple(sorted(ids))) for resource, ids in sorted(devices.items())))
