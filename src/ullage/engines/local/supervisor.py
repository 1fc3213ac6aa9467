"""A small separate process that starts workers, and ends every process that they leave behind.

It outlives the server for a moment. So it runs isolated, has one thread, and imports the standard library and a few
modules of Ullage that do the same. Every descendant of a worker stays below the supervisor in the process tree,
because the supervisor is a child subreaper (`PR_SET_CHILD_SUBREAPER`, prctl(2)): orphans exec_worker its children.
An executor is gone once none of its processes is left.

- The server dies: its end of the pipe closes, the supervisor kills everything and ends.
- The supervisor dies: the kernel kills the workers (`PR_SET_PDEATHSIG`). The engine starts another supervisor,
  whose first order is `sweep`: it finds the workers' descendants by their environment.

The output of a worker comes through pipes. The supervisor writes it to logs of bounded size.

Orders arrive as JSON lines on standard input; events leave as JSON lines on standard output:

    {"do": "start", "executor", "argv", "env", "cwd", "out", "err", "cgroups": [dir],
     "memory_bytes": null | limit that the supervisor enforces by sampling,
     "cpus": [id] for this executor alone, "cpus_required": fail the start without them,
     "zones": [id] preferred for memory,
     "run_as": null | {"uid", "gid", "groups": [gid], "umask"} of the user that it runs as}
    {"do": "stop", "executor", "grace_s"}
    {"do": "exec", "exec": id, "executor", "argv", "env"} of another program in a running executor
    {"do": "end-exec", "exec": id}
    {"do": "sweep", "marker": "NAME=VALUE", "cgroups": [dir]}

    {"event": "started", "executor", "pid"}        {"event": "failed", "executor", "message"}
    {"event": "exited", "executor", "status"}      {"event": "too-large", "executor", "bytes"}
    {"event": "gone", "executor", "status"}        {"event": "swept"}
    {"event": "exec-ended", "exec": id, "message"}

`status` is an exit code, negative for a signal. No `gone` follows `failed`.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
import traceback
from typing import Any

from ullage.engines.local.child import exec_worker, open_output, prctl
from ullage.engines.local.exec_hosts import ExecHosts
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
"""Seconds between two samples of the memory of executors without a cgroup."""

_LAST_OUTPUT_S = 0.2
"""Seconds that other processes of a worker that ended by itself may take: its recorder writes the last output."""

_MOST_MOVES = 8
"""Rounds of moving threads to other CPUs: a process that starts a thread during one round needs another."""

_CHUNK = 64 * 1024
_MOST_LEFT = 64
"""Bytes of output copied in one read, and reads for an executor whose processes are all gone."""


class Child:
    """The worker process of an executor."""

    def __init__(self, order: dict[str, Any], pid: int, report_fd: int, output: dict[int, LogWriter]) -> None:
        self.output = output  # by the read end of the pipe
        self.order = order
        self.executor: str = order["executor"]
        # Two markers: other servers on this machine may have executors of the same name.
        self.markers = {f"{name}={order['env'][name]}".encode() for name in ("ULLAGE_HOME_ID", "ULLAGE_EXECUTOR")}
        self.cgroups: list[str] = order.get("cgroups") or []
        self.memory_bytes: int | None = order.get("memory_bytes")
        self.cpus = frozenset(order.get("cpus") or ())
        self.pid = pid
        self.report_fd: int | None = report_fd  # carries the error of a failed start
        self.status: int | None = None
        self.kill_at: float | None = None  # monotonic seconds; None while it may run


class Supervisor:
    """The loop that reads orders, reaps children and ends stopped executors."""

    def __init__(self) -> None:
        self._children: dict[str, Child] = {}
        self._shared_cpus = frozenset(os.sched_getaffinity(0))
        self._sweep: tuple[bytes, list[str]] | None = None
        self._waiting: list[dict[str, Any]] = []  # orders that arrived during a sweep
        self._input = b""
        self._closing = False
        self._tick = _TICK_S
        self._selector = selectors.DefaultSelector()
        self._last_watch = 0.0
        self._last_error = ""
        self._exec_hosts = ExecHosts(_emit)

    def run(self) -> None:
        """Run until the server and all processes that it started are gone."""
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
                # Output alone is no reason to read the process table, which takes long.
                if copied and None not in copied and (look_at is None or time.monotonic() < look_at):
                    continue
                look_at = 0.0  # also after an error below
                self._reap()
                self._end_stopped()
                self._watch_memory()
                pause = self._pause()
                look_at = None if pause is None else time.monotonic() + pause
            except Exception:  # noqa: BLE001  # the next round may succeed; the supervisor must not end here
                self._log_error(traceback.format_exc())
                time.sleep(_TICK_S)

    def _log_error(self, trace: str) -> None:
        """Write an error to standard error, unless it equals the previous one."""
        if trace != self._last_error:
            self._last_error = trace
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
            self._handle(json.loads(line))

    def _handle(self, order: dict[str, Any]) -> None:
        if self._sweep is not None:
            self._waiting.append(order)
        elif order["do"] == "start":
            self._start(order)
        elif order["do"] == "stop":
            self._stop(order["executor"], order["grace_s"])
        elif order["do"] == "exec":
            self._exec(order)
        elif order["do"] == "end-exec":
            self._exec_hosts.kill(order["exec"])
        elif order["do"] == "sweep":
            self._sweep = (order["marker"].encode(), order["cgroups"])

    def _start(self, order: dict[str, Any]) -> None:
        own = frozenset(order.get("cpus") or ())
        self._share_cpus(own)
        try:
            output, writers = open_output(order)
        except OSError as error:
            self._fail_start(order, f"its logs cannot be opened: {error.strerror or error}")
            return
        report_fd, child_fd = os.pipe()  # exec closes it, which proves that the program runs
        supervisor = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            for descriptor in (report_fd, child_fd, *writers, *output):
                os.close(descriptor)
            for log in output.values():
                log.close()
            self._fail_start(order, f"cannot fork: {error.strerror}")
            return
        if pid == 0:
            exec_worker(
                order, writers, own or self._shared_cpus, self._shared_cpus, supervisor=supervisor, report_fd=child_fd
            )
        for descriptor in (child_fd, *writers):
            os.close(descriptor)
        child = self._children[order["executor"]] = Child(order, pid, report_fd, output)
        self._selector.register(report_fd, selectors.EVENT_READ, lambda: self._read_report(child))
        for reader in output:
            self._selector.register(reader, selectors.EVENT_READ, lambda reader=reader: self._copy(child, reader))

    def _fail_start(self, order: dict[str, Any], message: str) -> None:
        _emit(event="failed", executor=order["executor"], message=message)
        self._share_cpus()

    def _read_report(self, child: Child) -> None:
        assert child.report_fd is not None
        message = os.read(child.report_fd, 4096).decode(errors="replace")
        self._selector.unregister(child.report_fd)
        os.close(child.report_fd)
        child.report_fd = None
        if message:
            del self._children[child.executor]  # the child exits next
            self._end_output(child)
            self._share_cpus()
            _emit(event="failed", executor=child.executor, message=message)
        else:
            _emit(event="started", executor=child.executor, pid=child.pid)

    def _copy(self, child: Child, reader: int) -> bool:
        """Copy one chunk of output to its log. Return whether there was one."""
        if reader not in child.output:
            return False  # it ended in this round
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
        """Copy the rest of the output and close the pipes, which another process may hold open."""
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
            return  # its end is reported already
        if child.report_fd is not None:
            grace_s = 0.0  # the program does not run yet, so it cannot clean up
        kill_at = time.monotonic() + grace_s
        if child.kill_at is None or kill_at < child.kill_at:
            child.kill_at = kill_at
        self._tick = _TICK_S
        if grace_s > 0:
            signal_group(child.pid, signal.SIGTERM)
            for process in self._members().get(executor, ()):
                if process.group != child.pid:
                    signal_one(process, signal.SIGTERM)

    def _exec(self, order: dict[str, Any]) -> None:
        child = self._children.get(order["executor"])
        if child is None or child.kill_at is not None:
            self._exec_hosts.fail(order["exec"], "the executor has ended")
        else:
            self._exec_hosts.start(order, child.order, child.cpus or self._shared_cpus, self._shared_cpus)

    # --- exits ----------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Collect dead children: workers, and orphans that the supervisor adopted."""
        by_pid = {child.pid: child for child in self._children.values()}
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = by_pid.get(pid)
            if child is not None:
                self._exited(child, os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024)
            else:
                self._exec_hosts.reap(pid, status)

    def _exited(self, child: Child, status: int, peak_bytes: int) -> None:
        if child.report_fd is not None:
            self._read_report(child)  # the process closed its end, so this does not block
            if child.executor not in self._children:
                return
        child.status = status
        self._tick = _TICK_S
        if child.kill_at is None:
            child.kill_at = time.monotonic() + _LAST_OUTPUT_S
        _emit(event="exited", executor=child.executor, status=status, peak_bytes=peak_bytes)

    def _end_stopped(self) -> None:
        """Kill the processes whose time is up, and report the executors without processes."""
        if self._sweep is not None:
            self._sweep_round(*self._sweep)
        self._exec_hosts.kill_left()
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
                # An orphan without a known owner may belong to this executor, so it is killed too.
                left = left + members.get(None, [])
                if left:
                    signal_group(child.pid, signal.SIGKILL)
                    kill_cgroups(child.cgroups)
                    kill(left)
            if child.status is not None and not left:
                self._remove(child)

    def _remove(self, child: Child) -> None:
        del self._children[child.executor]
        self._end_output(child)
        self._share_cpus()
        if self._closing:
            remove_directories(child.cgroups)  # the engine, which does this otherwise, is gone
        _emit(event="gone", executor=child.executor, status=child.status)

    def _sweep_round(self, marker: bytes, cgroups: list[str]) -> None:
        """Kill processes of an earlier supervisor: those with `marker` in the environment, or in `cgroups`."""
        inside = {pid for directory in cgroups for pid in cgroup_members(directory)}
        own = {os.getpid(), os.getppid()}
        left = [p for p in process_table().values() if p.pid not in own and (p.pid in inside or has_marker(p, marker))]
        if left:
            kill_cgroups(cgroups)
            kill(left)
            return
        remove_directories(cgroups)
        self._sweep = None
        _emit(event="swept")
        waiting, self._waiting = self._waiting, []
        for order in waiting:
            self._handle(order)

    def _pause(self) -> float | None:
        """Return the seconds until the next timed work; None without any."""
        now = time.monotonic()
        due = [child.kill_at for child in self._children.values() if child.kill_at is not None]
        pauses = [moment - now for moment in due if moment > now]
        if self._closing or self._sweep is not None or self._exec_hosts.is_killing or len(pauses) < len(due):
            pauses.append(self._tick)
            self._tick = min(2 * self._tick, _TICK_MAX_S)
        if any(child.memory_bytes for child in self._children.values()):
            pauses.append(max(0.0, self._last_watch + _WATCH_S - now))
        return min(pauses, default=None)

    # --- owners ---------------------------------------------------------------------------------

    def _members(self) -> dict[str | None, list[Process]]:
        """Return living processes by executor; under None the descendants without a known owner."""
        table = process_table()
        own = os.getpid()
        below = descendants(table, own)
        owners: dict[int, str | None] = {}
        members: dict[str | None, list[Process]] = {}
        for process in below:  # parents come before their children
            owner = owners.get(process.parent) if process.parent != own else self._owner(process)
            owners[process.pid] = owner
            members.setdefault(owner, []).append(process)
        # A process that another service started for an executor is not below the supervisor.
        for process in table.values():
            if process.pid not in owners and process.pid != own and (owner := self._marked(process)) is not None:
                members.setdefault(owner, []).append(process)
        return members

    def _owner(self, process: Process) -> str | None:
        """Return the executor that a child of the supervisor belongs to."""
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
        """Move executors without CPUs of their own off the CPUs of others, and off `taken`.

        If no CPU is left, they run on all CPUs that the supervisor may use now; that set changes over time.
        """
        own, every = taken.union(*(child.cpus for child in self._children.values())), frozenset(os.sched_getaffinity(0))
        shared, before = every - own or every, self._shared_cpus
        self._shared_cpus = shared
        rounds = 0 if shared == before else _MOST_MOVES
        while rounds and self._move(before, shared):
            rounds -= 1

    def _move(self, before: frozenset[int], shared: frozenset[int]) -> bool:
        """Move the threads of executors that share CPUs to `shared`. Return whether one moved."""
        sharing = {child.executor for child in self._children.values() if not child.cpus}
        moved = False
        for executor, processes in self._members().items() if sharing else ():
            if executor in sharing:
                for process in processes:
                    moved |= move_threads(process.pid, before, shared)
        return moved

    # --- memory ---------------------------------------------------------------------------------

    def _watch_memory(self) -> None:
        """End executors without a cgroup that hold more memory than they requested."""
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
            # Resident pages count shared pages once per process, so measure again before acting on them.
            if sum(process.rss_pages for process in processes) * page > limit:
                held = sum(proportional_bytes(process.pid) for process in processes)
                if held > limit:
                    child.kill_at = 0.0
                    _emit(event="too-large", executor=child.executor, bytes=held)


def _drain(wake: int) -> None:
    os.read(wake, 4096)


def _emit(**event: object) -> None:
    try:
        data = json.dumps(event).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        return  # the server is gone, which the end of standard input shows too


def main() -> None:
    """Run the supervisor. Only the end of standard input ends it, or SIGKILL."""
    # Some event loops pass a child more than its three descriptors; workers would hold the pipes open.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the server handles them and then closes the pipe
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    Supervisor().run()
