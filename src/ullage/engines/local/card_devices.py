"""Closes cards to the executors that do not hold them, by the device controller of cgroups.

Version 1 has files for it, version 2 takes an eBPF program. Where this process may use neither, an executor only gets
`CUDA_VISIBLE_DEVICES`, and could open others.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ullage.engines.local.cgroup import Cell, Confinement, Unified, file_name, own_directory, remove, write
from ullage.engines.local.device_program import DeviceNode, attach
from ullage.model.gpu import Gpu

_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)
_UNUSED = DeviceNode("c", 4095, 1048575)
"""A device that no driver has: denying it shows whether this process may deny any."""

CLOSED = "cards are closed to executors that do not hold them (device cgroup)"
_V1, _NO_V2 = "no writable device controller of cgroup v1", "no writable cgroup v2 below which executors run"


class Closer(Protocol):
    """One way to close devices. `roots` are the directories below which each executor gets its own."""

    roots: tuple[Path, ...]

    def close(self, cell: Cell, executor: str, nodes: Iterable[DeviceNode]) -> Cell:
        """Return the cell with a cgroup in which these device nodes are closed.

        Raises:
            OSError: the kernel refuses; what the returned cell would have is not removed.

        """


class LegacyCloser:
    """The device controller of version 1: a cgroup of its own for each executor."""

    def __init__(self, root: Path) -> None:
        self.roots: tuple[Path, ...] = (root,)

    def close(self, cell: Cell, executor: str, nodes: Iterable[DeviceNode]) -> Cell:
        (root,) = self.roots
        directory = root / file_name(executor)
        directory.mkdir(parents=True)
        try:
            for node in nodes:
                write(directory / "devices.deny", _rule(node))
        except OSError:
            remove(directory)
            raise
        return replace(cell, directories=(*cell.directories, directory))


class UnifiedCloser:
    """An eBPF program on the cgroup of version 2 that the executor has in `root` for its limits."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.roots: tuple[Path, ...] = ()  # those of the limits

    def close(self, cell: Cell, executor: str, nodes: Iterable[DeviceNode]) -> Cell:
        attach(self._root / file_name(executor), nodes)
        return cell


def find_closer(name: str, confinement: Confinement, proc: Path = Path("/proc")) -> tuple[Closer | None, str]:
    """Return a way to close devices that works here, and why there is none."""
    legacy = own_directory(proc, "devices")
    if legacy is not None and _is_writable(legacy / name):
        return LegacyCloser(legacy / name), ""
    if not isinstance(confinement, Unified):
        return None, f"{_V1}, and {_NO_V2}"
    (root,) = confinement.roots
    probe = root / "devices-probe"
    try:
        probe.mkdir(exist_ok=True)
        attach(probe, [_UNUSED])
    except OSError as error:
        needs = "an eBPF program on cgroup v2 needs CAP_BPF and CAP_NET_ADMIN, or CAP_SYS_ADMIN"
        return None, f"{_V1}, and {needs}: {error.strerror}"
    finally:
        remove(probe)
    return UnifiedCloser(root), ""


class CardDevices:
    """The device nodes of the cards of this machine, and the way to close them; with None, `why` there is none."""

    def __init__(
        self,
        cards: Sequence[Gpu],
        closer: Closer | None,
        why: str = "",
        *,
        proc: Path = Path("/proc"),
        dev: Path = Path("/dev"),
    ) -> None:
        self._cards, self._closer, self._why = cards, closer if cards else None, why
        self._proc, self._dev = proc, dev

    @property
    def roots(self) -> tuple[Path, ...]:
        """The directories below which each executor gets its own for its devices."""
        return () if self._closer is None else self._closer.roots

    @property
    def layer(self) -> str:
        """A sentence on what keeps executors from cards that they do not hold; "" without cards."""
        if not self._cards:
            return ""
        return f"cards are not closed: {self._why}" if self._closer is None else CLOSED

    def close(self, cell: Cell, executor: str, held: Sequence[Gpu]) -> Cell:
        """Return the cell with a cgroup in which all cards but those held are closed.

        Raises:
            OSError: the kernel refuses; nothing is left behind.

        """
        if self._closer is None:
            return cell
        try:
            return self._closer.close(cell, executor, sorted(self._rules(held)))
        except OSError:
            cell.remove()
            raise

    def _rules(self, held: Sequence[Gpu]) -> set[DeviceNode]:
        """Return the device nodes that are closed."""
        found = {gpu.uuid: self._nodes(gpu) for gpu in (*self._cards, *held)}
        mine = [found[gpu.uuid] for gpu in held]
        every = {path for nodes in found.values() for path in nodes}
        if all(mine):  # else the node of a held card is not known, and must not be closed as an unknown one
            every.update(path for path in self._dev.glob("nvidia[0-9]*"))
        return _numbers(every) - _numbers(path for nodes in mine for path in nodes)

    def _nodes(self, gpu: Gpu) -> tuple[Path, ...]:
        """Return the device nodes of a card: those of the settings, else that of NVIDIA's driver; none if unknown."""
        if gpu.devices:
            return tuple(map(Path, gpu.devices))
        if gpu.bus_id is None:
            return ()
        try:
            text = (self._proc / "driver/nvidia/gpus" / gpu.bus_id / "information").read_text(errors="replace")
        except OSError:
            return ()
        match = _MINOR.search(text)
        return () if match is None else (self._dev / f"nvidia{match.group(1)}",)


def _rule(node: DeviceNode) -> str:
    return f"{node.type} {node.major}:{node.minor} rwm"


def _numbers(paths: Iterable[Path]) -> set[DeviceNode]:
    """Return the types and numbers of device nodes; what is no device node is left out."""
    found = set()
    for path in paths:
        try:
            facts = path.stat()
        except OSError:
            continue
        kind = "c" if stat.S_ISCHR(facts.st_mode) else "b" if stat.S_ISBLK(facts.st_mode) else ""
        if kind:
            found.add(DeviceNode(kind, os.major(facts.st_rdev), os.minor(facts.st_rdev)))
    return found


def _is_writable(root: Path) -> bool:
    try:
        root.mkdir(exist_ok=True)
        write(root / "devices.deny", _rule(_UNUSED))
    except OSError:
        remove(root)
        return False
    return True
