"""Limits on the resources of an executor, by the strongest means that this machine offers.

1. cgroup version 2, where the server's own cgroup is delegated to it (cgroups(7), "Delegation").
2. cgroup version 1, where the server may make directories in the memory controller.
3. Neither: the supervisor samples the memory, and ends an executor that holds too much.

`detect` chooses the layer; `Confinement.layer` describes it. In the first two, the kernel kills inside the cgroup
when its memory is full, and counts the kills. Only the first enforces the CPUs of an executor. In the others the
executor can change the affinity that the supervisor sets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from ullage.model.idset import format_ids
from ullage.model.request import ResourceRequirement

PERIOD_US = 100_000
"""Period of the cpu quota: the kernel's default."""

_PEAKS = ("memory.peak", "memory.max_usage_in_bytes")
"""The files of the most memory, in version 2 (since Linux 5.19) and in version 1."""

_LEAST_QUOTA_US = 1000  # the kernel refuses less
_SERVER = "ullage-server"  # a delegated server moves itself here: version 2 allows no processes in inner nodes


@dataclass(frozen=True, slots=True)
class Cell:
    """The limits of one executor: cgroup directories to join, or bytes for the supervisor to enforce."""

    directories: tuple[Path, ...] = ()
    watched_bytes: int | None = None
    counter: Path | None = None

    def kills(self) -> int:
        """Return how many processes the kernel killed because the memory was full."""
        if self.counter is None:
            return 0
        try:
            text = self.counter.read_text(encoding="ascii")
        except OSError:
            return 0
        match = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
        return int(match.group(1)) if match else 0

    def peak_bytes(self) -> int | None:
        """Return the most memory that its processes had together, by the kernel; None where it does not count that."""
        if self.counter is None:
            return None
        for name in _PEAKS:
            try:
                return int(self.counter.with_name(name).read_text(encoding="ascii"))
            except (OSError, ValueError):
                continue
        return None

    def remove(self) -> bool:
        """Remove the directories. Return False if one is still in use, which passes soon."""
        return sum(remove(directory) for directory in self.directories) == len(self.directories)


class Confinement(Protocol):
    """One layer. `roots` are the directories below which each executor gets its own."""

    layer: str
    roots: tuple[Path, ...]

    def confine(self, executor: str, requirement: ResourceRequirement, cpus: Sequence[int] = ()) -> Cell:
        """Set the limits of an executor. With `cpus` it runs on these CPUs only.

        Raises:
            OSError: the kernel refuses; nothing is left behind.

        """


class Watching:
    """Enforces memory limits by sampling. Does not limit cpu."""

    layer: str = "watched: memory is checked twice a second, cpu is not limited (no writable cgroup)"
    roots: tuple[Path, ...] = ()

    def confine(self, executor: str, requirement: ResourceRequirement, cpus: Sequence[int] = ()) -> Cell:  # noqa: ARG002  # as the protocol says
        return Cell(watched_bytes=requirement.memory_bytes or None)


class Unified:
    """cgroup version 2 below `root`, which delegates `controllers`."""

    def __init__(self, root: Path, controllers: frozenset[str]) -> None:
        self.roots: tuple[Path, ...] = (root,)
        limited = sorted(controllers & {"memory", "cpu"}, reverse=True)
        self.layer: str = f"cgroup v2: {' and '.join(limited)} limited by the kernel"
        self._controllers = controllers

    def confine(self, executor: str, requirement: ResourceRequirement, cpus: Sequence[int] = ()) -> Cell:
        directory = self.roots[0] / file_name(executor)
        cell = Cell(directories=(directory,), counter=directory / "memory.events")
        try:
            directory.mkdir(parents=True)
            if requirement.memory_bytes:
                write(directory / "memory.max", requirement.memory_bytes)
                if (directory / "memory.swap.max").exists():
                    write(directory / "memory.swap.max", 0)
            if requirement.cpu_milli and "cpu" in self._controllers:
                write(directory / "cpu.max", f"{quota_us(requirement.cpu_milli)} {PERIOD_US}")
            if cpus and "cpuset" in self._controllers:
                write(directory / "cpuset.cpus", format_ids(cpus))
        except OSError:
            cell.remove()
            raise
        return cell


class Legacy:
    """cgroup version 1: a hierarchy for memory, and optionally one for cpu."""

    def __init__(self, memory: Path, cpu: Path | None) -> None:
        self.roots: tuple[Path, ...] = (memory, cpu) if cpu is not None and cpu != memory else (memory,)
        self.layer: str = f"cgroup v1: memory{'' if cpu is None else ' and cpu'} limited by the kernel"
        self._cpu = cpu

    def confine(self, executor: str, requirement: ResourceRequirement, cpus: Sequence[int] = ()) -> Cell:  # noqa: ARG002  # CPUs by affinity alone
        name = file_name(executor)
        directories = tuple(root / name for root in self.roots)
        memory, *_ = directories
        cell = Cell(directories=directories, counter=memory / "memory.oom_control")
        try:
            for directory in directories:
                directory.mkdir(parents=True)
            if requirement.memory_bytes:
                write(memory / "memory.limit_in_bytes", requirement.memory_bytes)
                swap = memory / "memory.memsw.limit_in_bytes"  # absent without swap accounting
                if swap.exists():
                    write(swap, requirement.memory_bytes)
            if requirement.cpu_milli and self._cpu is not None:
                write(self._cpu / name / "cpu.cfs_quota_us", quota_us(requirement.cpu_milli))
        except OSError:
            cell.remove()
            raise
        return cell


def detect(name: str, proc: Path = Path("/proc")) -> Confinement:
    """Return the strongest layer that works here. Its root directories are called `name`."""
    return _unified(name, proc) or _legacy(name, proc) or Watching()


