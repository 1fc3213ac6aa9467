"""Empty tasks through a real server with the durable store: throughput, and the latency of one task.

Beside it, in the same run, the standard library's process pool does the same calls without any
durability, and without sharing anything with anybody.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import ullage

TASKS = 30_000
ONE_BY_ONE = 300
WORKERS = 2
TO_BEAT = 9_124
"""Tasks per second that a comparable system publishes for one node, without a durable store."""


def nothing(_: int) -> None:
    """An empty task."""


@contextmanager
def server() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="ullage-bench-") as home:
        os.environ["ULLAGE_HOME"] = home
        command = [sys.executable, "-m", "ullage.cli.main", "up", "--foreground", "--port=0"]
        with (Path(home) / "server.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        while not (Path(home) / "server.json").exists():
            time.sleep(0.05)
        assert json.loads((Path(home) / "server.json").read_text())["pid"] == process.pid
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def throughput(client: ullage.Client, sessions: int) -> float:
    """Tasks per second over `sessions` sessions that submit at the same time."""
    opened = [client.session(resreq="cpu=1,mem=128m") for _ in range(sessions)]
    for session in opened[:WORKERS]:
        session.submit(nothing, 0).result()  # executors are up
    each = TASKS // sessions

    def work(session: ullage.Session) -> None:
        for _ in session.map(nothing, range(each), ordered=False):
            pass

    threads = [threading.Thread(target=work, args=(session,)) for session in opened]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = TASKS / (time.perf_counter() - start)
    for session in opened:
        session.close()
    return rate


def latencies(client: ullage.Client) -> list[float]:
    """Seconds from submit to result, one task at a time."""
    with client.session(resreq="cpu=1,mem=128m") as session:
        session.submit(nothing, 0).result()
        taken = []
        for number in range(ONE_BY_ONE):
            start = time.perf_counter()
            session.submit(nothing, number).result()
            taken.append(time.perf_counter() - start)
        return sorted(taken)


def pool_throughput() -> float:
    with ProcessPoolExecutor(WORKERS) as pool:
        list(pool.map(nothing, range(WORKERS)))
        start = time.perf_counter()
        for future in [pool.submit(nothing, number) for number in range(TASKS)]:
            future.result()
        return TASKS / (time.perf_counter() - start)


def main() -> None:
    print(f"Empty tasks, {TASKS} of them, durable SQLite store, {os.cpu_count()} cpus")
    with server(), ullage.connect() as client:
        for sessions in (1, 10):
            rates = [throughput(client, sessions) for _ in range(3)]
            best, middle = max(rates), statistics.median(rates)
            print(
                f"  {sessions:>2} session(s)   median {middle:>7,.0f}/s   best {best:>7,.0f}/s   "
                f"{middle / TO_BEAT:4.1f} x the published {TO_BEAT:,}/s"
            )
        taken = latencies(client)
        middle, late = taken[len(taken) // 2] * 1e3, taken[len(taken) * 99 // 100] * 1e3
        print(f"  one at a time   p50 {middle:.1f} ms   p99 {late:.1f} ms   ({ONE_BY_ONE} tasks)")
    pool = statistics.median(pool_throughput() for _ in range(3))
    print(
        f"  process pool of the standard library, no durability: {pool:,.0f}/s (submit one by one, {WORKERS} workers)"
    )


if __name__ == "__main__":
    main()
