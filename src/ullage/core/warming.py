"""Compilation before the first decision: a few decisions of every kind on small machines.

Compiled code is cached on disk, so this takes long only once per machine and version.
"""

from __future__ import annotations

from collections.abc import Callable

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.evicting import reclaim_victims, victim_search
from ullage.core.evicting.moves import Consolidation
from ullage.core.evicting.preemption import Preemption
from ullage.core.explaining.explain import reject
from ullage.core.learning.fragmentation import Fragments, fits_now
from ullage.core.placing import placement
from ullage.core.placing.decision import Refusal
from ullage.core.placing.draft import Misfit, fit_together
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import Rules
from ullage.core.sharing import shares
from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView, World
from ullage.core.strategies.leftover import leftover
from ullage.core.strategies.workload import Workload, whole_workload
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.topology import Cpu, Topology, Zone

_ALIGNED = ResourceRequirement.from_string("cpu=1,gpu=1,numa=restricted")
_WIDE = ResourceRequirement.from_string("cpu=2,gpu=2,numa=single-numa-node")
_APART = ResourceRequirement.from_string("cpu=3,gpu=1,numa=single-numa-node")
_MACHINES = 3

_PART = ResourceRequirement.from_string("gpu=0.6")


def steps() -> list[Callable[[], None]]:
    """Return the functions to call, one after the other, to compile or load all code that decides."""
    workload = whole_workload([_PART])
    return [
        shares.warm,
        placement.warm,
        victim_search.warm,
        reclaim_victims.warm,
        lambda: placement.warm_strategy(lambda fleet: leftover(fleet, workload, live=True)),
        lambda: _measure(workload),
        _rehearse_requests,
        _rehearse_sessions,
    ]


def _measure(workload: Workload) -> None:
    """Measure fragmentation, as metrics and the live page do."""
    books = placement.warming_fleet()
    Fragments(books, workload).total()
    fits_now(books)


def _machines() -> list[Node]:
    """Return equal machines, each with two zones of two CPUs; its two cards are on the first."""
    cpus = tuple(Cpu(number, number // 2, number // 2, number) for number in range(4))
    topology = Topology((Zone(0), Zone(1)), cpus=cpus)
    return [
        Node(name, 4000, 1 << 30, tuple(Gpu(f"{name}-{n}", n, zones=(0,)) for n in range(2)), topology=topology)
        for name in map(str, range(_MACHINES))
    ]


def _rehearse_requests() -> None:
    """Take a card of each machine; then move, refuse a gang, preempt for it, and free everything."""
    books = FleetAllocator(Fleet(_machines()), Rules())
    books.set_ready()
    gang = [Request(f"member/{number}", _WIDE, Claim(priority=1)) for number in range(2)]
    first, _ = gang
    for node in books.fleet.nodes:
        assert isinstance(books.bind(Request(node.name, _ALIGNED), [node.gpus[0].uuid], 0.0), Allocation)
    assert isinstance(books.consolidate(Request("wide", ResourceRequirement.of(gpu=2)), 1, 0.0), Consolidation)
    for number in range(_MACHINES):
        assert isinstance(books.alloc(Request(f"part/{number}", _PART), 0.0), Allocation)
    assert isinstance(fit_together(books.fleet, books.rules, gang, 0.0), Misfit)
    assert isinstance(books.alloc(first, 0.0), Refusal)
    found = books.preempt(first, 0.0)
    assert isinstance(found, Preemption)
    for uid in found.uids:
        books.dealloc(uid, 1.0)
    assert isinstance(books.alloc(first, 1.0), Allocation)
    for uid in list(books.fleet.ledger):
        books.dealloc(uid, 2.0)
    assert {rejection.of_zones for rejection in reject(books.fleet, _APART)} == {True}
    assert not isinstance(fit_together(books.fleet, books.rules, gang, 2.0), Misfit)


def _rehearse_sessions() -> None:
    """Give one session all cards; another one, of higher priority, takes some of them."""
    fleet, views = Fleet(_machines()), list[ExecutorView]()
    placer = Placer(fleet, Policy())
    for number in range(2 * _MACHINES):
        placed = placer.place(f"low/{number}", _ALIGNED)
        assert placed is not None
        views.append(ExecutorView(placed.id, ExecutorPhase.BUSY, _ALIGNED, "low"))
    demands = Demand("low", 0, _ALIGNED, running=2 * _MACHINES), Demand("high", 1, _WIDE, pending=1, priority=5)
    plan = schedule(World(fleet, demands, tuple(views), (Queue("default"),)), Policy(reclaim_grace_s=None), 0.0)
    assert plan.actions
