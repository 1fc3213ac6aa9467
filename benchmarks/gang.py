"""A gang of 200 with a rack preference, placed; and gangs that cannot fit, refused.

Work: nodes of 8 cards, 20 nodes a rack, six of ten cards held by work of one card. The gang asks for 200 x 1 card:
decided (where all go, racks preferred) and whole (decided, entered into the ledger and bound). Refused are 200 x 8
cards where too few nodes are empty now, and as many as the empty fleet could never hold. Beside it, in the same run,
member by member: each chosen, charged in a trial, then assumed and committed; it knows no racks.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.gang import Gangs
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.domain import spans
from ullage.core.placing.draft import Misfit, fit_together
from ullage.core.placing.selection import place
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement

MEMBERS, CARDS, RACK = 200, 8, 20
ONE = ResourceRequirement.from_string("cpu=4,mem=8g,gpu=1")
ALL = ResourceRequirement.from_string("cpu=4,mem=8g,gpu=8")
SIZES = (1_000, 10_000)


def cluster(nodes: int) -> FleetAllocator:
    """Racks of nodes, six of ten cards held, a tenth of the nodes empty."""
    rng = random.Random(1)
    fleet = Fleet(
        Node(
            f"n{n:05}",
            128_000,
            1 << 40,
            tuple(Gpu(f"g{n:05}-{k}", k, vram_bytes=80 << 30, compute_gflops=10**6) for k in range(CARDS)),
            labels={"rack": f"r{n // RACK}"},
        )
        for n in range(nodes)
    )
    for row, node in enumerate(fleet.nodes):
        for card in fleet.cards_on(row):
            if row % 10 and rng.random() < 2 / 3:
                held = (fleet.cards[card].uuid,)
                fleet.charge(Allocation(f"o{card}", node.name, ONE, held, AllocationState.BOUND, (), Claim("low")))
    allocator = FleetAllocator(fleet)
    allocator.set_ready()
    return allocator


def gang(key: str, members: int, asked: ResourceRequirement, domain: str | None = None) -> list[Request]:
    claim = Claim("team", gang=GangClaim(key, members, members, domain=domain))
    return [Request(f"{key}-{n}", asked, claim) for n in range(members)]


def one_by_one(allocator: FleetAllocator, requests: list[Request]) -> list[tuple[Request, Choice]] | None:
    """The old way to decide: each member chosen with those before it charged."""
    fleet, found = allocator.fleet, list[tuple[Request, Choice]]()
    mark = fleet.checkpoint()
    for request in requests:
        choice = place(fleet, allocator.rules, request)
        if isinstance(choice, Refusal):
            break
        found.append((request, choice))
        fleet.charge(
            Allocation(request.uid, choice.node, request.requirement, choice.gpus, claim=request.claim), force=True
        )
    fleet.rollback(mark)
    return found if len(found) == len(requests) else None


def old_way(allocator: FleetAllocator, requests: list[Request]) -> None:
    """Decided, then every member judged again, assumed and committed."""
    for request, choice in one_by_one(allocator, requests) or ():
        allocator.assume(request, choice.gpus, 0.0)
        allocator.commit(request.uid, 0.0)


def milliseconds(work: Callable[[], object], after: Callable[[], object] = lambda: None, times: int = 9) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
        after()
    return statistics.median(taken) * 1e3


def main() -> None:
    """Both sizes."""
    gc.freeze()
    print(f"A gang of {MEMBERS}, racks of {RACK} nodes; median, ms (microseconds where it says so)")
    for nodes in SIZES:
        allocator = cluster(nodes)
        fleet, rules = allocator.fleet, allocator.rules
        near, plain = gang("near", MEMBERS, ONE, "rack"), gang("plain", MEMBERS, ONE)
        tick = Gangs()
        for request in near:
            tick.add(request, 0.0)

        def placed(tick: Gangs = tick, allocator: FleetAllocator = allocator) -> None:
            assert len(tick.tick(allocator, 0.0)[0].placed) == MEMBERS

        def ended(requests: list[Request], allocator: FleetAllocator = allocator) -> None:
            for request in requests:
                allocator.dealloc(request.uid, 0.0)

        found = fit_together(fleet, rules, near, 0.0)
        assert isinstance(found, dict)
        racks = [spans(fleet, "rack", [choice.node for choice in way]) for way in (found.values(),)]
        decided = milliseconds(lambda: fit_together(fleet, rules, near, 0.0))  # noqa: B023 - called at once
        whole = milliseconds(placed, lambda: ended(near))  # noqa: B023 - as above
        naive = milliseconds(lambda: one_by_one(allocator, plain))  # noqa: B023 - as above
        naive_whole = milliseconds(lambda: old_way(allocator, plain), lambda: ended(plain))  # noqa: B023 - as above
        apart = spans(fleet, "rack", [choice.node for _, choice in one_by_one(allocator, plain) or ()])
        print(
            f"  {nodes:6,} nodes  placed in {racks[0]} racks: decided {decided:6.2f}, whole {whole:6.2f}   "
            f"member by member, in {apart} racks: decided {naive:6.2f}, whole {naive_whole:6.2f}"
        )
        for why, size in (("now", nodes // 5), ("ever", nodes + 200)):
            large = gang(why, size, ALL)
            assert isinstance(fit_together(fleet, rules, large, 0.0), Misfit)
            refused = milliseconds(lambda: fit_together(fleet, rules, large, 0.0), times=99) * 1e3  # noqa: B023 - as above
            old = milliseconds(lambda: one_by_one(allocator, large), times=1)  # noqa: B023 - as above
            print(f"  {'':12}  {size:6,} x 8 do not fit {why:4}: {refused:6.0f} us   member by member {old:10,.1f}")


if __name__ == "__main__":
    main()
