"""Tables and charts over the seeds of many runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.sim.arrivals import UNTIL_PERCENT
from ullage.sim.cells import Result
from ullage.sim.published import Curves, curve_of
from ullage.sim.trace import TraceKind

LOADS = (80, 90, 95, 100, 110, 130)
"""Percent of arrived load at which tables show the curves."""

_COMPARED_FROM = 60
"""Percent of arrived load from which policies are compared: below it, everything fits."""

_TIED = 0.005


@dataclass(frozen=True, slots=True)
class SummaryTable:
    """A title, a description of the numbers, and cells."""

    title: str
    description: str
    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Series(NamedTuple):
    """A named curve: minimum, mean and maximum over the seeds."""

    name: str
    x: Sequence[float]
    low: Sequence[float]
    mean: Sequence[float]
    high: Sequence[float]


class Chart(NamedTuple):
    """Curves over a common axis."""

    name: str
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]


Groups = dict[tuple[str, str], list[Result]]


def _groups(results: Sequence[Result]) -> Groups:
    """Return the results by trace and label: one result per seed."""
    found: Groups = {}
    for result in results:
        found.setdefault((result["trace"], label(result)), []).append(result)
    return found


def label(result: Result) -> str:
    """Return the policy, under churn with the turn."""
    policy: str = result["policy"]
    return policy if result["turn"] is None else f"{policy}, {result['turn']}"


def _matrix(runs: Sequence[Result], field: str) -> npt.NDArray[np.float64]:
    return np.array([run[field] for run in runs], dtype=np.float64)


# --- inflation ---


def inflation_tables(
    results: Sequence[Result], against: str | None, published: dict[str, Curves]
) -> list[SummaryTable]:
    """Return tables of allocation, fragmentation and failures, and the requested comparisons.

    `published` has published curves by field.
    """
    groups = _groups(results)
    tables = [
        SummaryTable(
            f"{field.capitalize()} by arrived load",
            f"{meaning}; mean over the seeds, and the standard deviation at {UNTIL_PERCENT} %.",
            ("trace", "policy", "seeds", *(f"{load} %" for load in LOADS), "s.d."),
            tuple((*key, str(len(runs)), *_at_loads(_matrix(runs, field))) for key, runs in groups.items()),
        )
        for field, meaning in (
            ("allocation", "Percent of all cards that are held"),
            ("fragmentation", "Percent of all cards that are idle but unusable by the typical workload"),
        )
    ]
    tables.append(_failures(groups))
    if against is not None:
        tables.append(_gains(groups, against))
    return tables + [table for field, curves in published.items() if (table := _differences(groups, field, curves))]


def _at_loads(curves: npt.NDArray[np.float64]) -> tuple[str, ...]:
    means = curves.mean(axis=0)
    return (*(f"{means[load]:.2f}" for load in LOADS), f"{curves[:, UNTIL_PERCENT].std():.2f}")


def _failures(groups: Groups) -> SummaryTable:
    def cells(runs: Sequence[Result]) -> list[str]:
        counts = [(_mean(runs, "failed", kind), _mean(runs, "arrived", kind)) for kind in TraceKind]
        return [f"{failed:.0f} of {arrived:.0f}" for failed, arrived in counts]

    return SummaryTable(
        "Tasks that did not fit, by kind",
        f"Of those that arrived until {UNTIL_PERCENT} % of load; mean over the seeds.",
        ("trace", "policy", *TraceKind),
        tuple((*key, *cells(runs)) for key, runs in groups.items()),
    )


def _mean(runs: Sequence[Result], field: str, kind: TraceKind) -> float:
    counts = [run[field][kind] for run in runs]
    return float(np.mean([count[-1] if isinstance(count, list) else count for count in counts]))


def _gains(groups: Groups, against: str) -> SummaryTable:
    rows = []
    for (trace, policy), runs in groups.items():
        base = {run["seed"]: run for run in groups.get((trace, against), ())}
        paired = [run for run in runs if run["seed"] in base]
        if policy == against or not paired:
            continue
        gains = _matrix(paired, "allocation") - _matrix([base[run["seed"]] for run in paired], "allocation")
        later = gains[:, _COMPARED_FROM:]
        seed, load = np.unravel_index(later.argmin(), later.shape)
        worst = "none below" if later.min() > -_TIED else f"{later.min():+.2f}"
        at = "-" if later.min() > -_TIED else f"{load + _COMPARED_FROM} %, seed {paired[int(seed)]['seed']}"
        rows.append((trace, policy, *(f"{gains[:, load].mean():+.2f}" for load in LOADS), worst, at))
    return SummaryTable(
        f"Allocation against {against}",
        f"Same arrivals and node order, seed by seed: mean difference in points, and the worst from "
        f"{_COMPARED_FROM} % of load on.",
        ("trace", "policy", *(f"{load} %" for load in LOADS), "worst", "where"),
        tuple(rows),
    )


def _differences(groups: Groups, field: str, curves: Curves) -> SummaryTable | None:
    rows = []
    for (trace, policy), runs in groups.items():
        published = curve_of(curves, trace, policy)
        if published is not None:
            off = _matrix(runs, field).mean(axis=0) - published
            shown = [f"{off[load]:+.2f}" for load in LOADS]
            rows.append((trace, policy, *shown, f"{max(abs(off[load]) for load in LOADS):.2f}"))
    if not rows:
        return None
    return SummaryTable(
        f"{field.capitalize()} less the published mean",
        "Difference of the means over the seeds, in points.",
        ("trace", "policy", *(f"{load} %" for load in LOADS), "largest"),
        tuple(rows),
    )


def inflation_charts(results: Sequence[Result]) -> list[Chart]:
    """Return charts of allocation, from the load where policies differ, and fragmentation, for each trace."""
    charts = []
    for trace, groups in _by_trace(results).items():
        for field, start in (("allocation", _COMPARED_FROM), ("fragmentation", 0)):
            loads = range(start, UNTIL_PERCENT + 1)
            series = tuple(_series(policy, loads, _matrix(runs, field)[:, start:]) for policy, runs in groups.items())
            title = f"{field.capitalize()}, {trace}"
            charts.append(Chart(f"{field}-{trace}", title, "arrived load, % of cards", "% of cards", series=series))
    return charts


def _by_trace(results: Sequence[Result]) -> dict[str, dict[str, list[Result]]]:
    found: dict[str, dict[str, list[Result]]] = {}
    for (trace, policy), runs in _groups(results).items():
        found.setdefault(trace, {})[policy] = runs
    return found


def _series(name: str, x: Sequence[float], curves: npt.NDArray[np.float64]) -> Series:
    return Series(
        name, list(x), curves.min(axis=0).tolist(), curves.mean(axis=0).tolist(), high=curves.max(axis=0).tolist()
    )


# --- churn ---


def churn_tables(results: Sequence[Result]) -> list[SummaryTable]:
    """Return tables of usage with waiting times, and of fairness."""
    groups = _groups(results)
    return [
        SummaryTable(
            "Use and waiting",
            "Percent of all cards, mean over time; seconds from arrival to end (JCT) and to start; mean over seeds.",
            ("trace", "policy", "seeds", "allocated", "fragmented", "mean JCT", "mean wait", *_QUANTILES, "never"),
            tuple((*key, str(len(runs)), *_use(runs)) for key, runs in groups.items()),
        ),
        SummaryTable(
            "Fairness over time",
            "Finish-time fairness rho (worst, 90th percentile, mean, percent of jobs above 1), Jain's index and the gap"
            " between dominant shares of queues that wait.",
            ("trace", "policy", "worst rho", "p90 rho", "mean rho", "rho > 1", "Jain", "gap"),
            tuple((*key, *_fairness(runs)) for key, runs in groups.items()),
        ),
    ]


def _use(runs: Sequence[Result]) -> list[str]:
    used = [f"{np.mean([run[field] for run in runs]):.2f}" for field in ("mean_allocation", "mean_fragmentation")]
    jct = f"{np.mean([run['mean_jct_s'] for run in runs]):.0f}"
    waits = [f"{np.mean([run['waits'][field] for run in runs]):.0f}" for field in _WAITS]
    return [*used, jct, *waits, f"{np.mean([sum(run['never'].values()) for run in runs]):.0f}"]


_QUANTILES = ("p50", "p95", "p99", "worst")
_WAITS = ("mean_s", "p50_s", "p95_s", "p99_s", "worst_s")


def _fairness(runs: Sequence[Result]) -> list[str]:
    def mean(field: str) -> float:
        return float(np.mean([run["fairness"][field] for run in runs]))

    rho = [f"{mean(field):.2f}" for field in ("worst_rho", "p90_rho", "mean_rho")]
    return [*rho, f"{100 * mean('unfair'):.1f} %", f"{mean('jain'):.3f}", f"{mean('gap'):.3f}"]


def churn_charts(results: Sequence[Result]) -> list[Chart]:
    """Return charts of allocation and fragmentation over time for each trace."""
    charts = []
    for trace, groups in _by_trace(results).items():
        for field in ("allocation", "fragmentation"):
            series = tuple(
                _series(policy, [at / 3600 for at in runs[0]["at_s"]], _matrix(runs, field))
                for policy, runs in groups.items()
            )
            title = f"{field.capitalize()}, {trace}"
            charts.append(
                Chart(f"{field}-{trace}", title, "hours since the first arrival", "% of cards", series=series)
            )
    return charts
