"""A small separate process that starts workers, and sees that nothing of them is left when they end.

It must outlive the server for a moment, so it runs isolated, has one thread, and imports the standard library and a few
modules of Ullage that do the same. Every descendant of a worker stays below the supervisor in the process tree, however
it forks and whatever session it opens, because the supervisor is a child subreaper (`PR_SET_CHILD_SUBREAPER`,
prctl(2)): orphans become its children. An executor is gone once none of its processes is left there.

- The server dies: its end of the pipe closes, the supervisor kills everything and ends.
- The supervisor dies: the kernel kills the workers (`PR_SET_PDEATHSIG`); what they started is found
  by its environment when the engine starts the next supervisor, whose first order is `sweep`.

What a worker prints comes through pipes, and the supervisor writes it to logs of bounded size.

Orders come as JSON lines on standard input, what happens goes out as JSON lines:

    {"do": "start", "executor", "argv", "env", "cwd", "out", "err", "cgroups": [dir],
     "memory_bytes": null | bytes to be enforced by watching,
     "cpus": [id] it has alone, "cpus_required": whether it must not start without them,
     "zones": [id] its memory comes from first}
    {"do": "stop", "executor", "grace_s"}
    {"do": "sweep", "marker": "NAME=VALUE", "cgroups": [dir]}

    {"event": "started", "executor", "pid"}        {"event": "failed", "executor", "message"}
    {"event": "exited", "executor", "status"}      {"event": "too-large", "executor", "bytes"}
    {"event": "gone", "executor", "status"}        {"event": "swept"}

`status` is an exit code, negative for a signal. After `failed` comes no `gone`.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
import traceback
from typing import Any

from ullage.engines.local.child import become, open_output, prctl
from ullage.engines.local.processes import (
    Process,
    cgroup_members,
    descendants,
    has_marker,
    kill,
    kill_cgroups,
    move_threads,
    process_table,
    proportional_bytes,
    read_environment,
    remove_directories,
    signal_group,
    signal_one,
)
from ullage.wire.output_log import LogWriter

PR_SET_CHILD_SUBREAPER = 36


_TICK_S = 0.01
"""Seconds between two rounds of killing; doubled each round up to `_TICK_MAX_S`."""
_TICK_MAX_S = 0.5
_WATCH_S = 0.5
"""Seconds between two looks at the memory of executors without a cgroup."""

_MOST_MOVES = 8
"""Rounds of moving threads to other CPUs: one that starts a thread meanwhile needs another, few need a third."""

_CHUNK = 64 * 1024
_MOST_LEFT = 64
"""Bytes of output that are copied in one turn, and turns of an executor of which nothing lives any more."""


class Child:
    """The process of an executor, which the supervisor started."""

    def __init__(self, order: dict[str, Any], pid: int, report_fd: int, output: dict[int, LogWriter]) -> None:
        self.output = output  # by the end for reading of the pipe that it comes from
        self.executor: str = order["executor"]
        # Both: other servers on this machine may have executors of the same name.
        self.markers = {f"{name}={order['env'][name]}".encode() for name in ("ULLAGE_HOME_ID", "ULLAGE_EXECUTOR")}
        self.cgroups: list[str] = order.get("cgroups") or []
        self.memory_bytes: int | None = order.get("memory_bytes")
        self.cpus = frozenset(order.get("cpus") or ())
        self.pid = pid
        self.report_fd: int | None = report_fd  # where the child says that it could not start
        self.status: int | None = None
        self.kill_at: float | None = None  # monotonic seconds; None: it is meant to live


class Supervisor:
    """The loop: orders in, children reaped, stopped executors ended."""

    def __init__(self) -> None:
        self._children: dict[str, Child] = {}
        self._shared_cpus = frozenset(os.sched_getaffinity(0))
        self._sweep: tuple[bytes, list[str]] | None = None
        self._waiting: list[dict[str, Any]] = []  # orders that came during a sweep
        self._input = b""
        self._closing = False
        self._tick = _TICK_S
        self._selector = selectors.DefaultSelector()
        self._last_watch = 0.0
        self._said = ""

    def run(self) -> None:
        """Work until the server is gone and so is all that it had started."""
        wake, wake_sender = os.pipe()
        for descriptor in (wake, wake_sender):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_sender, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(0, selectors.EVENT_READ, self._read_orders)
        self._selector.register(wake, selectors.EVENT_READ, lambda: _drain(wake))
        look_at: float | None = 0.0
        while not (self._closing and self._empty()):
            try:
                wait = None if look_at is None else max(0.0, look_at - time.monotonic())
                copied = [key.data() for key, _ in self._selector.select(wait)]
                # Output alone is no reason to look at all processes: who prints without end would cost a lot.
                if copied and None not in copied and (look_at is None or time.monotonic() < look_at):
                    continue
                look_at = 0.0  # also after an error below
                self._reap()
                self._end_stopped()
                self._watch_memory()
                pause = self._pause()
                look_at = None if pause is None else time.monotonic() + pause
            except Exception:  # noqa: BLE001  # whatever it is, the next round may do better; ending here may not
                self._complain(traceback.format_exc())
                time.sleep(_TICK_S)

    def _complain(self, trace: str) -> None:
        """Write what is wrong to standard error, once for as long as it stays the same."""
        if trace != self._said:
            self._said = trace
            os.write(2, trace.encode())

    def _empty(self) -> bool:
        return not self._children and self._sweep is None and not descendants(process_table(), os.getpid())

    # --- orders ---------------------------------------------------------------------------------

    def _read_orders(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            self._selector.unregister(0)
            self._closing = True
            for child in self._children.values():
                child.kill_at = 0.0
            return
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, order: dict[str, Any]) -> None:
        if self._sweep is not None:
            self._waiting.append(order)
        elif order["do"] == "start":
            self._start(order)
        elif order["do"] == "stop":
            self._stop(order["executor"], order["grace_s"])
        elif order["do"] == "sweep":
            self._sweep = (order["marker"].encode(), order["cgroups"])

    def _start(self, order: dict[str, Any]) -> None:
        own = frozenset(order.get("cpus") or ())
        self._share_cpus(own)
        try:
            output, writers = open_output(order)
        except OSError as error:
            self._not_started(order, f"its logs cannot be opened: {error.strerror or error}")
            return
        report_fd, child_fd = os.pipe()  # closed by exec: proof that the program runs
        supervisor = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            for descriptor in (report_fd, child_fd, *writers, *output):
                os.close(descriptor)
            for log in output.values():
                log.close()
            self._not_started(order, f"cannot fork: {error.strerror}")
            return
        if pid == 0:
            become(
                order, writers, own or self._shared_cpus, self._shared_cpus, supervisor=supervisor, report_fd=child_fd
            )
        for descriptor in (child_fd, *writers):
            os.close(descriptor)
        child = self._children[order["executor"]] = Child(order, pid, report_fd, output)
        self._selector.register(report_fd, selectors.EVENT_READ, lambda: self._read_report(child))
        for reader in output:
            self._selector.register(reader, selectors.EVENT_READ, lambda reader=reader: self._copy(child, reader))

    def _not_started(self, order: dict[str, Any], message: str) -> None:
        _say(event="failed", executor=order["executor"], message=message)
        self._share_cpus()

    def _read_report(self, child: Child) -> None:
        assert child.report_fd is not None
        message = os.read(child.report_fd, 4096).decode(errors="replace")
        self._selector.unregister(child.report_fd)
        os.close(child.report_fd)
        child.report_fd = None
        if message:
            del self._children[child.executor]  # the child has only its exit left to do
            self._end_output(child)
            self._share_cpus()
            _say(event="failed", executor=child.executor, message=message)
        else:
            _say(event="started", executor=child.executor, pid=child.pid)

    def _copy(self, child: Child, reader: int) -> bool:
        """Copy one chunk of output; whether there was one."""
        if reader not in child.output:
            return False  # it ended in this turn
        try:
            data = os.read(reader, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            child.output[reader].write(data)
            return True
        self._selector.unregister(reader)
        os.close(reader)
        child.output.pop(reader).close()
        return False

    def _end_output(self, child: Child) -> None:
        """Copy what is left in the pipes, which another process may hold open, and close them."""
        for reader in list(child.output):
            for _ in range(_MOST_LEFT):
                if not self._copy(child, reader):
                    break
        for reader, log in child.output.items():
            self._selector.unregister(reader)
            os.close(reader)
            log.close()
        child.output.clear()

    def _stop(self, executor: str, grace_s: float) -> None:
        child = self._children.get(executor)
        if child is None:
            return  # its end has been told already
        if child.report_fd is not None:
            grace_s = 0.0  # it does not run yet, so it cannot end well
        kill_at = time.monotonic() + grace_s
        if child.kill_at is None or kill_at < child.kill_at:
            child.kill_at = kill_at
        self._tick = _TICK_S
        if grace_s > 0:
            signal_group(child.pid, signal.SIGTERM)
            for process in self._members().get(executor, ()):
                if process.group != child.pid:
                    signal_one(process, signal.SIGTERM)

    # --- ends -----------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Collect dead children: workers, and orphans of theirs that became ours."""
        by_pid = {child.pid: child for child in self._children.values()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = by_pid.get(pid)
            if child is not None:
                self._exited(child, os.waitstatus_to_exitcode(status))

    def _exited(self, child: Child, status: int) -> None:
        if child.report_fd is not None:
            self._read_report(child)  # its end closed with the process, so this does not block
            if child.executor not in self._children:
                return
        child.status = status
        self._tick = _TICK_S
        if child.kill_at is None:
            child.kill_at = 0.0
        _say(event="exited", executor=child.executor, status=status)

    def _end_stopped(self) -> None:
        """Kill what is due, and report the executors of which nothing is left."""
        if self._sweep is not None:
            self._do_sweep(*self._sweep)
        ending = [child for child in self._children.values() if child.kill_at is not None]
        if not ending:
            if self._closing:
                kill(descendants(process_table(), os.getpid()))
            return
        members = self._members()
        now = time.monotonic()
        for child in ending:
            left = members.get(child.executor, [])
            if child.kill_at is not None and child.kill_at <= now:
                # An orphan without a sign of whose it is may be this executor's: it cannot stay either.
                left = left + members.get(None, [])
                if left:
                    signal_group(child.pid, signal.SIGKILL)
                    kill_cgroups(child.cgroups)
                    kill(left)
            if child.status is not None and not left:
                self._gone(child)

    def _gone(self, child: Child) -> None:
        del self._children[child.executor]
        self._end_output(child)
        self._share_cpus()
        if self._closing:
            remove_directories(child.cgroups)  # nobody else is there to do it
        _say(event="gone", executor=child.executor, status=child.status)

    def _do_sweep(self, marker: bytes, cgroups: list[str]) -> None:
        """Kill what an earlier supervisor could not: processes whose environment has `marker`, or in `cgroups`."""
        inside = {pid for directory in cgroups for pid in cgroup_members(directory)}
        own = {os.getpid(), os.getppid()}
        left = [p for p in process_table().values() if p.pid not in own and (p.pid in inside or has_marker(p, marker))]
        if left:
            kill_cgroups(cgroups)
            kill(left)
            return
        remove_directories(cgroups)
        self._sweep = None
        _say(event="swept")
        waiting, self._waiting = self._waiting, []
        for order in waiting:
            self._obey(order)

    def _pause(self) -> float | None:
        """Seconds until there is something to do besides orders and dead children."""
        now = time.monotonic()
        due = [child.kill_at for child in self._children.values() if child.kill_at is not None]
        pauses = [moment - now for moment in due if moment > now]
        if self._closing or self._sweep is not None or len(pauses) < len(due):
            pauses.append(self._tick)
            self._tick = min(2 * self._tick, _TICK_MAX_S)
        if any(child.memory_bytes for child in self._children.values()):
            pauses.append(max(0.0, self._last_watch + _WATCH_S - now))
        return min(pauses, default=None)

    # --- whose is it ----------------------------------------------------------------------------

    def _members(self) -> dict[str | None, list[Process]]:
        """Living processes by executor; under None those below the supervisor that show no owner."""
        table = process_table()
        own = os.getpid()
        below = descendants(table, own)
        owners: dict[int, str | None] = {}
        members: dict[str | None, list[Process]] = {}
        for process in below:  # parents come before their children
            owner = owners.get(process.parent) if process.parent != own else self._owner(process)
            owners[process.pid] = owner
            members.setdefault(owner, []).append(process)
        # One that another service started on an executor's behalf is not below the supervisor.
        for process in table.values():
            if process.pid not in owners and process.pid != own and (owner := self._marked(process)) is not None:
                members.setdefault(owner, []).append(process)
        return members

    def _owner(self, process: Process) -> str | None:
        """Whose worker or orphan a child of the supervisor is."""
        for child in self._children.values():
            if child.pid in (process.pid, process.group, process.session):
                return child.executor
        for child in self._children.values():
            if any(process.pid in cgroup_members(directory) for directory in child.cgroups):
                return child.executor
        return self._marked(process)

    def _marked(self, process: Process) -> str | None:
        environment = read_environment(process.pid)
        if b"ULLAGE_EXECUTOR=" not in environment:
            return None
        entries = set(environment.split(b"\0"))
        return next((child.executor for child in self._children.values() if child.markers <= entries), None)

    # --- CPUs -----------------------------------------------------------------------------------

    def _share_cpus(self, taken: frozenset[int] = frozenset()) -> None:
        """Keep executors without CPUs of their own off those that others have, and off `taken`.

        If none is left for them, they run on all CPUs that the supervisor may use now: CPUs come and go, and so does
        what a cpuset allows.
        """
        own, every = taken.union(*(child.cpus for child in self._children.values())), frozenset(os.sched_getaffinity(0))
        shared, before = every - own or every, self._shared_cpus
        self._shared_cpus = shared
        rounds = 0 if shared == before else _MOST_MOVES
        while rounds and self._move(before, shared):
            rounds -= 1

    def _move(self, before: frozenset[int], shared: frozenset[int]) -> bool:
        """Bring the threads of executors that share CPUs to `shared`; whether any had to be moved."""
        sharing = {child.executor for child in self._children.values() if not child.cpus}
        moved = False
        for executor, processes in self._members().items() if sharing else ():
            if executor in sharing:
                for process in processes:
                    moved |= move_threads(process.pid, before, shared)
        return moved

    # --- memory ---------------------------------------------------------------------------------

    def _watch_memory(self) -> None:
        """Where no cgroup does it: end executors that hold more memory than they asked for."""
        now = time.monotonic()
        watched = [child for child in self._children.values() if child.memory_bytes and child.kill_at is None]
        if not watched or now - self._last_watch < _WATCH_S:
            return
        self._last_watch = now
        members = self._members()
        page = os.sysconf("SC_PAGESIZE")
        for child in watched:
            processes = members.get(child.executor, [])
            limit = child.memory_bytes or 0
            # Resident pages count shared ones once per process, so look closer before acting on them.
            if sum(process.rss_pages for process in processes) * page > limit:
                held = sum(proportional_bytes(process.pid) for process in processes)
                if held > limit:
                    child.kill_at = 0.0
                    _say(event="too-large", executor=child.executor, bytes=held)


def _drain(wake: int) -> None:
    os.read(wake, 4096)


def _say(**event: object) -> None:
    try:
        data = json.dumps(event).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        return  # the server is gone; the end of standard input says so too


def main() -> None:
    """Be the supervisor. Only the end of standard input ends it, or SIGKILL."""
    # Some event loops leave a child more than its three descriptors; workers would hold the pipes open.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are meant for the server, which then closes the pipe
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    Supervisor().run()
