"""The plain and the compiled tier decide the same, and a process may change over between any two decisions."""

import os
import random
import threading

import pytest

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.kernel.compiling import tiers
from ullage.core.learning.fragmentation import Fragments, fits_now
from ullage.core.placing.draft import fit_together
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import Rules
from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView, World
from ullage.core.strategies.workload import whole_workload
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.error import UllageError
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.topology import Cpu, Topology, Zone

pytestmark = pytest.mark.timeout(900)
JIT = pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="there is one tier only")

ASKED = [
    ResourceRequirement.from_string(text)
    for text in (
        "cpu=1,gpu=1",
        "gpu=0.6",
        "cpu=1,gpu=0.3",
        "gpu=2",
        "vram=1g",
        "cpu=1,gpu=1,numa=restricted",
        "cpu=2,gpu=2,numa=single-numa-node",
        "cpu=1,numa=best-effort",
        "cpu=1",
    )
]
STEPS = 40


def machines():
    cpus = tuple(Cpu(number, number // 2, number // 2, number) for number in range(4))
    topology = Topology((Zone(0), Zone(1)), cpus=cpus)
    cards = {name: [Gpu(f"{name}-{n}", n, vram_bytes=2 << 30, zones=(n,)) for n in range(2)] for name in "abcd"}
    return [
        Node(name, 4000, 1 << 33, tuple(cards[name]), topology=topology if name in "abc" else None) for name in "abcd"
    ]


def allocations(seed, at_step):
    """What a random history of one allocator answers; `at_step` is called before each of its steps."""
    draw, books, reported = random.Random(seed), FleetAllocator(Fleet(machines()), Rules()), []
    books.set_ready()
    fragments = Fragments(books.fleet, whole_workload(ASKED[1:3]))
    for step in range(STEPS):
        at_step(step)
        now, asked = float(step), draw.choice(ASKED[:-2])
        request = Request(f"r{step}", asked, Claim(priority=draw.randrange(3)))
        held = sorted(books.fleet.ledger)
        act = draw.choice(["alloc"] * 5 + ["free", "free", "preempt", "move", "gang", "measure"])
        try:
            if act == "alloc":
                reported.append(books.alloc(request, now))
            elif act == "free" and held:
                reported.append(books.dealloc(draw.choice(held), now))
            elif act == "preempt":
                reported.append(books.preempt(request, now))
            elif act == "move":
                reported.append(books.consolidate(Request("wide", ResourceRequirement.of(gpu=2)), 1, now))
            elif act == "gang":
                gang = [Request(f"g{step}/{n}", asked, Claim(priority=1)) for n in range(2)]
                reported.append(fit_together(books.fleet, books.rules, gang, now))
            elif act == "measure":
                reported.append((fragments.total(), fits_now(books.fleet)))
        except UllageError as error:
            reported.append(error.message)
    return list(map(repr, reported))


def cycles(seed, at_step):
    """What cycles plan over random demands, each of which gets what the cycle before it gave."""
    draw, fleet, reported = random.Random(seed), Fleet(machines()), []
    placer, views = Placer(fleet, Policy()), []
    for step in range(STEPS // 4):
        at_step(step * 4)
        asked = draw.choice(ASKED)
        placed = placer.place(f"s{step % 3}/{step}", asked)
        if isinstance(placed, Allocation):
            views.append(ExecutorView(placed.id, ExecutorPhase.BUSY, asked, f"s{step % 3}"))
            reported.append(placed)
        demands = tuple(
            Demand(f"s{n}", n, draw.choice(ASKED), pending=draw.randrange(4), priority=draw.randrange(3))
            for n in range(3)
        )
        world = World(fleet, demands, tuple(views), (Queue("default"),))
        reported.append(schedule(world, Policy(reclaim_grace_s=None), float(step)))
    return list(map(repr, reported))


@pytest.fixture
def plain():
    """The plain tier; the compiled one again afterwards."""
    tiers.start_plain()
    yield
    tiers.change_over()


@JIT
@pytest.mark.parametrize("history", [allocations, cycles])
@pytest.mark.parametrize("seed", range(6))
def test_both_tiers_and_a_change_over_in_the_middle_decide_the_same(history, seed):
    compiled = history(seed, lambda _: None)
    try:
        tiers.start_plain()
        assert tiers.is_plain()
        assert history(seed, lambda _: None) == compiled
        middle = random.Random(seed).randrange(1, STEPS - 4) // 4 * 4
        assert history(seed, lambda step: tiers.change_over() if step == middle else None) == compiled
        assert not tiers.is_plain()
    finally:
        tiers.change_over()


@JIT
def test_a_decision_that_another_thread_takes_during_a_change_over_comes_out_the_same(plain):
    expected, found, begun = allocations(7, lambda _: None), [], threading.Event()
    thread = threading.Thread(target=lambda: found.extend(allocations(7, lambda _: begun.set())))
    thread.start()
    begun.wait()
    tiers.change_over()
    thread.join()
    assert found == expected


@JIT
def test_one_thread_may_use_the_compiled_tier_ahead_of_the_others(plain):
    with tiers.ahead():
        assert not tiers.is_plain()
        inside = allocations(8, lambda _: None)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(tiers.is_plain()))
        thread.start()
        thread.join()
    assert seen == [True]
    assert inside == allocations(8, lambda _: None)


@JIT
def test_whoever_only_reads_is_not_made_to_compile(plain):
    from ullage.core.kernel.compiled import compiled  # noqa: PLC0415  # the test reads the tier first

    @compiled
    def nobody_called_this_before(a):
        return a + 1

    with pytest.raises(tiers.NotCached, match="nobody_called_this_before"), tiers.ahead(compile_too=False):
        nobody_called_this_before({"a": 1} and 5)
    assert nobody_called_this_before(5) == 6
    assert not nobody_called_this_before.signatures
