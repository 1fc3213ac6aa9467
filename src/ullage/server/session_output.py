"""The output of all tasks of one session as events, with the part of it that is read at a time bounded."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ullage.server.task_output import TaskOutput, event
from ullage.wire.log_start import LogStart

_MOST_BYTES = 1 << 20
"""Bytes of events after which a read stops, and the next one continues with the next task."""

_MOST_DIGITS = 15


class SessionOutput:
    """The output of the tasks with numbers above `after`; of tasks that have output already, the part `start`."""

    def __init__(self, session: int, folder: Path, start: LogStart, after: int) -> None:
        self._session, self._folder, self._start, self._after = session, folder, start, after
        self._open: dict[int, TaskOutput] = {}
        self._ended: set[int] = set()

    @property
    def tasks(self) -> list[int]:
        """The tasks whose output is being read."""
        return list(self._open)

    def find(self, *, stop: bool = False) -> None:
        """Find the tasks that have output already; with `stop` read only up to the current end of each."""
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - there may be many
        except OSError:  # nothing was printed yet
            return
        found = {int(task) for name in names if (task := _task_of(name)) is not None}
        for task in sorted(found):
            if task > self._after:
                output = self._open[task] = self._output(task)
                output.start_at(self._start)
                if stop:
                    output.stop_at_end()

    def add(self, tasks: Iterable[int]) -> None:
        """Read the output of these tasks too, from its beginning."""
        for task in tasks:
            if task > self._after and task not in self._open:
                self._open[task] = self._output(task)

    def end(self, tasks: Iterable[int]) -> None:
        """Complete the output of these tasks, which have ended."""
        tasks = [task for task in tasks if task > self._after]
        self.add(tasks)
        self._ended.update(tasks)

    def read(self) -> list[bytes]:
        """Return the next events, and which tasks are complete."""
        events, size = list[bytes](), 0
        complete = list[int]()
        for task in list(self._open):
            output = self._open.pop(task)
            if task in self._ended:
                found = self._rest(task, output)
            else:
                found = output.read()
                self._open[task] = output  # last: the others come first next time
            if found is None:
                complete.append(task)
                self._ended.discard(task)
                continue
            events += found
            size += sum(map(len, found))
            if size >= _MOST_BYTES:
                break
        if complete:
            events.append(event("ended", msgspec.json.encode(complete)))
        return events

    def _rest(self, task: int, output: TaskOutput) -> list[bytes] | None:
        """Return the next events of an ended task, which stay in order; None if there are no more."""
        if not self._has_log(task):
            return None
        found = output.read()
        if not found:
            return None
        self._open = {task: output, **self._open}
        return found

    def _has_log(self, task: int) -> bool:
        return any(os.path.lexists(self._folder / f"{task}{suffix}") for suffix in (".out", ".err"))

    def _output(self, task: int) -> TaskOutput:
        return TaskOutput(self._session, self._folder, task, label=f"t{task}")


def _task_of(name: str) -> int | None:
    """Return the task of the first segment of a log; None for other files."""
    task, _, suffix = name.partition(".")
    is_log = suffix in ("out", "err") and task.isascii() and task.isdecimal() and len(task) <= _MOST_DIGITS
    return int(task) if is_log else None
