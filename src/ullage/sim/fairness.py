"""Measures of fairness over time, from the literature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]


class FairnessJob(NamedTuple):
    """An ended job. Times are in seconds; `share` is its dominant share of the cluster."""

    arrival_s: float
    duration_s: float
    finish_s: float
    share: float


@dataclass(frozen=True, slots=True)
class Fairness:
    """All measures. `unfair` is the fraction of ended jobs with rho > 1.

    `jain` and `gap` are means over the time in which at least two queues have waiting tasks; without such a time they
    are 1 and 0.
    """

    worst_rho: float
    p90_rho: float
    mean_rho: float
    unfair: float
    jain: float
    gap: float


def finish_time_rho(jobs: Sequence[FairnessJob]) -> Column:
    """Return the finish-time fairness of each job: its completion time divided by that on its part of the cluster.

    That part is 1/N, where N is the mean number of jobs in the system during the job. A job with a larger share takes
    proportionally longer there. Jobs without a duration count 1.
    Source: Mahajan et al., "Themis" (NSDI'20); N as in Jayaram Subramanya et al., "Sia" (SOSP'23).
    """
    if not jobs:
        return np.zeros(0)
    arrival, duration, finish, share = (np.array(column) for column in zip(*jobs, strict=True))
    present = np.maximum(finish - arrival, 1e-9)
    others = (_area(arrival, finish, finish) - _area(arrival, finish, arrival)) / present
    alone = duration * np.maximum(1.0, share * others)
    rho: Column = np.where(duration > 0, present / np.where(alone > 0, alone, 1.0), 1.0)
    return rho


def _area(arrival: Column, finish: Column, until: Column) -> Column:
    """Return for each time of `until` the sum of the times that all jobs have spent in the system by then."""
    area = np.zeros(len(until))
    for times, sign in ((np.sort(arrival), 1.0), (np.sort(finish), -1.0)):
        before = np.searchsorted(times, until, side="right")
        area += sign * (before * until - np.concatenate(([0.0], np.cumsum(times)))[before])
    return area


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index: 1 for equal shares, 1/n if one has everything (Jain, Chiu, Hawe, 1984)."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


class WaitingQueues:
    """Means over time of the differences between queues with waiting tasks."""

    def __init__(self) -> None:
        self._time = self._jain = self._gap = 0.0

    def add(self, seconds: float, shares: Sequence[float]) -> None:
        """Add an interval in which the queues with waiting tasks have these dominant shares."""
        if len(shares) > 1:
            self._time += seconds
            self._jain += seconds * jain(shares)
            self._gap += seconds * (max(shares) - min(shares))

    @property
    def jain(self) -> float:
        """The mean of Jain's index."""
        return self._jain / self._time if self._time else 1.0

    @property
    def gap(self) -> float:
        """The mean difference between the largest and the smallest dominant share, 0 to 1."""
        return self._gap / self._time if self._time else 0.0


def mean_jct(jobs: Sequence[FairnessJob]) -> float:
    """Return the mean seconds from arrival to end; 0 without jobs."""
    return sum(job.finish_s - job.arrival_s for job in jobs) / len(jobs) if jobs else 0.0


def fairness_of(jobs: Sequence[FairnessJob], queues: WaitingQueues) -> Fairness:
    """Return all measures."""
    rho = finish_time_rho(jobs)
    if not len(rho):
        return Fairness(1.0, 1.0, 1.0, 0.0, jain=queues.jain, gap=queues.gap)
    unfair, p90 = float((rho > 1.0 + 1e-9).mean()), float(np.percentile(rho, 90))
    return Fairness(float(rho.max()), p90, float(rho.mean()), unfair, jain=queues.jain, gap=queues.gap)
