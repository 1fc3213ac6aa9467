"""Measures the small tasks per second of the store: each is added, later ended, both durably.

The files are in the directory for temporary files (`TMPDIR`). With "busy" a thread computes without pause beside the
writer, as a loaded event loop would, which is the worst case: it holds the interpreter lock whenever the writer does
not.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from concurrent.futures import Future
from pathlib import Path

from ullage.model.session import SessionInfo, SessionSpec
from ullage.model.task import TaskResult, TaskState
from ullage.service.store_port import AddResults, AddTasks, PutSession, Record, Store
from ullage.storage.open import open_store

TASKS = 400_000
IN_FLIGHT = 16_384
"""Tasks added or ended but not yet acknowledged."""

INPUT = b"i" * 32
OUTPUT = b"o" * 32


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        print(f"{TASKS} tasks, inputs of {len(INPUT)} and outputs of {len(OUTPUT)} bytes")
        for busy in (False, True):
            for size in (64, 1024, 8192):
                measure(f"file, writes of {size:5}", str(folder / f"store-{size}-{busy}.db"), size, busy=busy)
        measure("memory, writes of 1024", "memory://", 1024, busy=False)


def measure(name: str, url: str, size: int, *, busy: bool) -> None:
    store = open_store(url)
    store.load()
    store.write(PutSession(SessionInfo("bench", SessionSpec("function"), 0.0, number=1))).result()
    count = TASKS // (8 if busy else 1)
    writes = prepare(size, count)
    spinner = Spinner()
    alone = spinner.rate(0.5) if busy else 0.0
    if busy:
        spinner.start()
    started, writer = time.perf_counter(), time.process_time()
    run(store, writes, -(-IN_FLIGHT // size))
    wall, cpu = time.perf_counter() - started, time.process_time() - writer
    beside = spinner.stop() / wall if busy else 0.0
    store.close()
    share = f", busy thread keeps {beside / alone:4.0%}" if busy else f", {cpu / count * 1e6:4.1f} us cpu per task"
    print(f"{name}, {'busy' if busy else 'idle'}: {count / wall:8,.0f} tasks/s{share}")


def prepare(size: int, count: int) -> list[Record]:
    """Tasks and their results in turn, `size` in each write."""
    writes: list[Record] = []
    for number, first in enumerate(range(1, count + 1, size), 1):
        ids = range(first, min(first + size, count + 1))
        writes.append(AddTasks("bench", number, str(number), first, (INPUT,) * len(ids), 1.0))
        results = (TaskResult("bench", task, task, TaskState.SUCCEED, 0, OUTPUT, "", "e-1", 1.0, 2.0) for task in ids)
        writes.append(AddResults(tuple(results)))
    return writes


def run(store: Store, writes: list[Record], in_flight: int) -> None:
    """Write all, with at most `in_flight` submissions and their results unacknowledged."""
    waiting: deque[Future[None]] = deque()
    for record in writes:
        waiting.append(store.write(record))
        if len(waiting) >= 2 * in_flight:
            waiting.popleft().result()
    for future in waiting:
        future.result()


class Spinner:
    """A thread that counts."""

    def __init__(self) -> None:
        self._count = 0
        self._end = False
        self._thread = threading.Thread(target=self._spin)

    def start(self) -> None:
        """Start counting."""
        self._thread.start()

    def stop(self) -> int:
        """Stop and say how far it came."""
        self._end = True
        self._thread.join()
        return self._count

    def rate(self, seconds: float) -> float:
        """Counts per second with nothing beside it."""
        other = Spinner()
        other.start()
        time.sleep(seconds)
        return other.stop() / seconds

    def _spin(self) -> None:
        while not self._end:
            self._count += 1


if __name__ == "__main__":
    main()
