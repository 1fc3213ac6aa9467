"""Cells: one trace under one policy and seed. A folder caches finished cells."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import sha256
from multiprocessing import get_context, parent_process
from pathlib import Path
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, pthread_sigmask
from threading import Thread
from typing import Any

from ullage.core.strategies import STRATEGIES
from ullage.model.error import InvalidRequest
from ullage.sim.churn import run_churn
from ullage.sim.formats import read_nodes, read_queues, read_tasks
from ullage.sim.inflation import run_inflation
from ullage.sim.journal import read_history
from ullage.sim.trace import Trace
from ullage.sim.waiting import Turn

Result = dict[str, Any]
"""A finished cell: its settings, its key, the seconds it took, and the fields of its run."""


@dataclass(frozen=True, slots=True)
class TraceSource:
    """The files of a trace, or with `nodes` None the events of a server. `first` limits it to the earliest tasks."""

    nodes: Path | None
    tasks: Path
    first: int | None = None
    queues: Path | None = None

    @property
    def name(self) -> str:
        """The name of the task list."""
        return self.tasks.stem

    def load(self) -> Trace:
        """Return the trace from its files.

        Raises:
            InvalidRequest: as `read_nodes`, `read_tasks` and `read_queues`, or `read_history`.

        """
        if self.nodes is None:
            return read_history(self.tasks).trace
        tasks = read_tasks(self.tasks)
        if self.first is not None:
            tasks = tuple(sorted(tasks, key=lambda task: task.arrival_s))[: self.first]
        queues = {} if self.queues is None else read_queues(self.queues)
        priorities = {name: priority for name, (_, priority) in queues.items() if priority}
        if priorities:
            tasks = tuple(replace(task, priority=task.priority or priorities.get(task.queue, 0)) for task in tasks)
        return Trace(self.name, read_nodes(self.nodes), tasks, tuple(queue for queue, _ in queues.values()))


@dataclass(frozen=True, slots=True)
class ReplayCell:
    """One run: without `turn` of the inflation experiment, else of churn with this turn."""

    source: TraceSource
    policy: str
    seed: int
    turn: Turn | None = None

    def settings(self) -> Result:
        """Return the settings that identify the result."""
        mode = "inflation" if self.turn is None else "churn"
        return {"mode": mode, "trace": self.source.name, "policy": self.policy, "seed": self.seed, "turn": self.turn}

    def key(self) -> str:
        """Return a key that is equal for equal settings, files and programs."""
        given = json.dumps([self.settings(), self.source.first])
        files = [path for path in (self.source.nodes, self.source.tasks, self.source.queues) if path is not None]
        outside = STRATEGIES.get(self.policy)
        parts = [given, *map(_digest, files), _program(), outside.digest if outside else ""]
        return sha256("\n".join(parts).encode()).hexdigest()[:32]

    def run(self) -> Result:
        """Run the cell and return its result.

        Raises:
            InvalidRequest: as `run_inflation` and `run_churn`.

        """
        trace = _load(self.source)
        begun = time.perf_counter()
        if self.turn is None:
            fields = asdict(run_inflation(trace, self.policy, self.seed))
        else:
            fields = asdict(run_churn(trace, self.policy, self.seed, self.turn))
        seconds = round(time.perf_counter() - begun, 3)
        return {**self.settings(), "key": self.key(), "seconds": seconds, **fields}


@lru_cache(maxsize=2)
def _load(source: TraceSource) -> Trace:
    """Return a trace. Cells of one trace follow each other, so each process reads it about once."""
    return source.load()


@lru_cache(maxsize=64)
def _digest(path: Path) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}", code="invalid-trace") from None


@lru_cache(maxsize=1)
def _program() -> str:
    """Return a digest of the sources that affect results, so that another version does not reuse them."""
    package = Path(__file__).parents[1]
    files = sorted(file for layer in ("model", "core", "sim") for file in (package / layer).rglob("*.py"))
    return sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


class Cells:
    """The finished cells of a folder, one file each. Files are written atomically."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "cells"
        self._folder.mkdir(parents=True, exist_ok=True)

    def get(self, cell: ReplayCell) -> Result | None:
        """Return the result of a finished cell; None if it is not finished."""
        try:
            found: Result = json.loads(self._file(cell.key()).read_bytes())
        except (OSError, ValueError):
            return None
        return found

    def put(self, result: Result) -> None:
        """Store the result of a finished cell."""
        file = self._file(result["key"])
        partial = file.with_suffix(f".{os.getpid()}.half")
        partial.write_text(json.dumps(result, separators=(",", ":")))
        partial.replace(file)

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def run_cells(
    cells: Sequence[ReplayCell],
    folder: Path,
    processes: int,
    finished: Callable[[Result, bool], None],
    prepare: Callable[[], object],
) -> list[Result]:
    """Run the cells that the folder lacks, in up to `processes` processes. Return results in the order of `cells`.

    `finished` is called with each result and whether it was cached. `prepare` is called first in each process.

    Raises:
        InvalidRequest: the first error of a cell; finished cells stay in the folder.

    """
    cache = Cells(folder)
    results: dict[ReplayCell, Result] = {}
    for cell in cells:
        found = cache.get(cell)
        if found is not None:
            results[cell] = found
            finished(found, True)
    missing = [cell for cell in cells if cell not in results]
    for cell, result in _run(missing, min(processes, len(missing)), prepare):
        cache.put(result)
        results[cell] = result
        finished(result, False)
    return [results[cell] for cell in cells]


def _run(
    cells: Sequence[ReplayCell], processes: int, prepare: Callable[[], object]
) -> Iterator[tuple[ReplayCell, Result]]:
    if processes <= 1:
        yield from ((cell, cell.run()) for cell in cells)
        return
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin, initargs=(prepare,))
    try:
        before = pthread_sigmask(SIG_BLOCK, {SIGINT})  # the processes inherit this: only this one handles Ctrl-C
        try:
            running: dict[Future[Result], ReplayCell] = {pool.submit(ReplayCell.run, cell): cell for cell in cells}
        finally:
            pthread_sigmask(SIG_SETMASK, before)
        for future in as_completed(running):
            yield running[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(prepare: Callable[[], object]) -> None:
    """Prepare a process that runs cells, and end it with its parent."""
    Thread(target=_follow_parent, daemon=True).start()
    prepare()


def _follow_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def write_results(results: Iterable[Result], file: Path) -> None:
    """Write one line of JSON per cell."""
    file.write_text("".join(f"{json.dumps(result, separators=(',', ':'))}\n" for result in results))
