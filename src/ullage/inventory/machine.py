"""One machine as a node: its hardware, less what its container or service may not use.

All files are read below a root directory, so a recorded machine can be read as well; cards come from NVML.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ullage.inventory.cgroup import CgroupLimits, read_limits
from ullage.inventory.facts import CardFacts, absent, with_facts
from ullage.inventory.files import read_text
from ullage.inventory.gpus import Override, detect
from ullage.inventory.nvml import CardReader
from ullage.inventory.topology_reader import TopologyReader
from ullage.inventory.zone_record import read_total
from ullage.model.error import InvalidRequest, Unavailable, invalid
from ullage.model.gpu import Gpu
from ullage.model.idset import parse_ids
from ullage.model.name import MAX_NAME, check_name
from ullage.model.node import MAX_EXECUTORS, Node
from ullage.model.part import Isolation
from ullage.model.quantity import MAX_INT32, MAX_INT64
from ullage.model.resources import MILLI, Resources

_ALLOWED = re.compile(r"^Cpus_allowed_list:\s+(\S+)$", re.MULTILINE)
_OUTSIDE = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """The operator's settings of this machine; None means that a fact is discovered.

    `facts` are facts of cards. `can_enforce` returns whether users can be limited to parts of a card now.
    """

    name: str | None = None
    gpus: Override = None
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    reserved: Resources = field(default_factory=Resources)
    max_executors: int = MAX_EXECUTORS
    labels: dict[str, str] = field(default_factory=dict)
    facts: tuple[CardFacts, ...] = ()
    can_enforce: Callable[[Gpu], bool] = lambda _gpu: False


@dataclass(frozen=True, slots=True)
class Machine:
    """The node, and one sentence about the source that decided on its cards."""

    node: Node
    note: str


def discover(
    settings: MachineSettings,
    environment: Mapping[str, str],
    nvml: CardReader,
    *,
    root: Path = Path("/"),
    topology: TopologyReader | None = None,
) -> Machine:
    """Return the machine as it is now; cheap enough for each heartbeat.

    `topology` caches the topology of this machine; without it everything is read again.

    Raises:
        InvalidRequest: a setting is wrong; the message names it.
        Unavailable: the size of the memory is neither configured nor readable.

    """
    _check(settings)
    name = _host_name(root) if settings.name is None else check_name("node.name", settings.name)
    detection = detect(settings.gpus, environment, nvml, node=name)
    cards = tuple(_shareable(gpu, settings) for gpu in with_facts(detection.gpus, settings.facts))
    limits = read_limits(root)
    cpus = _usable_cpus(root)
    reading = (topology or TopologyReader(root)).read(cards, nvml, cpus)
    node = Node(
        name=name,
        cpu_milli=_cpu_milli(len(cpus), limits) if settings.cpu_milli is None else settings.cpu_milli,
        memory_bytes=_memory_bytes(root, limits) if settings.memory_bytes is None else settings.memory_bytes,
        gpus=reading.cards,
        reserved=settings.reserved,
        max_executors=settings.max_executors,
        labels=dict(settings.labels),
        arch=platform.machine() or None,
        os=platform.system().lower() or None,
        gpu_source=detection.source,
        topology=reading.topology,
        topology_note=reading.note,
    )
    unknown = ", ".join(absent(cards, settings.facts))
    return Machine(node, f"{detection.note} The facts of {unknown} match no card." if unknown else detection.note)


def _shareable(gpu: Gpu, settings: MachineSettings) -> Gpu:
    """Return the card with its supported isolation modes. Hardware slices are not made here: those that exist count."""
    if gpu.partitions is not None:
        return replace(gpu, isolation=Isolation.PARTITIONED, isolations=frozenset({Isolation.PARTITIONED}))
    enforced = {Isolation.HARD} if settings.can_enforce(gpu) else set()
    return replace(gpu, isolations=frozenset({Isolation.SOFT} | enforced))


def clean_name(text: str) -> str:
    """Return a host name that is valid by `model.name`: `-` for other characters, `node` if nothing is left."""
    cleaned = re.sub(r"\.{2,}", ".", _OUTSIDE.sub("-", text)).lstrip(".-")[:MAX_NAME]
    return cleaned or "node"


def _check(settings: MachineSettings) -> None:
    if settings.cpu_milli is not None:
        _check_amount("node.cpu", settings.cpu_milli, 1, MAX_INT64)
    if settings.memory_bytes is not None:
        _check_amount("node.memory", settings.memory_bytes, 1, MAX_INT64)
    _check_amount("node.max_executors", settings.max_executors, 1, MAX_INT32)
    _check_amount("node.reserved.cpu", settings.reserved.cpu_milli, 0, MAX_INT64)
    _check_amount("node.reserved.memory", settings.reserved.memory_bytes, 0, MAX_INT64)
    if settings.reserved.gpu_milli:
        raise invalid("node.reserved.gpu", settings.reserved.gpu_milli, "reserve cards by naming the others in gpus")


def _check_amount(name: str, amount: object, least: int, most: int) -> None:
    if isinstance(amount, bool) or not isinstance(amount, int) or not least <= amount <= most:
        raise invalid(name, amount, f"write a whole number of {least} to {most}")


def _host_name(root: Path) -> str:
    return clean_name(read_text(root / "proc/sys/kernel/hostname") or socket.gethostname())


def _cpu_milli(cpus: int, limits: CgroupLimits) -> int:
    """Return thousandths of a cpu: the cpus of the affinity mask, or the quota if that is less."""
    usable = cpus * MILLI
    return usable if limits.cpu_milli is None else min(usable, limits.cpu_milli)


def _usable_cpus(root: Path) -> frozenset[int]:
    """Return the cpus that are both online and in the process's affinity mask, as sched_getaffinity(2) counts them.

    /proc/self/status has the mask as it was set, which may name cpus that do not exist.
    """
    allowed = _ALLOWED.search(read_text(root / "proc/self/status") or "")
    try:
        cpus = frozenset(parse_ids(allowed[1], "Cpus_allowed_list")) if allowed else frozenset()
        online = read_text(root / "sys/devices/system/cpu/online")
        usable = cpus & frozenset(parse_ids(online, "cpu/online")) if online else cpus
    except InvalidRequest:
        usable = frozenset()
    # Not every kernel writes these lines; the system call always answers.
    return usable or frozenset(os.sched_getaffinity(0))


def _memory_bytes(root: Path, limits: CgroupLimits) -> int:
    installed = read_total(root / "proc/meminfo")
    if installed is None:
        raise Unavailable("cannot read MemTotal in /proc/meminfo; set node.memory", code="memory-unreadable")
    return installed if limits.memory_bytes is None else min(installed, limits.memory_bytes)
