"""Which CPUs of a machine a container gets alone: whole sockets, then whole cores, then single threads.

Sockets and cores that are in use already are filled first: of several the one with the fewest free CPUs, then
the lowest id. This is the packing order of the kubelet (pkg/kubelet/cm/cpumanager/cpu_assignment.go).
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.board import CORE, CPUS, HELD, MARK, OPEN, RESOURCE, REUSABLE, SOCKET, ZONES
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.masks import NIL


@compiled
def take_cpus(supplies: Rows, amount: int, mask: int, taken: Rows, again: bool) -> bool:
    """Take so many CPUs, in the zones of the mask first. Whether it was too few.

    `supplies` are those of one machine, CPUs first and by id. What an init container left is taken first
    (`again`), or else as if it had never been taken: so a kubelet does.
    """
    cpus = 0
    while cpus < len(supplies) and supplies[cpus, RESOURCE] == CPUS:
        cpus += 1
    for at in range(cpus if again else 0):
        if amount > 0 and taken[at, MARK] == REUSABLE:
            taken[at, MARK] = HELD
            amount -= 1
    may = np.zeros(cpus, np.int64)
    for near in (True, False):
        for at in range(cpus):
            inside = mask == NIL or supplies[at, ZONES] & mask != 0
            may[at] = taken[at, MARK] in (OPEN, REUSABLE) and (inside or not near)
        amount = _take_packed(supplies, amount, may, taken)
    return bool(amount > 0)


@compiled
def _take_packed(supplies: Rows, amount: int, may: Rows, taken: Rows) -> int:
    """Take of the CPUs that it may, in packing order; how many are missing."""
    every = np.ones_like(may)
    in_socket, in_core = _count(supplies, SOCKET, every), _count(supplies, CORE, every)
    free_in_socket, free_in_core = _count(supplies, SOCKET, may), _count(supplies, CORE, may)
    for at in range(len(may)):
        socket = supplies[at, SOCKET]
        if may[at] and amount >= in_socket[socket] == free_in_socket[socket]:
            amount -= _take_all(supplies, SOCKET, socket, may, taken)
    free_in_socket = _count(supplies, SOCKET, may)
    while amount > 0:
        first = _first(supplies, may, free_in_socket, free_in_core, in_core, amount)
        if first < 0:
            break
        socket, core = supplies[first, SOCKET], supplies[first, CORE]
        if free_in_core[core] == in_core[core] <= amount:
            took = _take_all(supplies, CORE, core, may, taken)
        else:
            may[first], taken[first, MARK], took = 0, HELD, 1
        free_in_socket[socket] -= took
        free_in_core[core] -= took
        amount -= took
    return amount


@compiled
def _count(supplies: Rows, column: int, which: Rows) -> Rows:
    """How many of these CPUs each socket, or each core, has."""
    counts = np.zeros(len(which), np.int64)
    for at in range(len(which)):
        counts[supplies[at, column]] += which[at]
    return counts


@compiled
def _take_all(supplies: Rows, column: int, of: int, may: Rows, taken: Rows) -> int:
    """Take all CPUs of a socket or a core; how many they are."""
    took = 0
    for at in range(len(may)):
        if may[at] and supplies[at, column] == of:
            may[at], taken[at, MARK] = 0, HELD
            took += 1
    return took


@compiled
def _first(supplies: Rows, may: Rows, free_in_socket: Rows, free_in_core: Rows, in_core: Rows, amount: int) -> int:
    """The CPU that goes next: of a free core that is not too large if there is one; -1 if there is none at all."""
    best, best_whole = -1, False
    for at in range(len(may)):
        if not may[at]:
            continue
        core = supplies[at, CORE]
        whole = free_in_core[core] == in_core[core] <= amount
        if best < 0 or whole > best_whole:
            best, best_whole = at, whole
        elif whole == best_whole and _sooner(supplies, at, best, free_in_socket, free_in_core):
            best = at
    return best


@compiled
def _sooner(supplies: Rows, at: int, than: int, free_in_socket: Rows, free_in_core: Rows) -> bool:
    """Whether the socket of a CPU, else its core, has fewer free ones than another's, or as many and a lower id."""
    socket, other = supplies[at, SOCKET], supplies[than, SOCKET]
    if socket != other:
        return bool((free_in_socket[socket], socket) < (free_in_socket[other], other))
    core, beside = supplies[at, CORE], supplies[than, CORE]
    return bool((free_in_core[core], core) < (free_in_core[beside], beside))
