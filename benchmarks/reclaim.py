"""Room made on a full cluster for one gang of N/10 members with 8 cards each.

Work: N nodes of 8 cards, full of work of lower priority. Requests: half of the nodes hold eight of one card each, the
others a mix of one, two and four cards. Sessions: executors of one card each, of 20 sessions, scattered over all
nodes, and the gang is overdue, so that all of them may have to give way. Beside it, in the same run at sizes that they
can finish: requests member by member, each looking at every node with trials; sessions as before, the gang tried
again after every victim.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import Occupancy
from ullage.core.cycle import schedule
from ullage.core.evicting.gang_eviction import preempt_together
from ullage.core.evicting.preemption import NoPreemption, preempt
from ullage.core.evicting.reclaim import Reclaim
from ullage.core.evicting.reclaim_search import RoomClaim
from ullage.core.evicting.reclaim_victims import ExecutorVictim
from ullage.core.evicting.victims import EvictionContext
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import Rules
from ullage.core.sharing.entitlement import entitlement, place_unit
from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView, World
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement

CARDS, SESSIONS, NOW = 8, 20, 2000.0
WHOLE_NODE = ResourceRequirement.from_string("cpu=8,mem=64g,gpu=8")
SIZES, NAIVE_REQUESTS, NAIVE_SESSIONS = (100, 500, 1_000, 5_000), 100, 50


def empty(nodes: int) -> Fleet:
    return Fleet(
        Node(
            f"n{n:05}",
            128_000,
            1 << 40,
            tuple(Gpu(f"g{n:05}-{k}", k, vram_bytes=80 << 30, compute_gflops=10**6) for k in range(CARDS)),
        )
        for n in range(nodes)
    )


def asking(cards: int) -> ResourceRequirement:
    return ResourceRequirement.of(cpu=cards, memory="8g", gpu=cards)


# --- requests ---


def of_requests(nodes: int) -> Fleet:
    """A cluster full of requests of priority 0 to 2."""
    rng, fleet = random.Random(1), empty(nodes)
    for row, node in enumerate(fleet.nodes):
        free = list(fleet.uuids(fleet.cards_on(row)))
        while free:
            take = min(len(free), 1 if row % 2 else rng.choice((1, 2, 4)))
            held, free = tuple(free[:take]), free[take:]
            claim, since = Claim("low", priority=rng.randrange(3)), float(rng.randrange(1000))
            state = AllocationState.BOUND
            fleet.charge(Allocation(held[0], node.name, asking(take), held, state, (), claim, since, since))
    return fleet


def members(nodes: int) -> list[Request]:
    count = nodes // 10
    claim = Claim("team", priority=10, gang=GangClaim("g", count, count, preempt=True))
    return [Request(f"m{n}", WHOLE_NODE, claim) for n in range(count)]


def one_by_one(fleet: Fleet, rules: Rules, requests: list[Request]) -> int:
    """Each member finds its victims alone, with those before it placed; how many victims."""
    victims, mark = 0, fleet.checkpoint()
    for request in requests:
        found = preempt(EvictionContext(fleet, rules, NOW), request)
        assert not isinstance(found, NoPreemption)
        for uid in found.uids:
            fleet.release(uid)
        fleet.charge(Allocation(request.uid, found.choice.node, WHOLE_NODE, found.choice.gpus, claim=request.claim))
        victims += len(found.victims)
    fleet.rollback(mark)
    return victims


def requests() -> None:
    rules = Rules()
    preempt_together(EvictionContext(of_requests(20), rules, NOW), members(20))  # compiled
    print("Requests: all victims of a gang of N/10 x 8 cards (ms)")
    for nodes in SIZES:
        fleet, asked = of_requests(nodes), members(nodes)
        start = time.perf_counter()
        Occupancy.of(fleet)
        first = (time.perf_counter() - start) * 1e3
        taken = []
        for _ in range(7):
            fleet.dirty.update(range(0, nodes, 20))  # as if every twentieth node had changed meanwhile
            start = time.perf_counter()
            found = preempt_together(EvictionContext(fleet, rules, NOW), asked)
            taken.append((time.perf_counter() - start) * 1e3)
        assert isinstance(found, dict)
        victims, beside = sum(len(each.victims) for each in found.values()), ""
        if nodes <= NAIVE_REQUESTS:
            start = time.perf_counter()
            assert one_by_one(fleet, rules, asked) == victims
            beside = f"   member by member {(time.perf_counter() - start) * 1e3:10,.0f}"
        print(
            f"  {nodes:6,} nodes  {len(fleet.ledger):6,} held  {victims:5,} victims  "
            f"{statistics.median(taken):7.1f}   occupants read once {first:7.1f}{beside}"
        )


# --- sessions ---


def of_sessions(nodes: int) -> World:
    """A cluster full of executors of one card, of sessions of priority 0, and a gang that waits too long."""
    rng, fleet, views = random.Random(1), empty(nodes), []
    for row, node in enumerate(fleet.nodes):
        for card in fleet.uuids(fleet.cards_on(row)):
            session = f"s{rng.randrange(SESSIONS)}"
            fleet.charge(Allocation(card, node.name, asking(1), (card,)))
            views.append(ExecutorView(card, ExecutorPhase.BUSY, asking(1), session, bound_at=rng.random() * 1000))
    held = [sum(view.session == f"s{n}" for view in views) for n in range(SESSIONS)]
    demands = [Demand(f"s{n}", n, asking(1), running=held[n]) for n in range(SESSIONS)]
    batch = nodes // 10
    demands.append(Demand("gang", 99, WHOLE_NODE, pending=batch, priority=5, batch_size=batch, waiting_since=0.0))
    return World(fleet, tuple(demands), tuple(views))


def tried_again(
    self: Reclaim, claim: RoomClaim, **_how: bool
) -> tuple[tuple[ExecutorVictim, ...], tuple[Allocation, ...]] | None:
    """`Reclaim.claim` as it was: the unit is tried after every victim, and again without each of them."""
    claimant, outlook = claim.claimant, claim.outlook

    def without(gone: list[ExecutorVictim], *, keep: bool = False) -> tuple[Allocation, ...] | None:
        mark = outlook.fleet.checkpoint()
        for victim in gone:
            for member in victim.members:
                outlook.fleet.release(member.id)
        placed = place_unit(outlook, claimant, claim.name, claimant.batch_size)
        (outlook.fleet.keep if keep else outlook.fleet.rollback)(mark)
        return placed

    chosen: list[ExecutorVictim] = []
    for victim in self.in_order(claim):
        chosen.append(victim)
        if without(chosen) is not None:
            break
    else:
        return None
    for victim in reversed(chosen):
        fewer = [other for other in chosen if other is not victim]
        chosen = fewer if without(fewer) is not None else chosen
    placed = without(chosen, keep=True)
    return None if placed is None else (tuple(chosen), placed)


def claim_of(world: World, claim: Callable[..., Any]) -> tuple[float, int]:
    """Milliseconds of the claim of the gang within a cycle, and how many executors give way."""
    deserved, taken = entitlement(world, Policy()), []

    def timed(self: Reclaim, asked: RoomClaim, **how: bool) -> object:
        start = time.perf_counter()
        found = claim(self, asked, **how)
        if asked.claimant.session == "gang" and found is not None:
            taken.append(((time.perf_counter() - start) * 1e3, len(found[0])))
            raise StopIteration  # the rest of the cycle is not measured here
        return found

    present, Reclaim.claim = Reclaim.claim, timed  # type: ignore[method-assign, assignment]  # it is timed where it is called
    try:
        schedule(world, Policy(), NOW, deserved=deserved)
    except StopIteration:
        pass
    finally:
        Reclaim.claim = present  # type: ignore[method-assign]  # as above
    return taken[0]


def sessions() -> None:
    print("Sessions: all executors that give way to a gang of N/10 x 8 cards (ms)")
    for nodes in (NAIVE_SESSIONS, *SIZES[:3]):
        world, beside = of_sessions(nodes), ""
        taken = [claim_of(world, Reclaim.claim) for _ in range(3)]
        if nodes <= NAIVE_SESSIONS:
            naive, victims = claim_of(world, tried_again)
            assert victims == taken[0][1]
            beside = f"   tried again after every victim {naive:10,.0f}"
        median = statistics.median(each for each, _ in taken)
        held, victims = len(world.executors), taken[0][1]
        print(f"  {nodes:6,} nodes  {held:6,} held  {victims:5,} victims  {median:7.1f}{beside}")


def main() -> None:
    """Both worlds."""
    gc.freeze()
    requests()
    sessions()


if __name__ == "__main__":
    main()
