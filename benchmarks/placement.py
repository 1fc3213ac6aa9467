"""Placements of mixed shapes on large fleets: how the time of one grows with the cluster.

Work: nodes of 8 cards, 120 shapes of which 4 of 10 ask for a part of a card, drawn with a fixed seed, through
the allocator: quota, table, choice, charge, ledger. Beside it, in the same run, a naive scan: the same books,
every node looked at for every request with whole-array NumPy operations.
"""

from __future__ import annotations

import gc
import random
import resource
import statistics
import time

import numpy as np

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.learning.learned import Learning
from ullage.core.placing.decision import Refusal
from ullage.core.placing.placement import table_of
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement

_GIB = 1 << 30
_CARDS = 8
_SHAPES = 120
_SIZES = ((1_000, 3_000), (10_000, 10_000), (100_000, 5_000))
_NAIVE = 300
_REFUSALS = 5
_FIRST = 100
"""Placements before the clock runs: what was compiled is read."""


def fleet_of(nodes: int) -> Fleet:
    """Nodes with 8 cards of 80 GiB each."""
    return Fleet(
        Node(
            f"node-{n:06}",
            128_000,
            1024 * _GIB,
            tuple(Gpu(f"{n:06}-{k}", k, vram_bytes=80 * _GIB, compute_gflops=1_000_000) for k in range(_CARDS)),
        )
        for n in range(nodes)
    )


def shapes() -> list[ResourceRequirement]:
    """4 of 10 ask for a part of a card, 4 for one card, the others for 2, 4 or 8."""
    found = []
    for number in range(_SHAPES):
        cpu, memory = 1 + number % 12, f"{4 + number % 29}g"
        kind = number % 10
        if kind < 4:
            text = f"tflops={50 + 7 * number},vram={2 + number % 37}g"
        else:
            text = f"gpu={1 if kind < 8 else (2, 4, 8)[number // 10 % 3]}"
        found.append(ResourceRequirement.from_string(f"cpu={cpu},mem={memory},{text}"))
    return found


def requests(count: int) -> list[Request]:
    """Of these shapes and 20 namespaces, drawn with a fixed seed."""
    rng, kinds = random.Random(1), shapes()
    return [Request(f"r{n}", rng.choice(kinds), Claim(f"team-{rng.randrange(20)}")) for n in range(count)]


class _Counting(Learning):
    """Counts what arrives and makes nothing of it: another strategy decides here."""

    def follow(self, fleet: Fleet) -> None:
        """No books."""


def allocator_of(fleet: Fleet) -> FleetAllocator:
    """With a quota per namespace that nothing reaches."""
    quota = Quota(total_requests=Caps(10**15, 1 << 60), max_workers=10**9)
    rules = Rules(strategy="best-fit", quotas=Quotas({f"team-{n}": quota for n in range(20)}))
    allocator = FleetAllocator(fleet, rules, _Counting())
    allocator.set_ready()
    return allocator


def naive(fleet: Fleet, asked: ResourceRequirement) -> int:
    """The node a scan of everything would take: fits, and least is left of its cards."""
    cards = asked.gpu_count
    fits = (fleet.cpu_free >= asked.cpu_milli) & (fleet.memory_free >= asked.memory_bytes)
    if asked.part is None:
        roomy = fleet.card_users == 0
    else:
        roomy = (fleet.compute_free >= asked.part.compute_gflops) & (fleet.vram_free >= asked.part.vram_bytes)
    fits &= np.add.reduceat(roomy, fleet.gpu_start[:-1]) >= cards
    left = np.add.reduceat(fleet.vram_free, fleet.gpu_start[:-1])
    return int(np.where(fits, -left, np.iinfo(np.int64).min).argmax())


def measured(nodes: int, count: int) -> float:
    """Print what one size took; seconds of the processor per placement."""
    fleet = fleet_of(nodes)
    allocator, waiting = allocator_of(fleet), requests(count + _FIRST)
    started, rules = time.process_time(), allocator.rules
    for asked in {id(request.requirement): request for request in waiting}.values():
        table_of(fleet, asked.requirement, rules.strategy_of(asked), rules.cap)
    tables = time.process_time() - started
    for request in waiting[:_FIRST]:
        allocator.alloc(request, 0.0)
    gc.collect()
    gc.freeze()
    taken, started = [], time.process_time()
    for request in waiting[_FIRST:]:
        before = time.perf_counter()
        placed = allocator.alloc(request, 0.0)
        taken.append(time.perf_counter() - before)
        assert isinstance(placed, Allocation)
    mean = (time.process_time() - started) / count
    started = time.process_time()
    for request in waiting[:_NAIVE]:
        naive(fleet, request.requirement)
    scan, started = (time.process_time() - started) / _NAIVE, time.process_time()
    for _ in range(_REFUSALS):
        refuse(allocator)
    refused = (time.process_time() - started) / _REFUSALS
    p50, p99 = (statistics.quantiles(taken, n=100)[q] * 1e6 for q in (49, 98))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(
        f"  {nodes:7,} nodes {nodes * _CARDS:8,} cards {count:7,} requests  {1 / mean:8,.0f}/s  "
        f"p50 {p50:4.0f} us  p99 {p99:4.0f} us  tables {tables:5.1f} s  memory {memory:5.2f} GiB  "
        f"a refusal {refused * 1e3:6.1f} ms  naive scan {scan * 1e6:7,.0f} us, {scan / mean:6.1f} x"
    )
    return mean


def refuse(allocator: FleetAllocator) -> None:
    """A request that no node has enough cards for, and why."""
    asked = ResourceRequirement.from_string(f"gpu={_CARDS + 1}")
    reported = allocator.check_quota_and_filter(Request("too-wide", asked, Claim("team-0")))
    assert isinstance(reported, Refusal)
    assert reported.code is Code.NOT_ENOUGH_CARDS


def main() -> None:
    """Every size."""
    print(
        f"{_SHAPES} shapes, 4 of 10 for parts of cards, one by one through quota, table, books and ledger; "
        "rates are of the processor's time"
    )
    means = [measured(nodes, count) for nodes, count in _SIZES]
    print(f"  the largest takes {means[-1] / means[0]:.2f} x as long as the smallest")


if __name__ == "__main__":
    main()
