"""How fair a schedule was: measures over time, as the literature names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]


class FairnessJob(NamedTuple):
    """A job that ended: times in seconds, `share` the dominant share of the whole that it held."""

    arrival_s: float
    duration_s: float
    finish_s: float
    share: float


@dataclass(frozen=True, slots=True)
class Fairness:
    """`worst_rho`, `p90_rho`, `mean_rho` and `unfair` (the part of jobs with rho > 1) are over jobs that ended.

    `jain` and `gap` are means over the time in which two queues or more had something waiting; without
    such a time they are 1 and 0.
    """

    worst_rho: float
    p90_rho: float
    mean_rho: float
    unfair: float
    jain: float
    gap: float


def finish_time_rho(jobs: Sequence[FairnessJob]) -> Column:
    """Finish-time fairness per job: its time from arrival to finish over that on its own part of the cluster.

    That part is one of N, where N is the mean number of jobs in the system while it was there; a job of a
    larger share than 1/N takes as many times longer. Jobs without a duration count 1.
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
    """Return per time of `until`, the sum of what all jobs had spent in the system by then."""
    area = np.zeros(len(until))
    for times, sign in ((np.sort(arrival), 1.0), (np.sort(finish), -1.0)):
        before = np.searchsorted(times, until, side="right")
        area += sign * (before * until - np.concatenate(([0.0], np.cumsum(times)))[before])
    return area


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has everything (Jain, Chiu, Hawe, 1984)."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


class WaitingQueues:
    """Means over time of how far apart queues are that all have something waiting."""

    def __init__(self) -> None:
        self._time = self._jain = self._gap = 0.0

    def note(self, seconds: float, shares: Sequence[float]) -> None:
        """For so long, the queues with something waiting had these dominant shares."""
        if len(shares) > 1:
            self._time += seconds
            self._jain += seconds * jain(shares)
            self._gap += seconds * (max(shares) - min(shares))

    @property
    def jain(self) -> float:
        """Mean of Jain's index."""
        return self._jain / self._time if self._time else 1.0

    @property
    def gap(self) -> float:
        """Mean difference between the largest and the smallest dominant share, 0 to 1."""
        return self._gap / self._time if self._time else 0.0


def mean_jct(jobs: Sequence[FairnessJob]) -> float:
    """Mean seconds from arrival to end; 0 without jobs."""
    return sum(job.finish_s - job.arrival_s for job in jobs) / len(jobs) if jobs else 0.0


def fairness_of(jobs: Sequence[FairnessJob], queues: WaitingQueues) -> Fairness:
    """Return all measures together."""
    rho = finish_time_rho(jobs)
    if not len(rho):
        return Fairness(1.0, 1.0, 1.0, 0.0, jain=queues.jain, gap=queues.gap)
    unfair, p90 = float((rho > 1.0 + 1e-9).mean()), float(np.percentile(rho, 90))
    return Fairness(float(rho.max()), p90, float(rho.mean()), unfair, jain=queues.jain, gap=queues.gap)
