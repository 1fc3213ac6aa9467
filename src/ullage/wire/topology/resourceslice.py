"""ResourceSlices (`resource.k8s.io/v1`): the devices that drivers offer, and where in their nodes they lie.

Of a pool only the newest generation counts, and only if all its slices exist: an older or an incomplete one may offer
devices that no longer exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ullage.model.affinity import ANY_NODE, NodeAffinity
from ullage.model.error import InvalidRequest, invalid
from ullage.model.quantity import MAX_INT32, MAX_INT64
from ullage.model.resources import MILLI
from ullage.model.slice_device import Attribute, Capacity, Pool, RequestPolicy, SliceDevice, ValueKind
from ullage.model.taint import Taint
from ullage.model.topology import zones_of
from ullage.wire.document import Document, mapping, mappings, section, sequence, text, whole
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod.affinity import node_selector
from ullage.wire.topology.dropped import Dropped, as_object

KIND = "ResourceSlice"

NUMA_NODE = "resource.kubernetes.io/numaNode"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
BUS_ID = "resource.kubernetes.io/pciBusID"

OLDER_NUMA_NODES = ("numa", "numaNode", "dra.net/numaNode", "dra.cpu/numaNodeID", "dra.cpu/numaNode")
"""Attributes with the zone from before there was a common name; one without a domain is in the driver's own."""

_UUID = "uuid"
_NOWHERE = NodeAffinity(((),))
_MAX_MILLI = MAX_INT64 * MILLI


@dataclass(frozen=True, slots=True)
class _Slice:
    """One slice of a pool, of which only the fields that decide whether it counts have been read."""

    name: str
    generation: int
    expected: int
    spec: Document


def read_resource_slices(
    documents: Iterable[object], older_names: Sequence[str] = OLDER_NUMA_NODES
) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
    """Return all pools, by driver and name, and a sentence for each entry that was dropped.

    The zones are those of `numaNode`, a number or a list, or else of the first of `older_names` that the device has;
    without any of them they are unknown.
    """
    dropped = Dropped()
    pools: dict[tuple[str, str], list[_Slice]] = {}
    for document in documents:
        with dropped.entry():
            key, found = _slice(document)
            pools.setdefault(key, []).append(found)
    return tuple(_pool(*key, pools[key], older_names, dropped) for key in sorted(pools)), dropped.warnings


def pool_of(document: object) -> tuple[str, str]:
    """Return the driver and the name of the pool of a slice."""
    return _slice(document)[0]


def _pool(driver: str, name: str, slices: Sequence[_Slice], older_names: Sequence[str], dropped: Dropped) -> Pool:
    """Return the pool; one that cannot be used has no devices."""
    generation = max(one.generation for one in slices)
    newest = {one.name: one for one in slices if one.generation == generation}
    if any(one.expected != len(newest) for one in newest.values()):
        seen, expected = len(newest), max(one.expected for one in newest.values())
        dropped.warn(f"pool {driver}/{name}: {seen} of {expected} slices are there; its devices are left out")
        return Pool(driver, name, complete=False)
    try:
        counters: dict[str, Mapping[str, int]] = {}
        for slice_name in sorted(newest):
            path = f"{slice_name}.spec.sharedCounters"
            for here, raw in mappings(newest[slice_name].spec.get("sharedCounters"), path):
                counters[text(raw.get("name"))] = _counters(raw.get("counters"), here)
        devices = _devices(driver, name, newest, older_names, dropped=dropped)
    except InvalidRequest as error:
        dropped.warn(f"pool {driver}/{name}: {error.message}; its devices are left out")
        return Pool(driver, name, complete=False)
    return Pool(driver, name, tuple(devices), counters)


def _slice(document: object) -> tuple[tuple[str, str], _Slice]:
    found, name = as_object(document, KIND)
    spec = section(found, "spec")
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
    """Return the devices of a pool in the order of their names."""
    devices: dict[str, SliceDevice] = {}
    for slice_name in sorted(slices):
        spec = slices[slice_name].spec
        for path, raw in dropped.rows(spec.get("devices"), f"{slice_name}.spec.devices"):
            name = text(raw.get("name"))
            if not name:
                dropped.warn(invalid(f"{path}.name", raw.get("name"), "a name is needed").message)
                continue
            if name in devices:
                raise invalid(f"{path}.name", name, "it is there twice")
            with dropped.entry():
                reach = raw if spec.get("perDeviceNodeSelection") else spec
                devices[name] = _device(SliceDevice(driver, pool, name), raw, path, reach, older_names=older_names)
    return [devices[name] for name in sorted(devices)]


