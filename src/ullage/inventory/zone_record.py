"""The zones of a machine with their CPUs, memory and distances, from sysfs.

Sources: the kernel's Documentation/ABI/stable/sysfs-devices-node and sysfs-devices-system-cpu. A part that cannot be
read is left out, with a note. If zones contradict each other, nothing is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ullage.inventory.files import list_names, read_number, read_text
from ullage.model.counted import counted
from ullage.model.error import InvalidRequest, invalid
from ullage.model.idset import parse_ids
from ullage.model.quantity import MAX_INT32
from ullage.model.topology import MAX_DISTANCE, MAX_ZONE_BYTES, MAX_ZONES, Cpu, Room, Zone

MAX_CPUS = 4096
"""CPU ids are below this."""

_NODES = "sys/devices/system/node"
_CPUS = "sys/devices/system/cpu"
_TOTAL = re.compile(r"MemTotal:\s+([0-9]{1,15}) kB$", re.MULTILINE | re.ASCII)
_PAGES = re.compile(r"hugepages-([0-9]{1,12})kB", re.ASCII)
_MAX_PAGE_SIZES = 64
_KIB = 1024

_LEAST_TOTAL = 0.9
"""The least part of the machine's memory that its zones have together; it may change during a reading."""


@dataclass(frozen=True, slots=True)
class ZoneRecord:
    """Zones by id, CPUs by id, and a row of distances per zone or none. `notes` name the omitted parts."""

    zones: tuple[Zone, ...]
    cpus: tuple[Cpu, ...]
    distances: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]


def read_zones(root: Path) -> ZoneRecord | None:
    """Return the kernel's record below `root`; None if it has no zones at all.

    Raises:
        InvalidRequest: the list of zones is empty or is not a list of ids, or a CPU lies in two zones.

    """
    online = root / _NODES / "online"
    if not online.exists():
        return None
    notes: list[str] = []
    ids = parse_ids(read_text(online), "node/online", most=MAX_ZONES - 1)
    if not ids:
        raise invalid("node/online", "", "the kernel lists at least one zone there")
    zone_of = _zone_of_cpus(root, ids, notes)
    zones = _checked([_zone(root / _NODES / f"node{id_}", id_, notes) for id_ in ids], root, notes)
    return ZoneRecord(zones, _cpus(root, zone_of, notes), _distances(root, ids, notes), tuple(notes))


def _zone_of_cpus(root: Path, ids: tuple[int, ...], notes: list[str]) -> dict[int, int]:
    """Return the zone of each CPU that is online. A zone of memory alone has an empty list of CPUs."""
    zone_of: dict[int, int] = {}
    for id_ in ids:
        try:
            text = read_text(root / _NODES / f"node{id_}/cpulist")
            cpus = parse_ids(text, f"node{id_}/cpulist", most=MAX_CPUS - 1)
        except InvalidRequest as error:
            notes.append(error.message)
            continue
        for cpu in cpus:
            if zone_of.setdefault(cpu, id_) != id_:
                raise invalid("cpus", cpu, f"it lies in zone {zone_of[cpu]} and in zone {id_}; a CPU lies in one")
    return zone_of


def _zone(directory: Path, id_: int, notes: list[str]) -> Zone:
    """Return a zone; work may have its memory except the huge pages."""
    total = read_total(directory / "meminfo")
    if total is None or total > MAX_ZONE_BYTES:
        notes.append(f"node{id_}/meminfo has no total memory")
        return Zone(id_)
    pages = _hugepages(directory / "hugepages")
    huge = sum(room.total for room in pages.values())
    if huge > total:
        notes.append(f"node{id_}/hugepages hold more than the memory of the zone")
        pages, huge = {}, 0
    return Zone(id_, Room(total, total - huge), pages)


def _checked(zones: Sequence[Zone], root: Path, notes: list[str]) -> tuple[Zone, ...]:
    """Return the zones, without their memory if together they have much less than the machine.

    Some virtual machines get more memory without a zone.
    """
    total = sum(zone.memory.total for zone in zones if zone.memory is not None)
    whole = read_total(root / "proc/meminfo") or 0
    if all(zone.memory is not None for zone in zones) and total < whole * _LEAST_TOTAL:
        notes.append("the zones together have less memory than the machine: the memory of each is unknown")
        return tuple(replace(zone, memory=None) for zone in zones)
    return tuple(zones)


def read_total(path: Path) -> int | None:
    """Return the bytes of memory in a file such as /proc/meminfo; None if it has no such line."""
    found = _TOTAL.search(read_text(path) or "")
    return int(found[1]) * _KIB if found else None


def _hugepages(directory: Path) -> Mapping[int, Room]:
    """Return the bytes of huge pages per size of page in bytes; sizes without pages are left out."""
    pages = {}
    for name in list_names(directory, _MAX_PAGE_SIZES) or ():
        match = _PAGES.fullmatch(name)
        count = read_number(directory / name / "nr_hugepages")
        if match and count is not None and count > 0:
            size = int(match.group(1)) * _KIB
            pages[size] = Room(size * count, size * count)
    return pages


def _distances(root: Path, ids: tuple[int, ...], notes: list[str]) -> tuple[tuple[int, ...], ...]:
    """Return the firmware's table (ACPI SLIT), complete or empty."""
    rows = []
    for id_ in ids:
        words = (read_text(root / _NODES / f"node{id_}/distance") or "").split()
        numbers = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= len("255")]
        if len(words) != len(ids) or len(numbers) != len(ids) or max(numbers) > MAX_DISTANCE:
            notes.append(f"node{id_}/distance is not a distance for each of {counted(len(ids), 'zone')}")
            return ()
        rows.append(tuple(numbers))
    return tuple(rows)


def _cpus(root: Path, zone_of: Mapping[int, int], notes: list[str]) -> tuple[Cpu, ...]:
    """Return CPUs by id. If one of them does not report its core, no two count as threads of the same core."""
    places = {cpu: _core(root / _CPUS / f"cpu{cpu}/topology") for cpu in sorted(zone_of)}
    unknown = next((cpu for cpu, place in places.items() if place is None), None)
    if unknown is not None:
        notes.append(f"CPU {unknown} does not report its core: each CPU counts as a core, each zone as a socket")
        places = {cpu: (zone_of[cpu], cpu) for cpu in places}
    return tuple(Cpu(cpu, zone_of[cpu], *place) for cpu, place in places.items() if place is not None)


def _core(directory: Path) -> tuple[int, int] | None:
    """Return socket and core. Some platforms write -1 for an unknown one."""
    socket, core = read_number(directory / "physical_package_id"), read_number(directory / "core_id")
    if socket is None or core is None or not (0 <= socket <= MAX_INT32 and 0 <= core <= MAX_INT32):
        return None
    return socket, core