class Survey(NamedTuple):
    """The cgroup of this process as far as it can be read: its version, 0 if no memory controller is there.

    In a `crowded` one of version 2 there are other processes, which forbids to divide it.
    """

    version: int
    directory: Path | None = None
    controllers: tuple[str, ...] = ()
    writable: bool = False
    crowded: bool = False


def survey(proc: Path = Path("/proc")) -> Survey:
    """Return what `detect` would find, without any change."""
    own = own_directory(proc, "")
    if own is not None and (offered := _offered(own)):
        return Survey(2, own, tuple(sorted(offered)), os.access(own, os.W_OK), crowded=_is_crowded(own, offered))
    memory = own_directory(proc, "memory")
    if memory is None or not memory.is_dir():
        return Survey(0)
    cpu = own_directory(proc, "cpu")
    limited = ("memory", "cpu") if cpu is not None and os.access(cpu, os.W_OK) else ("memory",)
    return Survey(1, memory, limited, os.access(memory, os.W_OK))


def _offered(own: Path) -> frozenset[str]:
    """Return the controllers of a cgroup of version 2 that executors use; none if it has no memory."""
    try:
        offered = frozenset(_read(own / "cgroup.controllers").split()) & {"memory", "cpu", "cpuset"}
    except OSError:
        return frozenset()
    return offered if "memory" in offered else frozenset()


def _is_crowded(own: Path, controllers: frozenset[str]) -> bool:
    if controllers <= set(_read(own / "cgroup.subtree_control").split()) or not (own / "cgroup.type").exists():
        return False
    return bool({int(pid) for pid in _read(own / "cgroup.procs").split()} - {os.getpid()})


def quota_us(cpu_milli: int) -> int:
    """Return the microseconds of processor time in each `PERIOD_US`."""
    return max(_LEAST_QUOTA_US, cpu_milli * PERIOD_US // 1000)


def executor_directories(roots: list[Path]) -> list[Path]:
    """Return the directories of executors below `roots`."""
    return [child for root in roots if root.is_dir() for child in root.iterdir() if child.is_dir()]


def remove(directory: Path) -> bool:
    """Remove a cgroup. Return False if it has processes."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _unified(name: str, proc: Path) -> Unified | None:
    own = own_directory(proc, "")
    if own is None:
        return None
    if own.name == _SERVER:  # an earlier engine of this process moved it here
        own = own.parent
    try:
        offered = frozenset(_read(own / "cgroup.controllers").split()) & {"memory", "cpu", "cpuset"}
        if "memory" not in offered or not _delegate(own, offered):
            return None
        root = own / name
        root.mkdir(exist_ok=True)
        write(root / "cgroup.subtree_control", " ".join(f"+{controller}" for controller in sorted(offered)))
    except OSError:
        return None
    return Unified(root, offered)


def _delegate(own: Path, controllers: frozenset[str]) -> bool:
    """Enable `controllers` for children of `own`. A server that is alone in `own` moves to a child."""
    if controllers <= set(_read(own / "cgroup.subtree_control").split()):
        return True
    members = {int(pid) for pid in _read(own / "cgroup.procs").split()}
    inner = (own / "cgroup.type").exists()  # only the machine's root lacks the file, and it may have processes
    if inner and members - {os.getpid()}:
        return False
    if inner and members:
        (own / _SERVER).mkdir(exist_ok=True)
        write(own / _SERVER / "cgroup.procs", os.getpid())
    write(own / "cgroup.subtree_control", " ".join(f"+{controller}" for controller in sorted(controllers)))
    return True


def _legacy(name: str, proc: Path) -> Legacy | None:
    memory = _writable(own_directory(proc, "memory"), name, "memory.limit_in_bytes")
    if memory is None:
        return None
    return Legacy(memory, _writable(own_directory(proc, "cpu"), name, "cpu.cfs_quota_us"))


def _writable(own: Path | None, name: str, limit: str) -> Path | None:
    """Return a directory below `own` where limits can be set."""
    if own is None:
        return None
    root = own / name
    try:
        root.mkdir(exist_ok=True)
        write(root / limit, -1)  # no limit on the whole
    except OSError:
        remove(root)
        return None
    return root


def own_directory(proc: Path, controller: str) -> Path | None:
    """Return the directory of this process's cgroup for `controller`; "" is version 2. See cgroups(7)."""
    try:
        memberships = _read(proc / "self/cgroup").splitlines()
        mounts = _read(proc / "self/mountinfo").splitlines()
    except OSError:
        return None
    for membership in memberships:
        number, controllers, path = membership.split(":", 2)
        if controller in controllers.split(",") and (controller or number == "0"):
            return _mounted(mounts, controller, path)
    return None


def _mounted(mounts: list[str], controller: str, path: str) -> Path | None:
    """Return the directory of cgroup `path`: proc_pid_mountinfo(5) gives the root and mount point of each mount."""
    for mount in mounts:
        fields, _, source = mount.partition(" - ")
        kind, _, options = source.split(" ", 2)
        if kind != ("cgroup" if controller else "cgroup2") or (controller and controller not in options.split(",")):
            continue
        root, mount_point = fields.split(" ")[3:5]
        if path == root or path.startswith(f"{root.rstrip('/')}/"):
            return Path(mount_point) / path.removeprefix(root).lstrip("/")
    return None


def file_name(executor: str) -> str:
    """Return the name of an executor as one of a directory."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", executor).lstrip(".") or "_"


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii")


def write(path: Path, value: int | str) -> None:
    """Write a value to a file of a cgroup. Raises OSError if the kernel refuses."""
    path.write_text(str(value), encoding="ascii")
