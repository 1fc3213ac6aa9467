"""Decisions of the placement policies: the policies FGD was published with, and our own, cold and warm.

Work: nodes of 8 cards and 120 shapes as in the benchmark of placement, drawn with a fixed seed, until 95 % of
the cards are asked for at 1,200 nodes, and 4,000 of them at 100,000. Only decisions are timed: which node and
which cards, from the columns of the books. Tables of all shapes are brought up to date before. Warm is the same
again on the emptied fleet, with every state of a node already known.
"""

from __future__ import annotations

import random
import statistics
import time

from benchmarks.placement import fleet_of, shapes
from ullage.core.books.fleet import Fleet
from ullage.core.placing.placement import table_of
from ullage.core.strategies.leftover import leftover
from ullage.core.strategies.published import published
from ullage.core.strategies.strategy import Strategy
from ullage.core.strategies.workload import typical_workload, whole_workload
from ullage.model.allocation import Allocation
from ullage.model.request import ResourceRequirement

_SIZES = ((1_200, 9_000), (100_000, 4_000))
_POLICIES = ("best-fit-published", "fgd", "fgd-published", "leftover")


def strategy_of(name: str, fleet: Fleet, tasks: list[ResourceRequirement]) -> Strategy:
    if name == "leftover":
        return leftover(fleet, whole_workload(tasks))
    found = published(name, typical_workload(tasks).on(fleet), 0)
    assert found is not None
    return found


def decisions(fleet: Fleet, strategy: Strategy, tasks: list[ResourceRequirement]) -> list[float]:
    """Seconds of each; afterwards the fleet is empty."""
    taken: list[float] = []
    for number, asked in enumerate(tasks):
        table = table_of(fleet, asked, strategy)
        started = time.perf_counter()
        chosen = table.choose()
        taken.append(time.perf_counter() - started)
        if chosen is not None:
            row, cards = chosen
            uuids, charges = fleet.uuids(cards), table.charges(cards)
            fleet.charge(Allocation(str(number), fleet.nodes[row].name, asked, uuids, charges=charges))
    for key in list(fleet.ledger):
        fleet.release(key)
    return taken


def ready(fleet: Fleet, strategy: Strategy, kinds: list[ResourceRequirement]) -> float:
    """Seconds to bring the tables of all shapes up to date."""
    started = time.perf_counter()
    for asked in kinds:
        table_of(fleet, asked, strategy).refreshed()
    return time.perf_counter() - started


def main() -> None:
    """Every size and policy."""
    kinds = shapes()
    print(f"{len(kinds)} shapes, 4 of 10 for parts of cards: decisions only")
    for nodes, count in _SIZES:
        fleet, tasks = fleet_of(nodes), random.Random(1).choices(kinds, k=count)
        for name in _POLICIES:
            strategy = strategy_of(name, fleet, tasks)
            decisions(fleet, strategy, tasks[:10])  # compiles
            for heat in ("cold", "warm"):
                tables, taken = ready(fleet, strategy, kinds), decisions(fleet, strategy, tasks)
                mean, p50, p99 = statistics.fmean(taken), *(statistics.quantiles(taken, n=100)[q] for q in (49, 98))
                times = f"mean {mean * 1e6:6.0f} us  p50 {p50 * 1e6:5.0f} us  p99 {p99 * 1e6:5.0f} us"
                print(
                    f"  {nodes:7,} nodes  {name:18} {heat}  {len(taken):6,} decisions {1 / mean:9,.0f}/s  {times}  "
                    f"tables {tables:4.1f} s"
                )
            fleet.tables.clear()


if __name__ == "__main__":
    main()
