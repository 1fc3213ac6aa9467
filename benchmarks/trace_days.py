"""Days cut from real traces: some hundred consecutive jobs, on as many cards as make them wait."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.service.start_days import Job, Plan
from tests.service.start_plans import LIMITS_S, cards_of

from ullage.core.placing.policy import Policy
from ullage.model.quantity import PPM
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec
from ullage.sim.formats import read_tasks
from ullage.sim.trace import TraceTask

JOBS = 250
LOAD = 1.1
"""The work that arrives, in parts of what the cards can do meanwhile."""


@dataclass(frozen=True)
class TraceDay:
    """Jobs, and when to ask, in seconds from the first: from `learnt_s` until `until_s`, every `every_s`."""

    plan: Plan
    learnt_s: float
    until_s: float
    every_s: float


def trace_plans(folder: Path, days: int) -> Iterator[tuple[str, list[TraceDay]]]:
    """Yield the name of each trace that is in the folder, with so many days of it."""
    for name, file in (("philly", "philly/philly_sia.csv"), ("openb", "openb/openb_pod_list_default.csv")):
        if (folder / file).exists():
            tasks = [task for task in read_tasks(folder / file) if task.duration_s and task.requirement.gpu_count]
            most = Counter(task.queue for task in tasks).most_common(days)
            queues = [[task for task in tasks if task.queue == queue] for queue, _ in most]
            yield name, [_day(queues[number % len(queues)], number) for number in range(days)]


def _day(tasks: Sequence[TraceTask], seed: int) -> TraceDay:
    rng = random.Random(seed)
    in_order = sorted(tasks, key=lambda task: task.arrival_s)
    first = rng.randrange(len(in_order) // 4, max(len(in_order) // 4 + 1, len(in_order) - JOBS))
    taken = in_order[first : first + JOBS]
    span = max(1.0, taken[-1].arrival_s - taken[0].arrival_s)
    work = sum(min(task.duration_s or 0.0, span) * task.units * _cards(task) for task in taken)
    widest = max(task.units * _cards(task) for task in taken)
    nodes = max(1, round(max(work / span / LOAD, 2 * widest) / 8))
    jobs = [_job(task, rng, taken[0].arrival_s) for task in taken]
    ended = (task for task in in_order[:first] if task.arrival_s + (task.duration_s or 0.0) < taken[0].arrival_s)
    before = [_job(task, rng, 0.0) for task in list(ended)[-1000:]]
    return TraceDay(Plan(cards_of(nodes), jobs, Policy(), before=before), 0.3 * span, 0.95 * span, span / 20)


def _cards(task: TraceTask) -> float:
    part = task.requirement.part
    return task.requirement.gpu_count if part is None else (part.compute_ppm or PPM) / PPM


def _job(task: TraceTask, rng: random.Random, begin: float) -> Job:
    """Return the job of a task, with a round limit: the share of a limit that jobs use is nearly uniform."""
    lasts = max(1.0, task.duration_s or 1.0)
    asked_s = lasts / rng.uniform(0.05, 1.0)
    limit_s = next((each for each in LIMITS_S if each >= asked_s), asked_s)
    spec = SessionSpec(
        "function",
        ResourceRequirement.from_string(f"cpu=1,gpu={_cards(task):g}"),
        batch_size=task.units,
        close_when_done=True,
        task_timeout_s=limit_s,
    )
    return Job(task.arrival_s - begin, spec, (lasts,) * task.units)
