"""Which CPUs of a machine a container gets alone: whole zones and sockets, then whole cores, then single threads.

Zones, sockets and cores that are in use already are filled first: of several the one with the fewest free CPUs, then
the lowest id. This is the packing order of the kubelet (pkg/kubelet/cm/cpumanager, cpu_assignment.go and
policy_static.go).
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.board import CORE, CPUS, FREE, HELD, MARK, OPEN, OUTER, RESOURCE, REUSABLE, WHOLE_CORE, ZONES
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.masks import NIL

_LEVELS = 3
"""Groups of CPUs from `OUTER` on: zones and sockets, the larger ones first, then cores."""


@compiled
def take_cpus(supplies: Rows, amount: int, mask: int, taken: Rows, again: bool) -> bool:
    """Take so many CPUs, in the zones of the mask first. Whether it was too few.

    `supplies` are those of one machine, CPUs first and by id. What an init container left is taken first
    (`again`), or else as if it had never been taken: so a kubelet does.
    """
    cpus = _cpus_of(supplies)
    for at in range(cpus if again else 0):
        if amount > 0 and taken[at, MARK] == REUSABLE:
            taken[at, MARK] = HELD
            amount -= 1
    may = np.zeros(cpus, np.int64)
    for near in (True, False):
        if amount <= 0:
            break
        for at in range(cpus):
            inside = mask == NIL or supplies[at, ZONES] & mask != 0
            may[at] = taken[at, MARK] in (OPEN, REUSABLE) and (inside or not near)
        amount = _take_packed(supplies, amount, may, taken)
    return bool(amount > 0)


@compiled
def are_whole_cores(supplies: Rows, amount: int, threads: int, taken: Rows, untouched: bool) -> bool:
    """Whether a kubelet that hands out whole cores only (`full-pcpus-only`) would try to give so many CPUs.

    They are a multiple of the CPUs of a core, and so many are free on cores of which none is reserved; what an
    init container of the same pod left does not count. `untouched`: nothing was taken yet, and `taken` is not filled.
    """
    free = 0
    for at in range(_cpus_of(supplies)):
        left = supplies[at, FREE] > 0 if untouched else taken[at, MARK] == OPEN
        free += left and supplies[at, WHOLE_CORE]
    return bool(amount % threads == 0 and amount <= free)


@compiled
def _cpus_of(supplies: Rows) -> int:
    cpus = 0
    while cpus < len(supplies) and supplies[cpus, RESOURCE] == CPUS and supplies[cpus, CORE] >= 0:
        cpus += 1
    return cpus


@compiled
def _take_packed(supplies: Rows, amount: int, may: Rows, taken: Rows) -> int:
    """Take of the CPUs that it may, in packing order; how many are missing."""
    sizes, free = _count(supplies, np.ones_like(may)), _count(supplies, may)
    for level in range(_LEVELS + 1):
        while amount > 0:
            first = _first(supplies, may, sizes, free, level, amount)
            if first < 0:
                break
            for at in range(len(may)):
                if at == first or (level < _LEVELS and supplies[at, OUTER + level] == supplies[first, OUTER + level]):
                    may[at], taken[at, MARK] = 0, HELD
                    amount -= 1
                    for above in range(_LEVELS):
                        free[above, supplies[at, OUTER + above]] -= 1
    return amount


@compiled
def _count(supplies: Rows, which: Rows) -> Rows:
    """How many of these CPUs each group of each level has."""
    counts = np.zeros((_LEVELS, len(which)), np.int64)
    for at in range(len(which)):
        for level in range(_LEVELS):
            counts[level, supplies[at, OUTER + level]] += which[at]
    return counts


@compiled
def _first(supplies: Rows, may: Rows, sizes: Rows, free: Rows, level: int, amount: int) -> int:
    """A CPU of the whole group of a level that goes next and is not too large, or the CPU that does; -1: none."""
    best = -1
    for at in range(len(may)):
        if not may[at]:
            continue
        if level < _LEVELS:
            group = supplies[at, OUTER + level]
            if not free[level, group] == sizes[level, group] <= amount:
                continue
        if best < 0 or _sooner(supplies, at, best, free, level):
            best = at
    return best


@compiled
def _sooner(supplies: Rows, at: int, than: int, free: Rows, level: int) -> bool:
    """Whether the first group that two CPUs do not share has fewer free ones for the one, or as many and a lower id."""
    for each in range(min(level + 1, _LEVELS)):
        group, other = supplies[at, OUTER + each], supplies[than, OUTER + each]
        if group != other:
            return bool((free[each, group], group) < (free[each, other], other))
    return False
