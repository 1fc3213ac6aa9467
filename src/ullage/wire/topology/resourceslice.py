"""ResourceSlices (`resource.k8s.io/v1`): the devices that drivers offer, and where in their nodes they lie.

Of a pool only the newest generation counts, and only when all its slices are there: an older or an incomplete
one may offer devices that are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT32, MAX_INT64
from ullage.model.slice_device import SliceDevice
from ullage.model.topology import zones_of
from ullage.wire.document import Document, mapping, text, whole
from ullage.wire.topology.dropped import Dropped, as_object

KIND = "ResourceSlice"

NUMA_NODE = "resource.kubernetes.io/numaNode"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
BUS_ID = "resource.kubernetes.io/pciBusID"

OLDER_NUMA_NODES = ("numa", "numaNode", "dra.net/numaNode", "dra.cpu/numaNodeID", "dra.cpu/numaNode")
"""What drivers called the zone before there was a common name; a name without a domain is in the driver's own."""

_UUID = "uuid"


@dataclass(frozen=True, slots=True)
class _Slice:
    """One slice of a pool, of which only what says whether it counts has been read."""

    name: str
    generation: int
    expected: int
    spec: Document


def read_resource_slices(
    documents: Iterable[object], older_names: Sequence[str] = OLDER_NUMA_NODES
) -> tuple[tuple[SliceDevice, ...], tuple[str, ...]]:
    """The devices of all complete pools, by driver, pool and name, and a sentence for each that was dropped.

    The zones are those of `numaNode`, a number or a list, or else of the first of `older_names` that the
    device has; without any of them they are unknown.
    """
    dropped = Dropped()
    pools: dict[tuple[str, str], list[_Slice]] = {}
    for document in documents:
        with dropped.entry():
            key, found = _slice(document)
            pools.setdefault(key, []).append(found)
    devices: list[SliceDevice] = []
    for (driver, pool), slices in sorted(pools.items()):
        generation = max(one.generation for one in slices)
        newest = {one.name: one for one in slices if one.generation == generation}
        if any(one.expected != len(newest) for one in newest.values()):
            seen, expected = len(newest), max(one.expected for one in newest.values())
            dropped.say(f"pool {driver}/{pool}: {seen} of {expected} slices are there; its devices are left out")
            continue
        devices.extend(_devices(driver, pool, newest, older_names, dropped))
    return tuple(devices), dropped.warnings


def _slice(document: object) -> tuple[tuple[str, str], _Slice]:
    found, name = as_object(document, KIND)
    spec = mapping(found.get("spec"), "spec")
    pool = mapping(spec.get("pool"), "spec.pool")
    driver, pool_name = text(spec.get("driver")), text(pool.get("name"))
    if not driver or not pool_name:
        raise invalid("spec.pool.name", pool_name, f"slice {name} must name its driver and its pool")
    generation = whole(pool.get("generation"), "spec.pool.generation", MAX_INT64)
    expected = whole(pool.get("resourceSliceCount"), "spec.pool.resourceSliceCount", MAX_INT32)
    return (driver, pool_name), _Slice(name, generation, expected, spec)


def _devices(
    driver: str, pool: str, slices: Mapping[str, _Slice], older_names: Sequence[str], dropped: Dropped
) -> list[SliceDevice]:
    """The devices of a pool in the order of their names; none if the pool has two of one name."""
    devices: dict[str, SliceDevice] = {}
    for slice_name in sorted(slices):
        spec = slices[slice_name].spec
        for path, told in dropped.rows(spec.get("devices"), f"{slice_name}.spec.devices"):
            name = text(told.get("name"))
            if not name:
                dropped.say(invalid(f"{path}.name", told.get("name"), "a name is needed").message)
                continue
            if name in devices:
                dropped.say(f"pool {driver}/{pool}: {name!r} is there twice; its devices are left out")
                return []
            with dropped.entry():
                node = text(spec.get("nodeName")) or text(told.get("nodeName"))
                attributes = mapping(told.get("attributes"), f"{path}.attributes")
                devices[name] = _device(SliceDevice(driver, pool, name, node), attributes, older_names)
    return [devices[name] for name in sorted(devices)]


def _device(device: SliceDevice, attributes: Document, older_names: Sequence[str]) -> SliceDevice:
    """The device with what its attributes tell; a name without a domain is in that of the driver."""
    told = {
        name if "/" in name else f"{device.driver}/{name}": _value(value)
        for name, value in attributes.items()
        if isinstance(name, str)
    }
    names = (NUMA_NODE, *(name if "/" in name else f"{device.driver}/{name}" for name in older_names))
    zone = next((told[name] for name in names if name in told), None)
    return SliceDevice(
        driver=device.driver,
        pool=device.pool,
        name=device.name,
        node=device.node,
        zones=zones_of(zone),
        uuid=text(told.get(f"{device.driver}/{_UUID}")),
        pcie_root=text(told.get(PCIE_ROOT)) or None,
        bus_id=text(told.get(BUS_ID)) or None,
    )


def _value(attribute: object) -> object:
    """The value of an attribute: `{int: 0}`, `{ints: [0, 1]}` or `{string: x}`; None for anything else."""
    if not isinstance(attribute, Mapping):
        return None
    return next((attribute[kind] for kind in ("int", "ints", "string") if attribute.get(kind) is not None), None)
