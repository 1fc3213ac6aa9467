"""Closes cards to the executors that do not hold them, by the device controller of cgroup version 1.

Version 2 has no files for this: it needs an eBPF program, which is not loaded here. There, and where this process may
not write to the controller, an executor only gets `CUDA_VISIBLE_DEVICES`, and could open others.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ullage.engines.local.cgroup import Cell, file_name, own_directory, remove, write
from ullage.model.gpu import Gpu

_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)
_UNUSED = "c 4095:1048575 rwm"
"""A device that no driver has: denying it shows whether this process may deny any."""

CLOSED = "cards are closed to executors that do not hold them (device cgroup)"
OPEN = "cards are not closed: no writable device controller of cgroup v1, and v2 needs an eBPF program"


class CardDevices:
    """The device nodes of the cards of this machine.

    `roots` are the directories below which each executor gets its own; none: nothing is closed.
    """

    def __init__(self, cards: Sequence[Gpu], name: str, proc: Path = Path("/proc"), dev: Path = Path("/dev")) -> None:
        self._cards, self._proc, self._dev = cards, proc, dev
        root = own_directory(proc, "devices") if cards else None
        self.roots: tuple[Path, ...] = () if root is None or not _is_writable(root / name) else (root / name,)

    @property
    def layer(self) -> str:
        """A sentence on what keeps executors from cards that they do not hold; "" without cards."""
        if not self._cards:
            return ""
        return CLOSED if self.roots else OPEN

    def close(self, cell: Cell, executor: str, held: Sequence[Gpu]) -> Cell:
        """Return the cell with a cgroup in which all cards but those held are closed.

        Raises:
            OSError: the kernel refuses; nothing is left behind.

        """
        for root in self.roots:
            directory = root / file_name(executor)
            cell = replace(cell, directories=(*cell.directories, directory))
            try:
                directory.mkdir(parents=True)
                for rule in sorted(self._rules(held)):
                    write(directory / "devices.deny", f"{rule} rwm")
            except OSError:
                cell.remove()
                raise
        return cell

    def _rules(self, held: Sequence[Gpu]) -> set[str]:
        """Return the devices that are closed, such as `c 195:1`."""
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


def _numbers(paths: Iterable[Path]) -> set[str]:
    """Return the types and numbers of device nodes; what is no device node is left out."""
    found = set()
    for path in paths:
        try:
            facts = path.stat()
        except OSError:
            continue
        kind = "c" if stat.S_ISCHR(facts.st_mode) else "b" if stat.S_ISBLK(facts.st_mode) else ""
        if kind:
            found.add(f"{kind} {os.major(facts.st_rdev)}:{os.minor(facts.st_rdev)}")
    return found


def _is_writable(root: Path) -> bool:
    try:
        root.mkdir(exist_ok=True)
        write(root / "devices.deny", _UNUSED)
    except OSError:
        remove(root)
        return False
    return True
