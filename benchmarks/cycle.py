"""The scheduling cycle against the number of sessions: from nothing, at rest, and after one change."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import entitlement, entitlement_key
from ullage.core.sharing.plan import Start
from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView, World
from ullage.model.allocation import Allocation
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement

NODES = 100
GPUS = 8
SHAPES = ("cpu=4,mem=16g,gpu=1", "cpu=8,mem=64g,gpu=2", "cpu=16,mem=8g", "cpu=2,mem=4g", "cpu=32,mem=128g,gpu=4")


def a_fleet() -> Fleet:
    cards = [tuple(Gpu(f"GPU-{node}-{index}", index) for index in range(GPUS)) for node in range(NODES)]
    return Fleet(Node(f"n{node:04}", 128_000, 1 << 40, cards[node]) for node in range(NODES))


def a_world(sessions: int) -> World:
    demands = tuple(
        Demand(f"s{n:05}", n, ResourceRequirement.from_string(SHAPES[n % len(SHAPES)]), pending=1000, queue="default")
        for n in range(sessions)
    )
    return World(a_fleet(), demands)


def settle(world: World, policy: Policy) -> World:
    """The world after its first plan was carried out."""
    plan = schedule(world, policy, 0.0)
    views = []
    for number, action in enumerate(action for action in plan.actions if isinstance(action, Start)):
        place = action.allocation
        world.fleet.charge(Allocation(f"e{number}", place.node, place.requirement, place.gpus))
        views.append(ExecutorView(f"e{number}", ExecutorPhase.BUSY, place.requirement, action.session))
    return replace(world, executors=tuple(views))


def milliseconds(work: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e3


def main() -> None:
    policy = Policy()
    print(f"One scheduling cycle, {NODES} nodes x {GPUS} GPUs, {len(SHAPES)} request shapes (median, ms)")
    print(f"  {'sessions':>8}  {'executors':>9}  {'entitlement':>11}  {'at rest':>8}  {'no change noticed':>17}")
    for sessions in (1, 100, 10_000):
        world = settle(a_world(sessions), policy)
        deserved = entitlement(world, policy)
        times = 20 if sessions <= 100 else 3
        full = milliseconds(partial(entitlement, world, policy), times)
        rest = milliseconds(partial(schedule, world, policy, 0.0, deserved=deserved), times)
        same = milliseconds(partial(entitlement_key, world, policy), times)
        print(f"  {sessions:>8}  {len(world.executors):>9}  {full:>11.2f}  {rest:>8.2f}  {same:>17.2f}")


if __name__ == "__main__":
    main()
