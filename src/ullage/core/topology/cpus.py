"""The CPUs of a machine as rows: the order in which they are packed, and which are reserved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ullage.core.kernel import board as at
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.cpus import take_cpus
from ullage.core.kernel.masks import NIL
from ullage.model.topology import MAX_ZONES, Cpu


def threads_of(cpus: Sequence[Cpu]) -> int:
    """Return the CPUs per core as the kubelet counts them: the mean, rounded down."""
    return len(cpus) // max(1, len({(cpu.socket, cpu.core) for cpu in cpus}))


def groups_of(cpus: Sequence[Cpu]) -> list[tuple[int, int, int]]:
    """Return per CPU, by id, the numbers of its zone and its socket, the larger one first, and of its core.

    A core belongs to one socket, and cores are numbered by their lowest CPU. Zones are the larger groups if there are
    no more of them than sockets.
    """
    zones = {zone: number for number, zone in enumerate(sorted({_zone_or_none(cpu) for cpu in cpus}))}
    sockets = {socket: number for number, socket in enumerate(sorted({cpu.socket for cpu in cpus}))}
    cores = {core: number for number, core in enumerate(dict.fromkeys((cpu.socket, cpu.core) for cpu in cpus))}
    found = []
    for cpu in cpus:
        groups = zones[_zone_or_none(cpu)], sockets[cpu.socket]
        outer, inner = groups if len(sockets) >= len(zones) else groups[::-1]
        found.append((outer, inner, cores[cpu.socket, cpu.core]))
    return found


def _zone_or_none(cpu: Cpu) -> int:
    return MAX_ZONES if cpu.zone is None else cpu.zone


def reserve(supplies: Rows, count: int) -> None:
    """Reserve so many CPUs, in packing order."""
    taken = np.zeros((len(supplies), at.TAKEN_COLUMNS), np.int64)
    taken[:, at.STATUS] = np.where(supplies[:, at.RESOURCE] == at.CPUS, at.OPEN, at.OUT_OF_REACH)
    take_cpus(supplies, count, NIL, taken, False)
    supplies[taken[:, at.STATUS] == at.HELD, at.FREE] = 0


def mark_broken_cores(supplies: Rows) -> None:
    """Mark the CPUs whose core has a reserved CPU."""
    cpus = supplies[supplies[:, at.RESOURCE] == at.CPUS]
    broken = np.isin(cpus[:, at.CORE], cpus[cpus[:, at.FREE] == 0, at.CORE])
    supplies[: len(cpus), at.WHOLE_CORE] = ~broken
