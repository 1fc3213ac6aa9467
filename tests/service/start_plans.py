"""Generated days of jobs: users with habits, who come in waves and ask for more time than they need."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from tests.service.start_days import Job, Plan

from ullage.core.placing.policy import Order, Policy
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec

LIMITS_S = (300.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0)
"""Users ask for round times."""


@dataclass(frozen=True)
class Shape:
    """What days of a kind have in common. `load` is the work that arrives, in parts of what the cards can do."""

    nodes: int = 2
    users: int = 6
    load: float = 1.1
    order: Order = Order.DRF
    queues: Sequence[Queue] = (Queue("default"),)
    cards: Sequence[int] = (1, 1, 1, 2)
    gangs: Sequence[int] = (1,)
    tasks: Sequence[int] = (1,)
    priorities: Sequence[int] = (0,)
    spread: float = 0.5
    """The standard deviation of the logarithm of times of one kind of job."""
    limited: float = 1.0
    """The share of users that state a limit."""
    longest_s: float = 3600.0
    """The longest typical time of a kind of job."""
    grace_s: float | None = 30.0


@dataclass(frozen=True)
class _Habit:
    owner: str
    queue: str
    request: ResourceRequirement
    typical_s: float
    batch: int
    tasks: int
    priority: int
    generous: float | None
    """Times that the limit is longer than the work of most of its jobs; None states no limit."""


def plan_of(shape: Shape, seed: int, seconds: float, before: int = 100) -> Plan:
    """Return a day of this shape, as long as that, with so many jobs of the same users before it."""
    rng = random.Random(seed)
    habits = [_habit(shape, rng, user) for user in range(shape.users) for _ in range(rng.choice((1, 2)))]
    cards = 8 * shape.nodes
    past = [_job(shape, rng.choice(habits), rng, 0.0) for _ in range(before)]
    jobs: list[Job] = []
    at, work_s = 0.0, 0.0
    while at < seconds:
        habit = rng.choice(habits)
        for _ in range(rng.choice((1, 1, 1, 3))):
            job = _job(shape, habit, rng, at)
            jobs.append(job)
            work_s += sum(job.seconds) * habit.request.gpu_count
        ahead = work_s / (cards * shape.load)
        at = max(at, ahead + rng.expovariate(1 / 300.0) - 300.0)
    return Plan(
        cards_of(shape.nodes), jobs, Policy(order=shape.order, reclaim_grace_s=shape.grace_s), shape.queues, past
    )


def cards_of(nodes: int) -> tuple[Node, ...]:
    """Return nodes of 8 cards each."""
    return tuple(
        Node(f"n{node}", 64_000, 512 << 30, tuple(Gpu(f"GPU-{node}-{card}", card) for card in range(8)))
        for node in range(nodes)
    )


def _habit(shape: Shape, rng: random.Random, user: int) -> _Habit:
    parents = {queue.parent for queue in shape.queues}
    return _Habit(
        owner=f"user{user}",
        queue=rng.choice([queue.name for queue in shape.queues if queue.name not in parents]),
        request=ResourceRequirement.from_string(f"cpu=1,gpu={rng.choice(shape.cards)}"),
        typical_s=exp(rng.uniform(log(120), log(shape.longest_s))),
        batch=rng.choice(shape.gangs),
        tasks=rng.choice(shape.tasks),
        priority=rng.choice(shape.priorities),
        generous=rng.choice((1.5, 3.0, 8.0)) if rng.random() < shape.limited else None,
    )


def _job(shape: Shape, habit: _Habit, rng: random.Random, at: float) -> Job:
    limit_s = None
    if habit.generous is not None:
        asked_s = habit.typical_s * habit.generous
        limit_s = next((each for each in LIMITS_S if each >= asked_s), LIMITS_S[-1])
    spec = SessionSpec(
        "function",
        habit.request,
        queue=habit.queue,
        owner=habit.owner,
        priority=habit.priority,
        batch_size=habit.batch,
        close_when_done=True,
        task_timeout_s=limit_s,
    )
    lasts = [min(rng.lognormvariate(log(habit.typical_s), shape.spread), limit_s or 1e9) for _ in range(habit.tasks)]
    return Job(at, spec, tuple(each for each in lasts for _ in range(habit.batch)))


_TEAMS = (Queue("research", weight=2), Queue("product"), Queue("default"))
SHAPES: dict[str, Shape] = {
    "one queue": Shape(order=Order.FIFO),
    "fair shares": Shape(queues=_TEAMS, tasks=(1, 1, 4)),
    "priorities": Shape(queues=_TEAMS, priorities=(0, 0, 0, 5), load=1.0),
    "gangs": Shape(nodes=4, gangs=(1, 1, 2, 4), cards=(1, 2, 4, 8)),
    "arrays": Shape(users=12, tasks=(1, 1, 8), longest_s=1200.0, grace_s=None),
    "few limits": Shape(nodes=2, limited=0.3, spread=1.0),
    "wild": Shape(nodes=2, spread=1.5, queues=_TEAMS),
}
"""The kinds of days that are measured."""
