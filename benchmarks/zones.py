"""Zones: what hints, merge and picking take on one node, and what they add to a placement.

Work: on one machine (two zones with 8 cards and 64 CPUs, and eight zones with 16 cards and 256 CPUs), about half
of both in use by a fixed seed, a request for 2 cards and 8 CPUs is decided again and again in compiled code, under
each policy. Then mixed requests are placed on fleets of two-zone machines through quota, table, choice and ledger:
the same ones with zones known and asked for, with zones known and not asked for, and with no zones known. Time is
that of the process.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace

import numpy as np

from benchmarks.placement import allocator_of
from ullage.core.books.fleet import Fleet
from ullage.core.kernel.alignment import choose_aligned
from ullage.core.kernel.board import FREE
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.verdict.shape import shape_of
from ullage.model.alignment import Alignment
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement
from ullage.model.topology import Cpu, Topology, Zone, ZonePolicy

_GIB = 1 << 30
_TIMES = 20_000
_MACHINES = ((8, 2, 64), (16, 8, 256))
_FLEETS = ((1_000, 3_000), (10_000, 10_000))
_FIRST = 200
_TURNS = 3
_SHAPES = [(cpu, cards) for cpu in (2, 4, 6, 8, 12, 16) for cards in (1, 1, 1, 2, 4, 8)]


def machine(name: str, cards: int, zones: int, cpus: int) -> Node:
    """A machine with its cards and CPUs spread evenly over its zones, two threads to a core."""
    gpus = tuple(Gpu(f"{name}-{k}", k, vram_bytes=80 * _GIB, zones=(k * zones // cards,)) for k in range(cards))
    seats = tuple(Cpu(c, c * zones // cpus, c * zones // cpus, c // 2) for c in range(cpus))
    topology = Topology(tuple(Zone(zone) for zone in range(zones)), cpus=seats)
    return Node(name, cpus * 1000, 1024 * _GIB, gpus, topology=topology)


@compiled
def choose_many(nodes: Rows, cards: Rows, shape: Rows, free: Rows, marks: Rows, arena: Rows, times: int) -> int:
    """One request decided on the first node so many times, in compiled code."""
    admitted = 0
    for _ in range(times):
        marks[:] = free
        admitted += choose_aligned(nodes, cards, 0, shape, marks, arena)
    return admitted


def one_node(cards: int, zones: int, cpus: int) -> None:
    """Print what a decision takes on a machine that is half in use."""
    fleet, rng, run = Fleet([machine("n", cards, zones, cpus)]), random.Random(1), choose_many
    free = np.array([rng.random() < 0.5 for _ in range(cards)], np.int64)
    fleet.board.supplies[[rng.random() < 0.5 for _ in range(cpus)], FREE] = 0
    reported = []
    for policy in ZonePolicy:
        asked = ResourceRequirement(8000, 0, 2, alignment=Alignment(policy))
        shape = shape_of(fleet, asked).rows
        arguments = fleet.node_rows, fleet.card_rows, shape, free, np.zeros(cards, np.int64), fleet.board.store
        run(*arguments, 1)
        started = time.process_time()
        run(*arguments, _TIMES)
        reported.append(f"{policy} {(time.process_time() - started) / _TIMES * 1e6:5.2f} us")
    print(f"  {cards:2} cards, {zones} zones, {cpus:3} CPUs: {', '.join(reported)}")


def placed(nodes: int, count: int, policy: ZonePolicy | None, *, known: bool) -> float:
    """Seconds per placement on a fleet of two-zone machines."""
    inventory = [machine(f"node-{n:06}", 8, 2, 64) for n in range(nodes)]
    if not known:
        inventory = [
            replace(node, topology=None, gpus=tuple(replace(gpu, zones=()) for gpu in node.gpus)) for node in inventory
        ]
    allocator, rng = allocator_of(Fleet(inventory)), random.Random(2)
    shapes = [ResourceRequirement(cpu * 1000, 0, n, alignment=Alignment(policy)) for cpu, n in _SHAPES if n < 8]
    shapes += [ResourceRequirement(32_000, 0, 8)]
    wanted = [Request(f"r{n}", rng.choice(shapes), Claim(f"team-{rng.randrange(20)}")) for n in range(count + _FIRST)]
    for request in wanted[:_FIRST]:
        allocator.alloc(request, 0.0)
    started = time.process_time()
    for request in wanted[_FIRST:]:
        assert isinstance(allocator.alloc(request, 0.0), Allocation)
    return (time.process_time() - started) / count


def main() -> None:
    """One node, then fleets."""
    print("zones: hints, merge and picking for 2 cards and 8 CPUs on one machine, half of it in use")
    for shape in _MACHINES:
        one_node(*shape)
    print(f"placements of {len(_SHAPES)} shapes through quota, table, books and ledger, {_TURNS} turns each")
    for nodes, count in _FLEETS:
        cases = {"off": (None, False), "known": (None, True), "aligned": (ZonePolicy.BEST_EFFORT, True)}
        best = dict.fromkeys(cases, 1.0)
        for _ in range(_TURNS):
            for name, (policy, known) in cases.items():
                best[name] = min(best[name], placed(nodes, count, policy, known=known))
        print(
            f"  {nodes:6,} nodes: no zones known {best['off'] * 1e6:5.1f} us, known {best['known'] * 1e6:5.1f} us "
            f"({best['known'] / best['off']:.2f} x), aligned {best['aligned'] * 1e6:5.1f} us "
            f"({best['aligned'] / best['off']:.2f} x)"
        )


if __name__ == "__main__":
    main()
