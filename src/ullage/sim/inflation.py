"""The inflation experiment of "Beware of Fragmentation" (Weng et al., USENIX ATC'23).

Tasks arrive until they have requested 130 % of the cards. Each is tried once, and dropped if it does not fit. Placed
tasks never end. The measures are taken at each percent of arrived load.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.core.books.fleet import Fleet
from ullage.core.strategies.workload import typical_workload
from ullage.model.error import InvalidRequest
from ullage.model.resources import MILLI
from ullage.sim.arrivals import UNTIL_PERCENT, inflate, shuffled
from ullage.sim.placing import NOT_PLACED, Placing
from ullage.sim.rows import CODE
from ullage.sim.trace import Numbers, Trace, TraceKind, kind_of


@dataclass(frozen=True, slots=True)
class Inflated:
    """One run. Lists have a value per percent of arrived load, 0 to 130.

    `allocation` and `fragmentation` are percent of all cards. `failed` counts dropped tasks by kind, `arrived` all
    tasks by kind.
    """

    allocation: list[float]
    fragmentation: list[float]
    failed: dict[str, list[int]]
    arrived: dict[str, int]


def run_inflation(trace: Trace, policy: str, seed: int) -> Inflated:
    """Inflate a trace under a policy, with the arrivals and the node order of a seed.

    Raises:
        InvalidRequest: the policy is unknown, no node has a card, no task requests one, or a task has several units.

    """
    _check(trace)
    rng = np.random.default_rng(seed)
    fleet = shuffled(trace.nodes, rng)
    capacity = capacity_milli(fleet)
    milli = np.array([fleet.resources(shape).gpu_milli for shape in trace.shapes], dtype=np.int64)
    cards = np.array([shape.gpu_count for shape in trace.shapes], dtype=np.int64)
    tasks = trace.shape_numbers
    arrivals = tasks[inflate(milli[tasks] // np.maximum(cards[tasks], 1), cards[tasks], capacity, rng)]

    arrived = 100 * np.cumsum(milli[arrivals]) / capacity
    requirements = [task.requirement for task in trace.tasks]
    workload = typical_workload(requirements)
    placing = Placing(fleet, trace.shapes, policy, requirements, seed=seed)
    rows, fragmentation, start = [], [], 0
    for percent in range(UNTIL_PERCENT + 1):
        end = int(np.searchsorted(arrived, percent, side="right"))
        rows.append(placing.place(arrivals[start:end]))
        fragmentation.append(100 * placing.fragmentation(workload) / capacity)
        start = end

    failed = np.concatenate(rows) == NOT_PLACED
    arrivals, arrived = arrivals[:start], arrived[:start]
    allocated = 100 * np.cumsum(np.where(failed, 0, milli[arrivals])) / capacity
    kinds = np.array([kind_of(shape) for shape in trace.shapes])[arrivals]
    return Inflated(
        _by_percent(arrived, allocated),
        fragmentation,
        {kind: _count_by_percent(arrived, failed & (kinds == kind)) for kind in TraceKind},
        {kind: int((kinds == kind).sum()) for kind in TraceKind},
    )


def capacity_milli(fleet: Fleet) -> int:
    """Return the capacity of all usable cards, in thousandths of cards."""
    return int(fleet.card_usable.sum()) * MILLI


def _check(trace: Trace) -> None:
    together = next((task for task in trace.tasks if task.units > 1), None)
    if together is not None:
        raise InvalidRequest(
            f"task {together.name} of {trace.name} has {together.units} units, "
            "but inflation places single units: replay it with --churn",
            code=CODE,
        )
    if not any(node.gpus for node in trace.nodes):
        raise InvalidRequest(f"no node of {trace.name} has a card: give a node list with cards", code=CODE)


def _by_percent(arrived: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> list[float]:
    """Return for each percent the mean over the arrivals nearest to it; without any, the previous value."""
    nearest = np.rint(arrived).astype(np.int64)
    found: list[float] = []
    mean = 0.0
    for percent in range(UNTIL_PERCENT + 1):
        here = values[nearest == percent]
        mean = float(here.mean()) if len(here) else mean
        found.append(mean)
    return found


def _count_by_percent(arrived: npt.NDArray[np.float64], failed: npt.NDArray[np.bool_]) -> list[int]:
    until: Numbers = np.searchsorted(arrived, np.arange(UNTIL_PERCENT + 1), side="right")
    counts: list[int] = np.concatenate(([0], np.cumsum(failed)))[until].tolist()
    return counts
