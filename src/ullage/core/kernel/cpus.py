"""Which CPUs of a machine a container gets exclusively: whole zones and sockets, then whole cores, then threads.

Zones, sockets and cores in use are filled first: of several the one with the fewest free CPUs, then the lowest id.
This is the packing order of the kubelet (pkg/kubelet/cm/cpumanager, cpu_assignment.go and policy_static.go).
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel import board as b
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.masks import NIL

_LEVELS = 3
"""Groups of CPUs from `OUTER` on: zones and sockets, the larger ones first, then cores."""


@compiled
def take_cpus(supplies: Rows, amount: int, mask: int, taken: Rows, reuse: bool) -> bool:
    """Take so many CPUs, in the zones of the mask first. Return whether they are too few.

    `supplies` are those of one machine, CPUs first and by id. What init containers returned is taken first
    (`reuse`), or like any free CPU, as a kubelet does.
    """
    cpus = _cpus_of(supplies)
    for at in range(cpus if reuse else 0):
        if amount > 0 and taken[at, b.STATUS] == b.REUSABLE:
            taken[at, b.STATUS] = b.HELD
            amount -= 1
    may = np.zeros(cpus, np.int64)
    for near in (True, False):
        if amount <= 0:
            break
        for at in range(cpus):
            inside = mask == NIL or supplies[at, b.ZONES] & mask != 0
            may[at] = taken[at, b.STATUS] in (b.OPEN, b.REUSABLE) and (inside or not near)
        amount = _take_packed(supplies, amount, may, taken)
    return bool(amount > 0)


@compiled
def are_whole_cores(supplies: Rows, amount: int, threads: int, taken: Rows, untouched: bool) -> bool:
    """Return whether a kubelet that allocates whole cores only (`full-pcpus-only`) tries to allocate so many CPUs.

    They must be a multiple of the CPUs of a core, and as many must be free on cores without a reserved CPU; what
    init containers returned is not free. If `untouched`, nothing was taken yet, and `taken` is not filled.
    """
    free = 0
    for at in range(_cpus_of(supplies)):
        left = supplies[at, b.FREE] > 0 if untouched else taken[at, b.STATUS] == b.OPEN
        free += left and supplies[at, b.WHOLE_CORE]
    return bool(amount % threads == 0 and amount <= free)


@compiled
def _cpus_of(supplies: Rows) -> int:
    cpus = 0
    while cpus < len(supplies) and supplies[cpus, b.RESOURCE] == b.CPUS and supplies[cpus, b.CORE] >= 0:
        cpus += 1
    return cpus


@compiled
def _take_packed(supplies: Rows, amount: int, may: Rows, taken: Rows) -> int:
    """Take of the CPUs that `may` be taken, in packing order. Return how many are missing."""
    sizes, free = _count(supplies, np.ones_like(may)), _count(supplies, may)
    for level in range(_LEVELS + 1):
        while amount > 0:
            first = _first(supplies, may, sizes, free, level, amount)
            if first < 0:
                break
            for at in range(len(may)):
                if at == first or (
                    level < _LEVELS and supplies[at, b.OUTER + level] == supplies[first, b.OUTER + level]
                ):
                    may[at], taken[at, b.STATUS] = 0, b.HELD
                    amount -= 1
                    for above in range(_LEVELS):
                        free[above, supplies[at, b.OUTER + above]] -= 1
    return amount


@compiled
def _count(supplies: Rows, which: Rows) -> Rows:
    """Return how many of these CPUs each group of each level has."""
    counts = np.zeros((_LEVELS, len(which)), np.int64)
    for at in range(len(which)):
        for level in range(_LEVELS):
            counts[level, supplies[at, b.OUTER + level]] += which[at]
    return counts


@compiled
def _first(supplies: Rows, may: Rows, sizes: Rows, free: Rows, level: int, amount: int) -> int:
    """Return a CPU of the next whole group of a level that is not too large, or the next CPU; -1 if none."""
    best = -1
    for at in range(len(may)):
        if not may[at]:
            continue
        if level < _LEVELS:
            group = supplies[at, b.OUTER + level]
            if not free[level, group] == sizes[level, group] <= amount:
                continue
        if best < 0 or _sooner(supplies, at, best, free, level):
            best = at
    return best


@compiled
def _sooner(supplies: Rows, at: int, than: int, free: Rows, level: int) -> bool:
    """Compare two CPUs by the first group that they do not share: fewer free CPUs first, then the lower id."""
    for each in range(min(level + 1, _LEVELS)):
        group, other = supplies[at, b.OUTER + each], supplies[than, b.OUTER + each]
        if group != other:
            return bool((free[each, group], group) < (free[each, other], other))
    return False
