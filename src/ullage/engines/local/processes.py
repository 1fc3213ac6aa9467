"""The process table of this machine, and signals to exactly one process.

The supervisor uses this module, so it imports as little as possible, and from the standard library only.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import NamedTuple


class Process(NamedTuple):
    """One row of the process table: proc_pid_stat(5). `start` distinguishes processes that reuse a pid."""

    pid: int
    parent: int
    group: int
    session: int
    start: int
    rss_pages: int


def process_table() -> dict[int, Process]:
    """Return every living process by pid. Zombies hold no resources and are left out."""
    table = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # strings suffice, and there are many
        if name.isdigit():
            process = _read_stat(name)
            if process is not None:
                table[process.pid] = process
    return table


_STATE, _PARENT, _GROUP, _SESSION, _THREADS, _START, _RSS = 0, 1, 2, 3, 17, 19, 21
"""Positions of the fields after the command name in `/proc/PID/stat`; see proc(5)."""


def _read_stat(name: str) -> Process | None:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123  # this runs for every process
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # a command name may hold blanks and parentheses
    if fields[_STATE] in b"XZ" and int(fields[_THREADS]) <= 1:  # a zombie leader with threads still runs
        return None
    return Process(
        pid=int(name),
        parent=int(fields[_PARENT]),
        group=int(fields[_GROUP]),
        session=int(fields[_SESSION]),
        start=int(fields[_START]),
        rss_pages=int(fields[_RSS]),
    )


def descendants(table: dict[int, Process], pid: int) -> list[Process]:
    """Return all processes below `pid`, parents before children."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found = list(children.get(pid, ()))
    for process in found:  # grows while it is walked
        found.extend(children.get(process.pid, ()))
    return found


def read_environment(pid: int) -> bytes:
    """Return the environment a process was started with; empty if it may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123  # as in `_read_stat`
            return file.read()
    except OSError:
        return b""


def has_marker(process: Process, marker: bytes) -> bool:
    """Return whether `marker`, NAME=VALUE, is in the environment of a process."""
    environment = read_environment(process.pid)
    return marker in environment and marker in environment.split(b"\0")


def cgroup_members(directory: str) -> list[int]:
    """Return the pids in a cgroup; none if it does not exist."""
    try:
        with open(f"{directory}/cgroup.procs", encoding="ascii") as file:  # noqa: PTH123  # as in `_read_stat`
            return [int(line) for line in file]
    except OSError:
        return []


def peak_resident_bytes(pid: int) -> int | None:
    """Return the most resident memory that a process had, `VmHWM` of proc_pid_status(5); None if it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123  # as in `_read_stat`
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None


def proportional_bytes(pid: int) -> int:
    """Return the memory of a process in bytes, shared pages divided among the sharers: proc_pid_smaps(5)."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:  # noqa: PTH123  # as in `_read_stat`
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def move_threads(pid: int, before: frozenset[int], after: frozenset[int]) -> bool:
    """Move all threads of a process to CPUs of `after`. Return whether one had to be moved.

    A thread on exactly `before` gets all of `after`. One that chose fewer CPUs keeps those of them that are in `after`.
    """
    moved = False
    for thread in thread_ids(pid):
        try:
            now = os.sched_getaffinity(thread)
            wanted = after if now == before else now & after or after
            if now != wanted:
                os.sched_setaffinity(thread, wanted)
                moved = True
        except OSError:
            continue  # it ended, or may not be moved
    return moved


def thread_ids(pid: int) -> list[int]:
    """Return the threads of a process; none if it has ended."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208  # as in `process_table`
    except OSError:
        return []


def kill(processes: Iterable[Process]) -> None:
    """Kill each of these processes."""
    for process in processes:
        signal_one(process, signal.SIGKILL)


def signal_one(process: Process, number: signal.Signals) -> None:
    """Signal exactly this process, not a later one with its pid: pidfd_open(2)."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        now = _read_stat(str(process.pid))
        if now is not None and now.start == process.start:
            signal.pidfd_send_signal(descriptor, number)
    except OSError:
        pass  # it died, or may not be signalled
    finally:
        os.close(descriptor)


def signal_group(group: int, number: signal.Signals) -> None:
    """Signal a whole group at once, so that no member can fork in between.

    The kernel reuses the pid of a worker only after the last member of its group is reaped.
    """
    if any(process.group == group for process in process_table().values()):
        try:
            os.killpg(group, number)
        except OSError:
            return


def kill_cgroups(directories: Iterable[str]) -> None:
    """Kill all processes in these cgroups. Only version 2 supports this."""
    for directory in directories:
        try:
            with open(f"{directory}/cgroup.kill", "w", encoding="ascii") as file:  # noqa: PTH123  # version 2 only
                file.write("1")
        except OSError:
            continue


def remove_directories(directories: Iterable[str]) -> None:
    """Remove the empty ones of these directories."""
    for directory in directories:
        try:
            os.rmdir(directory)  # noqa: PTH106  # no path objects here: the fewer imports, the faster the start
        except OSError:
            continue
