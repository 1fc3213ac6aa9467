"""Values of the annotations that a vendor's own plugin or tools read on a placed pod, by their names in its file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ullage.model.alignment import AlignmentStage

if TYPE_CHECKING:
    from ullage.wire.vendors.family import Family


class GrantedDevice(Protocol):
    """A device of a container as it is written: MiB, and cores in the units of its family; `index` is on its node."""

    @property
    def uuid(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def share_mode(self) -> str | None: ...
    @property
    def memory_mib(self) -> int: ...
    @property
    def cores(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class GrantedContainer:
    """A container and its devices. `counts_cores`: it requests cores, and no cards. `template`: of its slices."""

    name: str
    devices: tuple[GrantedDevice, ...] = ()
    counts_cores: bool = False
    template: str = ""
    stage: AlignmentStage = AlignmentStage.APP


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """What a pod is given of one family on a node; `now` in seconds since the epoch, `slices` JSON or ""."""

    family: Family
    node: str
    containers: Sequence[GrantedContainer]
    now: float
    slices: str = ""

    @property
    def given(self) -> list[GrantedContainer]:
        """The containers that have devices."""
        return [each for each in self.containers if each.devices]

    @property
    def first(self) -> GrantedDevice:
        """The first device of the first container that has any."""
        return self.given[0].devices[0]


def extra_annotations(grant: DeviceGrant) -> dict[str, str]:
    """Return the further annotations of a grant; those of which a value is not known are left out."""
    if not grant.given:
        return {}
    known = {name: value for name, compute in VALUES.items() if (value := compute(grant)) is not None}
    found = {}
    for key, text in grant.family.results.extra.items():
        try:
            found[key] = text.format_map(known)
        except KeyError:
            continue
    return found


def _indexes(grant: DeviceGrant) -> str:
    """Return the indexes of the last container: a plugin hands out the devices of one."""
    return ",".join(str(device.index) for device in grant.given[-1].devices)


def _memory_units(grant: DeviceGrant) -> str:
    return str(grant.first.memory_mib // grant.family.memory.unit_mib)


def _runtime_info(grant: DeviceGrant) -> str:
    """Return the devices of all containers with the template of each; zeros and no template are left out."""
    found = [
        _without_zeros(UUID=device.uuid, temp=each.template, memory=device.memory_mib, core=device.cores)
        for each in grant.given
        for device in each.devices
    ]
    return _json(found)


def _metax_devices(grant: DeviceGrant) -> str:
    found = [
        [
            {"uuid": device.uuid} | _without_zeros(compute=device.cores, vRam=device.memory_mib)
            for device in each.devices
        ]
        for each in grant.containers
    ]
    return _json(found)


def _assigned_containers(grant: DeviceGrant) -> str | None:
    """Return the slice of each container that has one, not yet made."""
    found = {}
    for each in grant.given:
        profile = each.devices[0].facts.get("profile")
        if profile is None:
            return None
        about = {"allocated": False, "request": profile.size}
        found[each.name] = about | _without_zeros(profileID=profile.id, profileName=profile.name)
    return _json(dict(sorted(found.items())))


def _slice(grant: DeviceGrant) -> str | None:
    profile = grant.first.facts.get("profile")
    return None if profile is None else str(profile.size)


def _neuron_ids(grant: DeviceGrant) -> str:
    """Return the numbers of devices, or of cores for containers that request cores."""
    return ",".join(str(number) for each in grant.given for number in _neuron_numbers(grant, each))


def _neuron_numbers(grant: DeviceGrant, container: GrantedContainer) -> Iterator[int]:
    per_card = grant.family.cores.per_card
    for device in container.devices:
        if container.counts_cores:
            cores = device.facts.get("cores", per_card)
            yield from (cores * device.index + bit for bit in range(cores) if device.cores >> bit & 1)
        else:
            yield device.index


def _neuron_cores(grant: DeviceGrant) -> str | None:
    return grant.family.resources.cores if any(each.counts_cores for each in grant.given) else None


def _without_zeros(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


VALUES: Mapping[str, Callable[[DeviceGrant], str | None]] = {
    "assigned_containers": _assigned_containers,
    "cores": lambda grant: str(grant.first.cores),
    "index": lambda grant: str(grant.first.index),
    "indexes": _indexes,
    "memory": _memory_units,
    "metax_devices": _metax_devices,
    "minor": lambda grant: grant.first.facts.get("minor"),
    "nanoseconds": lambda grant: str(int(grant.now * 1_000_000_000)),
    "neuron_cores": _neuron_cores,
    "neuron_ids": _neuron_ids,
    "node": lambda grant: grant.node,
    "runtime_info": _runtime_info,
    "seconds": lambda grant: str(int(grant.now)),
    "slice": _slice,
    "slices": lambda grant: grant.slices or None,
}
"""How each value is computed; None where it is not known."""
