"""Small jobs come and go on two-socket machines: when do jobs of a whole zone, or of a whole machine, start?

Beside Ullage two schedulers that are blind to zones: they count. They take the node with most free cards, as clusters
do that spread work; its kubelet then aligns the job in the lowest zone that has room, or in the emptiest one. A job
that it refuses is tried again at the next tick, as its controller would.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import pytest
from tests.core.zones import machine

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.request import ResourceRequirement

pytestmark = pytest.mark.timeout(900)

ZONES, IN_ZONE, TICKS = 2, 4, 1500


@dataclass(frozen=True)
class Job:
    """So many cards, all in one zone if they can be; its uid is its number. Times are ticks."""

    number: int
    cards: int
    arrives: int
    lasts: int

    @property
    def wide(self) -> bool:
        """Whether it needs all cards of a zone."""
        return self.cards >= IN_ZONE


class Cluster(Protocol):
    """Where jobs are placed."""

    def start(self, job: Job) -> bool:
        """Whether the job has its cards now."""

    def end(self, job: Job) -> None:
        """Its cards are free again."""


class Aligned:
    """Ullage."""

    def __init__(self, nodes: int) -> None:
        self.books = FleetAllocator(Fleet(machine(f"n{node}") for node in range(nodes)))
        self.books.set_ready()

    def start(self, job: Job) -> bool:
        policy = "single-numa-node" if job.cards <= IN_ZONE else "restricted"
        asked = ResourceRequirement.from_string(f"gpu={job.cards},numa={policy}")
        return isinstance(self.books.alloc(Request(str(job.number), asked), 0.0), Allocation)

    def end(self, job: Job) -> None:
        self.books.dealloc(str(job.number), 0.0)


class Blind:
    """A scheduler that counts cards, and kubelets that align; `spread` prefers the emptiest zone, else the lowest."""

    def __init__(self, nodes: int, *, spread: bool) -> None:
        self.free = [[IN_ZONE] * ZONES for _ in range(nodes)]
        self.held: dict[int, tuple[int, Counter[int]]] = {}
        self.refused = 0
        self.spread = spread

    def start(self, job: Job) -> bool:
        node = max(range(len(self.free)), key=lambda node: sum(self.free[node]))
        if sum(self.free[node]) < job.cards:
            return False
        zones = sorted(range(ZONES), key=lambda zone: -self.free[node][zone] if self.spread else zone)
        near = [zone for zone in zones if self.free[node][zone] >= job.cards][:1]
        if not near and job.cards <= IN_ZONE:
            self.refused += 1
            return False
        taken = Counter({near[0]: job.cards}) if near else Counter(dict.fromkeys(zones, job.cards // ZONES))
        for zone, cards in taken.items():
            self.free[node][zone] -= cards
        self.held[job.number] = node, taken
        return True

    def end(self, job: Job) -> None:
        node, taken = self.held.pop(job.number)
        for zone, cards in taken.items():
            self.free[node][zone] += cards


def arrivals(seed: int) -> list[Job]:
    """Mostly jobs of one or two cards, every fifteen ticks one of a zone, every sixty one of a machine."""
    chance = random.Random(seed)
    jobs: list[Job] = []
    for tick in range(TICKS):
        sizes = [chance.choice((1, 1, 2)) for _ in range(3) if chance.random() < 0.17]
        sizes += [4] * (tick % 15 == 7) + [8] * (tick % 60 == 31)
        jobs += [Job(len(jobs) + place, size, tick, chance.randint(5, 40)) for place, size in enumerate(sizes)]
    return jobs


def waits(cluster: Cluster, jobs: Iterable[Job]) -> dict[Job, int]:
    """For how long each job waited that started; all that wait are tried at every tick, the oldest first."""
    coming, waiting, running, found = list(jobs), [], [], {}
    for tick in range(TICKS):
        for job in [job for job in running if found[job] + job.arrives + job.lasts <= tick]:
            cluster.end(job)
            running.remove(job)
        waiting += [job for job in coming if job.arrives == tick]
        for job in [job for job in waiting if cluster.start(job)]:
            found[job] = tick - job.arrives
            waiting.remove(job)
            running.append(job)
    return found


def waited(cluster: Cluster, jobs: list[Job]) -> tuple[float, float]:
    """For how many ticks a job of a zone, and one of a machine, waited on average; to the end if it did not start."""
    found = waits(cluster, jobs)

    def mean(cards: int) -> float:
        times = [found.get(job, TICKS - job.arrives) for job in jobs if job.cards == cards]
        return sum(times) / len(times)

    return mean(4), mean(8)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_wide_jobs_start_sooner_where_small_ones_keep_together(seed):
    jobs = arrivals(seed)
    zone, whole = waited(Aligned(4), jobs)
    for spread in (False, True):
        zone_of_blind, whole_of_blind = waited(Blind(4, spread=spread), jobs)
        assert zone < zone_of_blind
        assert whole < whole_of_blind


def small_without_end(seed: int) -> list[Job]:
    """Four jobs of a card run at any time, each until the next one has started; at tick 100 comes one of a zone."""
    chance, jobs = random.Random(seed), [Job(0, 4, 100, 50)]
    for _ in range(4):
        tick = 0
        while tick < TICKS:
            lasts = chance.randint(5, 40)
            jobs.append(Job(len(jobs), 1, tick, lasts + 1))
            tick += lasts
    return sorted(jobs, key=lambda job: (job.arrives, job.number))


@pytest.mark.parametrize("seed", range(3))
def test_a_job_of_a_zone_never_starts_where_small_ones_are_on_both(seed):
    jobs = small_without_end(seed)
    wide = next(job for job in jobs if job.wide)
    spread = Blind(1, spread=True)
    assert wide in waits(Aligned(1), jobs)
    assert wide not in waits(spread, jobs)
    assert spread.refused == TICKS - wide.arrives  # at every tick, although there were free cards
