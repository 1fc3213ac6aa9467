"""What to ask for instead where zones say no: the nearest requests, each still to be tried.

Under a policy that refuses, all aligned resources must be as narrow as each other: many cards with few CPUs
are refused even by an empty machine (the width trap). More CPUs, fewer cards or a milder policy pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

from ullage.core.books.fleet import Fleet
from ullage.core.kernel import board as at
from ullage.model.alignment import Alignment, Level
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI
from ullage.model.topology import ZonePolicy


def nearest_changes(fleet: Fleet, asked: ResourceRequirement) -> Iterator[ResourceRequirement]:
    """Requests that differ in one thing, the one that keeps most of what was asked first.

    More CPUs (whole cores where a kubelet hands out nothing else; one more than fit into one zone, or into several; a
    part of a CPU, which leaves all of them unaligned), a milder policy, pairs that are only preferred, fewer
    cards, no alignment at all. Of a pod's containers the policy and the pairs.
    """
    yield from () if asked.alignment.containers else _other_cpus(fleet, asked)
    policy = asked.alignment.policy
    if policy is not None and policy.required:
        milder = list(ZonePolicy)[1 : policy.rank]
        yield from (replace(asked, alignment=replace(asked.alignment, policy=each)) for each in reversed(milder))
    if asked.alignment.has_required_pair:
        wished = tuple(replace(pair, level=Level.PREFERRED) for pair in asked.alignment.pairs)
        yield replace(asked, alignment=replace(asked.alignment, pairs=wished))
    if asked.alignment.containers or asked.cards.indices:
        return
    for cards in range(asked.gpu_count - 1, 0, -1):
        yield replace(asked, gpu_count=cards)
    if asked.alignment.effective_policy not in (None, ZonePolicy.NONE):
        yield replace(asked, alignment=Alignment(ZonePolicy.NONE))


def _other_cpus(fleet: Fleet, asked: ResourceRequirement) -> Iterator[ResourceRequirement]:
    whole, part = divmod(asked.cpu_milli, MILLI)
    if whole and not part:
        for threads in sorted(_threads_of_cores(fleet)):
            if whole % threads:
                yield replace(asked, cpu_milli=-(-whole // threads) * threads * MILLI)
    if whole and not part and asked.gpu_count:
        for cpus in sorted({number + 1 for number in _cpus_of_zones(fleet) if number >= whole}):
            yield replace(asked, cpu_milli=cpus * MILLI)
        yield replace(asked, cpu_milli=asked.cpu_milli + MILLI // 2)


def _threads_of_cores(fleet: Fleet) -> set[int]:
    """Return how many CPUs a core has where a kubelet hands out whole ones only."""
    return {threads for threads in fleet.board.rows.machines[:, at.THREADS].tolist() if threads > 1}


def _cpus_of_zones(fleet: Fleet) -> set[int]:
    """Return the most CPUs that one zone of a machine has, that two have, and so on, over all machines."""
    found: set[int] = set()
    for topology in fleet.board.topologies:
        counts = Counter(cpu.zone for cpu in topology.cpus if cpu.zone is not None)
        found.update(accumulate(sorted(counts.values(), reverse=True)))
    return found