def _device(device: SliceDevice, raw: Document, path: str, reach: Document, older_names: Sequence[str]) -> SliceDevice:
    attributes = {
        device.qualified(name): _attribute(value, f"{path}.attributes.{name}")
        for name, value in mapping(raw.get("attributes"), f"{path}.attributes").items()
        if isinstance(name, str)
    }
    names = (NUMA_NODE, *(device.qualified(name) for name in older_names))
    zone = next((attributes[name] for name in names if name in attributes), None)
    capacity = mapping(raw.get("capacity"), f"{path}.capacity")
    consumes = mappings(raw.get("consumesCounters"), f"{path}.consumesCounters")
    device = replace(device, attributes={name: value for name, value in attributes.items() if value is not None})
    return replace(
        device,
        node=text(reach.get("nodeName")),
        nodes=_reach(reach, path),
        zones=zones_of(_plain(zone)),
        uuid=device.text(_UUID),
        pcie_root=device.text(PCIE_ROOT) or None,
        bus_id=device.text(BUS_ID) or None,
        capacity={device.qualified(str(n)): _capacity(v, f"{path}.capacity.{n}") for n, v in capacity.items()},
        counters={text(each.get("counterSet")): _counters(each.get("counters"), here) for here, each in consumes},
        taints=tuple(
            Taint(text(each.get("key")), text(each.get("value")), text(each.get("effect")))
            for _, each in mappings(raw.get("taints"), f"{path}.taints")
        ),
        shareable=raw.get("allowMultipleAllocations") is True,
        binds_to_node=raw.get("bindsToNode") is True,
        binding_conditions=_texts(raw, "bindingConditions", path),
        failure_conditions=_texts(raw, "bindingFailureConditions", path),
    )


def _reach(raw: Document, path: str) -> NodeAffinity:
    """Return the nodes that can reach a device that is not local to one node; none if no field states them."""
    if raw.get("nodeSelector") is not None:
        return node_selector(raw["nodeSelector"], f"{path}.nodeSelector")
    return ANY_NODE if raw.get("allNodes") is True or raw.get("nodeName") else _NOWHERE


def _capacity(value: object, path: str) -> Capacity:
    raw = mapping(value, path)
    policy = raw.get("requestPolicy")
    return Capacity(_milli(raw.get("value"), f"{path}.value"), None if policy is None else _policy(policy, path))


def _policy(value: object, path: str) -> RequestPolicy:
    raw = mapping(value, f"{path}.requestPolicy")
    within = mapping(raw.get("validRange"), f"{path}.requestPolicy.validRange")
    least, most, step = (_optional(within.get(name), f"{path}.{name}") for name in ("min", "max", "step"))
    values = sequence(raw.get("validValues"), f"{path}.requestPolicy.validValues")
    return RequestPolicy(
        _optional(raw.get("default"), f"{path}.requestPolicy.default"),
        tuple(_milli(each, f"{path}.requestPolicy.validValues") for each in values),
        least if least is not None or not within else 0,
        most,
        step=step,
    )


def _counters(value: object, path: str) -> dict[str, int]:
    return {
        str(name): _milli(mapping(each, f"{path}.{name}").get("value"), f"{path}.{name}.value")
        for name, each in mapping(value, path).items()
    }


def _milli(value: object, path: str) -> int:
    return parse_quantity(value, path, units=MILLI, maximum=_MAX_MILLI)


def _optional(value: object, path: str) -> int | None:
    return None if value is None else _milli(value, path)


_TYPES = {ValueKind.INT: int, ValueKind.BOOL: bool, ValueKind.STRING: str, ValueKind.VERSION: str}


def _attribute(attribute: object, path: str) -> Attribute | None:
    """Return an attribute such as `{int: 0}`, `{ints: [0, 1]}` or `{string: x}`; None for other types."""
    if not isinstance(attribute, Mapping):
        return None
    for kind, type_ in _TYPES.items():
        if (value := attribute.get(kind.value)) is not None:
            return Attribute(kind, (type_(value),)) if type(value) is type_ else None
        if (values := attribute.get(f"{kind.value}s")) is not None:
            listed = tuple(sequence(values, path))
            return Attribute(kind, listed, True) if all(type(each) is type_ for each in listed) else None
    return None


def _plain(attribute: Attribute | None) -> object:
    if attribute is None or attribute.kind is not ValueKind.INT:
        return None
    return list(attribute.values) if attribute.listed else attribute.values[0]


def _texts(raw: Document, name: str, path: str) -> tuple[str, ...]:
    return tuple(text(each) for each in sequence(raw.get(name), f"{path}.{name}"))
