"""A kubelet's side of one machine: whether it admits a pod, and what it hands to its containers.

Written from what Kubernetes says of its managers (pkg/kubelet/cm/{topologymanager,cpumanager,devicemanager,
memorymanager}), on plain numbers: it knows nothing of records, requests or books. Only the merge of hints is
shared with other tests, where it is the product of all lists. Devices go by lowest index, as no plugin prefers any.
Left out: groups of zones for memory, and the options of the CPU manager beside whole cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from recorded_topology import ADAPTER as NIC_KIND
from recorded_topology import MELLANOX, bus_of, cards, device, own_bridge
from recorded_topology import zones as write_zones
from tests.core.zone_hints import Hint
from tests.core.zone_oracle import masks_of, product_merge

from ullage.model.idset import format_ids, parse_ids
from ullage.model.topology import ZonePolicy

GPU, NIC = "nvidia.com/gpu", "example.com/nic"
GIB = 2**30


@dataclass(frozen=True)
class Hardware:
    """A machine: CPUs by zone, (socket, core) by CPU, distances, memory of each zone, buses of devices with zones."""

    cpus: Mapping[int, Sequence[int]]
    cores: Mapping[int, tuple[int, int]]
    distances: Sequence[Sequence[int]]
    gpus: Sequence[tuple[int, int | None]]
    nics: Sequence[tuple[int, int | None]] = ()
    memory: int = 64 * GIB

    def write(self, root: Any) -> list[Any]:
        """Its files below a directory; its cards as their driver lists them."""
        texts = {zone: format_ids(cpus) for zone, cpus in self.cpus.items()}
        write_zones(root, texts, self.memory // 1024, self.distances, self.cores.__getitem__)
        for bus, zone in self.gpus:
            device(root, bus_of(bus), own_bridge(bus), -1 if zone is None else zone)
        for bus, zone in self.nics:
            device(root, bus_of(bus), own_bridge(bus), -1 if zone is None else zone, MELLANOX, NIC_KIND, 0x1021)
        return cards(*(bus for bus, _ in self.gpus))

    @property
    def zones(self) -> list[int]:
        return sorted(self.cpus)

    @property
    def devices(self) -> dict[str, dict[str, tuple[int, int | None]]]:
        """By resource and id: index and zone."""
        gpus = {f"GPU-{bus:02x}": (index, zone) for index, (bus, zone) in enumerate(self.gpus)}
        nics = {bus_of(bus): (index, zone) for index, (bus, zone) in enumerate(self.nics)}
        return {GPU: gpus} | ({NIC: nics} if nics else {})


@dataclass
class Grant:
    """The resources of the containers of a pod; `lent` are those that finished init containers leave to later ones."""

    cpus: set[int] = field(default_factory=set)
    devices: dict[str, set[str]] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    lent_cpus: set[int] = field(default_factory=set)
    lent: dict[str, set[str]] = field(default_factory=dict)


class Refused(Exception):
    """The reason a pod fails with."""


class FakeKubelet:
    """One kubelet; `admit` is asked pod by pod, in the order in which they are bound."""

    def __init__(self, hardware: Hardware, config: Mapping[str, Any]) -> None:
        self.hardware = hardware
        self.config = config
        self.zone_of = {cpu: zone for zone, cpus in hardware.cpus.items() for cpu in cpus}
        self.core_of = {
            cpu: min(other for other, core in hardware.cores.items() if core == hardware.cores[cpu])
            for cpu in hardware.cores
        }
        self.policy = ZonePolicy(config.get("topologyManagerPolicy", "none"))
        self.static = config.get("cpuManagerPolicy") == "static"
        self.whole_cores = (config.get("cpuManagerPolicyOptions") or {}).get("full-pcpus-only") == "true"
        everything, kept = set(self.zone_of), int(float(config.get("kubeReserved", {}).get("cpu", 0)) + 0.999)
        named = config.get("reservedSystemCPUs")
        self.reserved = set(parse_ids(named, "reserved")) if named else set(self.packed(everything, kept))
        self.shared = everything
        self.used: dict[str, set[str]] = {resource: set() for resource in hardware.devices}
        reserved_memory = {entry["numaNode"]: entry["limits"]["memory"] for entry in config.get("reservedMemory", ())}
        self.memory = {
            zone: hardware.memory
            - (int(reserved_memory[zone].removesuffix("Gi")) * GIB if zone in reserved_memory else 0)
            for zone in hardware.zones
        }
        self.total_memory = dict(self.memory)
        self.requested = {"cpu": 0, "memory": 0}

    # --- admission ---

    def admit(self, pod: Mapping[str, Any]) -> Grant:
        """Return the resources of a pod.

        Raises:
            Refused: it fails; nothing of it stays.

        """
        before = deepcopy((self.shared, self.used, self.memory, self.requested))
        try:
            self._predicates(pod)
            return self._align(pod)
        except Refused:
            self.shared, self.used, self.memory, self.requested = before
            raise

    def _predicates(self, pod: Mapping[str, Any]) -> None:
        """Return whether the node has room, as a scheduler counts."""
        kept = len(self.reserved) if self.config.get("reservedSystemCPUs") else 0
        cpu_room = len(self.zone_of) * 1000 - (
            kept * 1000 or int(float(self.config.get("kubeReserved", {}).get("cpu", 0)) * 1000)
        )
        self.requested["cpu"] += self._peak(pod, "cpu")
        if self.requested["cpu"] > cpu_room:
            raise Refused("OutOfcpu")
        for resource, used in self.used.items():
            if self._peak(pod, resource) > len(self.hardware.devices[resource]) - len(used):
                raise Refused(f"OutOf{resource}")

    def _peak(self, pod: Mapping[str, Any], resource: str) -> int:
        """Return the largest sum of the concurrent requests of the containers."""
        staying = peak = 0
        for stage, container in containers_of(pod):
            amount = asked(container, resource)
            if stage == "init":
                peak = max(peak, staying + amount)
            else:
                staying += amount
        return max(peak, staying)

    def _align(self, pod: Mapping[str, Any]) -> Grant:
        grant, own = Grant(), guaranteed(pod)
        as_one = self.config.get("topologyManagerScope") == "pod" and self.policy is not ZonePolicy.NONE
        mask = None
        if as_one:
            peak = {name: self._peak(pod, name) for name in self.hardware.devices}
            mask = self._affinity(self._exclusive_peak(pod) if own else 0, peak, 0, grant)
        for stage, container in containers_of(pod):
            cpus = exclusive(container) if own and self.static else 0
            wanted = {name: asked(container, name) for name in self.hardware.devices}
            memory = asked(container, "memory") if own and self.config.get("memoryManagerPolicy") == "Static" else 0
            if not as_one:
                mask = self._affinity(cpus, wanted, memory, grant)
            for resource, amount in wanted.items():
                self._devices(resource, amount, mask, grant, ends=stage == "init")
            if cpus:
                self._cpus(cpus, mask, grant, ends=stage == "init")
            if memory:
                self._memory(memory, mask, grant)
        return grant

    def _exclusive_peak(self, pod: Mapping[str, Any]) -> int:
        if not self.static:
            return 0
        staying = peak = 0
        for stage, container in containers_of(pod):
            if stage == "init":
                peak = max(peak, staying + exclusive(container))
            else:
                staying += exclusive(container)
        return max(peak, staying)

    # --- hints ---

    def _affinity(self, cpus: int, wanted: Mapping[str, int], memory: int, grant: Grant) -> tuple[int, ...] | None:
        """The zones that the topology manager tells its managers; None: any."""
        if self.policy is ZonePolicy.NONE:
            return None
        lists = [self._device_hints(name, amount, grant) for name, amount in wanted.items() if amount]
        lists += [self._cpu_hints(cpus, grant)] if cpus else []
        lists += [self._memory_hints(memory)] if memory else []
        options = self.config.get("topologyManagerPolicyOptions") or {}
        far = self.hardware.distances if options.get("prefer-closest-numa-nodes") == "true" else ()
        found = product_merge(self.hardware.zones, lists, self.policy, far)
        if not found.admitted:
            raise Refused("TopologyAffinityError")
        return found.hint.zones

    def _device_hints(self, resource: str, amount: int, grant: Grant) -> list[Hint] | None:
        known = self.hardware.devices[resource]
        if all(zone is None for _, zone in known.values()):
            return None
        lent = grant.lent.get(resource, set())
        free = {name for name in known if name not in self.used[resource]} | lent
        if len(free) < amount:
            return []

        def near(names: set[str] | Mapping[str, object], mask: Sequence[int]) -> int:
            return sum(known[name][1] in mask for name in names)

        with_zone = {name for name in lent if known[name][1] is not None}
        return hints(
            self.hardware.zones,
            amount,
            lambda mask: near(known, mask),
            lambda mask: near(free, mask) if near(with_zone, mask) == len(with_zone) else -1,
        )

    def _cpu_hints(self, amount: int, grant: Grant) -> list[Hint]:
        free = self.shared - self.reserved | grant.lent_cpus

        def near(cpus: set[int] | Mapping[int, int], mask: Sequence[int]) -> int:
            return sum(self.zone_of[cpu] in mask for cpu in cpus)

        return hints(
            [zone for zone in self.hardware.zones if self.hardware.cpus[zone]],
            amount,
            lambda mask: near(self.zone_of, mask),
            lambda mask: near(free, mask) if near(grant.lent_cpus, mask) == len(grant.lent_cpus) else -1,
        )

    def _memory_hints(self, amount: int) -> list[Hint]:
        return hints(
            self.hardware.zones,
            amount,
            lambda mask: sum(self.total_memory[zone] for zone in mask),
            lambda mask: sum(self.memory[zone] for zone in mask),
        )

    # --- handing out ---

    def _devices(self, resource: str, amount: int, mask: tuple[int, ...] | None, grant: Grant, *, ends: bool) -> None:
        known, lent = self.hardware.devices[resource], grant.lent.setdefault(resource, set())
        free = [name for name in known if name not in self.used[resource]]
        near = [name for name in free if mask is not None and known[name][1] in mask]
        placed = [name for name in free if mask is not None and known[name][1] is not None]
        order = dict.fromkeys(
            by_index for step in (lent, near, placed, free) for by_index in sorted(step, key=known.get)
        )
        taken = set(list(order)[:amount])
        if len(taken) < amount:
            raise Refused("UnexpectedAdmissionError")
        self.used[resource] |= taken
        grant.devices.setdefault(resource, set()).update(taken)
        grant.lent[resource] = lent | taken if ends else lent - taken

    def _cpus(self, amount: int, mask: tuple[int, ...] | None, grant: Grant, *, ends: bool) -> None:
        if self.whole_cores:
            threads = len(self.zone_of) // len(set(self.core_of.values()))
            broken = {self.core_of[cpu] for cpu in self.reserved}
            whole = [cpu for cpu in self.shared if self.core_of[cpu] not in broken]
            if amount % threads or amount > len(whole):
                raise Refused("SMTAlignmentError")
        usable = self.shared - self.reserved | grant.lent_cpus
        near = {cpu for cpu in usable if mask is not None and self.zone_of[cpu] in mask}
        taken = set(self.packed(near, min(amount, len(near))))
        taken |= set(self.packed(usable - taken, amount - len(taken)))
        if len(taken) < amount:
            raise Refused("UnexpectedAdmissionError")
        self.shared = self.shared - taken
        grant.cpus |= taken
        grant.lent_cpus = grant.lent_cpus | taken if ends else grant.lent_cpus - taken

    def _memory(self, amount: int, mask: tuple[int, ...] | None, grant: Grant) -> None:
        for zone in self.hardware.zones if mask is None else mask:
            some = min(amount, self.memory[zone])
            self.memory[zone] -= some
            grant.memory[zone] = grant.memory.get(zone, 0) + some
            amount -= some
        if amount:
            raise Refused("UnexpectedAdmissionError")

    def packed(self, usable: set[int], amount: int) -> list[int]:
        """CPUs of the static policy without options: whole zones and sockets, whole cores, single ones."""
        left, taken = set(usable), list[int]()

        def zone(cpu: int) -> int:
            return self.zone_of[cpu]

        def socket(cpu: int) -> int:
            return self.hardware.cores[cpu][0]

        count = {level: len({level(cpu) for cpu in self.zone_of}) for level in (zone, socket)}
        first, second = (zone, socket) if count[socket] >= count[zone] else (socket, zone)

        def ordered(level: Callable[[int], int], among: set[int]) -> Iterator[set[int]]:
            groups = {group: {cpu for cpu in among if level(cpu) == group} for group in {level(cpu) for cpu in among}}
            fewest = {group: sum(level(cpu) == group for cpu in left) for group in groups}
            return (groups[group] for group in sorted(groups, key=lambda group: (fewest[group], group)))

        def nested(*levels: Callable[[int], int]) -> list[set[int]]:
            found = [left]
            for level in levels:
                found = [inner for outer in found for inner in ordered(level, outer)]
            return found

        levels = (first,), (first, second), (first, second, self.core_of.__getitem__)
        for path in levels:
            sizes = {path[-1](cpu): 0 for cpu in self.zone_of}
            for cpu in self.zone_of:
                sizes[path[-1](cpu)] += 1
            for group in nested(*path):
                name = path[-1](min(group))
                if len(group) == sizes[name] <= amount - len(taken):
                    taken += sorted(group)
            left -= set(taken)
        singles = [cpu for core in nested(*levels[-1]) for cpu in sorted(core)]
        return taken + singles[: amount - len(taken)]


def hints(
    zones: Sequence[int], amount: int, total: Callable[[Sequence[int]], int], free: Callable[[Sequence[int]], int]
) -> list[Hint]:
    """Every mask with enough free; preferred where it is as narrow as all that there is allows."""
    masks = list(masks_of(zones))
    narrowest = min([len(mask) for mask in masks if total(mask) >= amount], default=len(zones))
    return [Hint(mask, len(mask) == narrowest) for mask in masks if free(mask) >= amount]


# --- pods ---


def containers_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Containers in the order of their start, each with what it is."""
    for container in pod["spec"].get("initContainers", ()):
        yield ("sidecar" if container.get("restartPolicy") == "Always" else "init"), container
    for container in pod["spec"]["containers"]:
        yield "app", container


def asked(container: Mapping[str, Any], resource: str) -> int:
    """Return the request of a container: thousandths of CPUs, bytes, devices."""
    reported = container["resources"]
    text = str(reported.get("requests", {}).get(resource, reported.get("limits", {}).get(resource, 0)))
    if resource == "cpu":
        return int(text.removesuffix("m")) if text.endswith("m") else int(text) * 1000
    return int(text.removesuffix("Gi")) * GIB if text.endswith("Gi") else int(text)


def exclusive(container: Mapping[str, Any]) -> int:
    """CPUs of its own: whole ones only."""
    whole, part = divmod(asked(container, "cpu"), 1000)
    return 0 if part else whole


def guaranteed(pod: Mapping[str, Any]) -> bool:
    """Return whether every container limits CPU and memory to its requests."""
    reported = [container["resources"] for _, container in containers_of(pod)]
    return all(
        name in one.get("limits", {})
        and one.get("requests", one["limits"]).get(name, one["limits"][name]) == one["limits"][name]
        for one in reported
        for name in ("cpu", "memory")
    )
