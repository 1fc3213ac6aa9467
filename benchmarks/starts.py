"""When sessions start, foretold and true: how often estimates hold, on replayed days, and what an estimate costs.

Days are drawn from seeds, or cut from a real trace in the folder that ULLAGE_TRACES names: jobs of the virtual clusters
of Philly (philly/philly_sia.csv), and pods of openb (openb/openb_pod_list_default.csv). Traces have no limits; a limit
there is the next round time above a random multiple of the true one. Each day has a past, of the same users. Errors and
widths are parts of the real wait; "by limits" is the rule of Slurm: every task runs to its limit. Its range is as wide
as ours, around its estimate. ULLAGE_DAYS is the number of days of each kind.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.service.start_days import Figures, ForetoldDay, JobDay
from tests.service.start_plans import SHAPES, plan_of

from benchmarks.trace_days import trace_plans
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec
from ullage.service.starts import PAST

DAYS = int(os.environ.get("ULLAGE_DAYS", "4"))
DAY_S = 3 * 3600.0
TRACES = os.environ.get("ULLAGE_TRACES")


def main() -> None:
    """Measure the estimates, then their cost."""
    every = Figures()
    for name, shape in SHAPES.items():
        found = Figures()
        for seed in range(DAYS):
            found.add(JobDay(plan_of(shape, seed, DAY_S), seed).foretold(0.3 * DAY_S, 0.95 * DAY_S, DAY_S / 10))
        _show(name, found, every)
    for quiet in (True, False):
        found = Figures()
        for seed in range(2 * DAYS):
            found.add(ForetoldDay(seed, quiet=quiet).foretold(3600.0))
        _show("random, quiet" if quiet else "random, disturbed", found, every)
    if TRACES:
        for name, plans in trace_plans(Path(TRACES), DAYS):
            found = Figures()
            for seed, day in enumerate(plans):
                found.add(JobDay(day.plan, seed).foretold(day.learnt_s, day.until_s, day.every_s))
            _show(name, found, every)
    print(f"{'all':18} {every}")
    for waiting in (10, 100, 1000, 10_000):
        _cost(waiting)


def _show(name: str, found: Figures, every: Figures) -> None:
    every.join(found)
    print(f"{name:18} {found}", flush=True)


def _cost(waiting: int) -> None:
    """Measure one estimate of all sessions that wait: on the thread of the server, and on its own."""
    plan = plan_of(SHAPES["fair shares"], 0, DAY_S)
    day = JobDay(plan, 0)
    day.run(0.9 * DAY_S, 0.9 * DAY_S, DAY_S)
    service = day.service
    for number in range(waiting):
        asked = ResourceRequirement.from_string(f"cpu=1,gpu={1 + number % 4}")
        queue = ("research", "product", "default")[number % 3]
        spec = SessionSpec("function", asked, queue=queue, owner=f"user{number % 7}", close_when_done=True)
        service.sessions.create(f"w{number}", spec, lambda: None)
        service.tasks.submit(f"w{number}", f"w{number}", [b""], None, lambda _first, _n: None)
    day.settle()
    past = service.store.history(PAST, day.agenda.now)
    began = time.process_time()
    estimate = service.starts.estimating(service.starts.waiting(), past)
    copied = time.process_time()
    found = estimate()
    ended = time.process_time()
    day.store.close()
    known = sum(each.at is not None for each in found.values())
    print(
        f"{waiting:6,} sessions wait: {1e3 * (copied - began):5.0f} ms on the thread of the server, "
        f"{ended - copied:5.1f} s of a processor on another one; {known} foreseen"
    )


if __name__ == "__main__":
    main()
