"""A small separate process that starts workers, and sees that nothing of them is left when they end.

It must outlive the server by a moment, so it runs isolated, imports the standard library and
`ullage.wire.output_log` only, and has one thread. Every descendant of a worker stays below the warden in the
process tree, however it forks and whatever session it opens, because the warden is a child
subreaper (`PR_SET_CHILD_SUBREAPER`, prctl(2)): orphans become its children. An executor is gone
once none of its processes is left there.

- The server dies: its end of the pipe closes, the warden kills everything and ends.
- The warden dies: the kernel kills the workers (`PR_SET_PDEATHSIG`); what they started is found
  by its environment when the engine starts the next warden, whose first order is `sweep`.

What a worker prints comes through pipes, and the warden writes it to logs of bounded size.

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

import ctypes
import errno
import json
import os
import selectors
import signal
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ullage.wire.output_log import LogWriter

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

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

_OOM_SCORE_ADJ = 500
"""When the machine runs out of memory, workers go before servers and shells: proc_pid_oom_score_adj(5)."""

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261}
"""Number of the call: it is in no C library."""
_MPOL_PREFERRED, _MPOL_PREFERRED_MANY = 1, 5
_MOST_ZONES = 1024
"""What a kernel can be built for."""

_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """One row of the process table: proc_pid_stat(5). `start` tells a process from a later one of its pid."""

    pid: int
    parent: int
    group: int
    session: int
    start: int
    rss_pages: int


class Ward:
    """An executor the warden looks after."""

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


class Warden:
    """The loop: orders in, children reaped, executors that end seen off."""

    def __init__(self) -> None:
        self._wards: dict[str, Ward] = {}
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
                self._see_off()
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
        return not self._wards and self._sweep is None and not descendants(process_table(), os.getpid())

    # --- orders ---------------------------------------------------------------------------------

    def _read_orders(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            self._selector.unregister(0)
            self._closing = True
            for ward in self._wards.values():
                ward.kill_at = 0.0
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
            output, writers = _open_output(order)
        except OSError as error:
            self._not_started(order, f"its logs cannot be opened: {error.strerror or error}")
            return
        report_fd, child_fd = os.pipe()  # closed by exec: proof that the program runs
        warden = os.getpid()
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
            _become(order, writers, own or self._shared_cpus, self._shared_cpus, warden, child_fd)
        for descriptor in (child_fd, *writers):
            os.close(descriptor)
        ward = self._wards[order["executor"]] = Ward(order, pid, report_fd, output)
        self._selector.register(report_fd, selectors.EVENT_READ, lambda: self._read_report(ward))
        for reader in output:
            self._selector.register(reader, selectors.EVENT_READ, lambda reader=reader: self._copy(ward, reader))

    def _not_started(self, order: dict[str, Any], message: str) -> None:
        _say(event="failed", executor=order["executor"], message=message)
        self._share_cpus()

    def _read_report(self, ward: Ward) -> None:
        assert ward.report_fd is not None
        message = os.read(ward.report_fd, 4096).decode(errors="replace")
        self._selector.unregister(ward.report_fd)
        os.close(ward.report_fd)
        ward.report_fd = None
        if message:
            del self._wards[ward.executor]  # the child has only its exit left to do
            self._end_output(ward)
            self._share_cpus()
            _say(event="failed", executor=ward.executor, message=message)
        else:
            _say(event="started", executor=ward.executor, pid=ward.pid)

    def _copy(self, ward: Ward, reader: int) -> bool:
        """Copy one chunk of output; whether there was one."""
        if reader not in ward.output:
            return False  # it ended in this turn
        try:
            data = os.read(reader, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            ward.output[reader].write(data)
            return True
        self._selector.unregister(reader)
        os.close(reader)
        ward.output.pop(reader).close()
        return False

    def _end_output(self, ward: Ward) -> None:
        """Copy what is left in the pipes, which another process may hold open, and close them."""
        for reader in list(ward.output):
            for _ in range(_MOST_LEFT):
                if not self._copy(ward, reader):
                    break
        for reader, log in ward.output.items():
            self._selector.unregister(reader)
            os.close(reader)
            log.close()
        ward.output.clear()

    def _stop(self, executor: str, grace_s: float) -> None:
        ward = self._wards.get(executor)
        if ward is None:
            return  # its end has been told already
        if ward.report_fd is not None:
            grace_s = 0.0  # it does not run yet, so it cannot end well
        kill_at = time.monotonic() + grace_s
        if ward.kill_at is None or kill_at < ward.kill_at:
            ward.kill_at = kill_at
        self._tick = _TICK_S
        if grace_s > 0:
            _signal_group(ward.pid, signal.SIGTERM)
            for process in self._members().get(executor, ()):
                if process.group != ward.pid:
                    _signal(process, signal.SIGTERM)

    # --- ends -----------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Collect dead children: workers, and orphans of theirs that became ours."""
        by_pid = {ward.pid: ward for ward in self._wards.values()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ward = by_pid.get(pid)
            if ward is not None:
                self._exited(ward, os.waitstatus_to_exitcode(status))

    def _exited(self, ward: Ward, status: int) -> None:
        if ward.report_fd is not None:
            self._read_report(ward)  # its end closed with the process, so this does not block
            if ward.executor not in self._wards:
                return
        ward.status = status
        self._tick = _TICK_S
        if ward.kill_at is None:
            ward.kill_at = 0.0
        _say(event="exited", executor=ward.executor, status=status)

    def _see_off(self) -> None:
        """Kill what is due, and report the executors of which nothing is left."""
        if self._sweep is not None:
            self._do_sweep(*self._sweep)
        ending = [ward for ward in self._wards.values() if ward.kill_at is not None]
        if not ending:
            if self._closing:
                _kill(descendants(process_table(), os.getpid()))
            return
        members = self._members()
        now = time.monotonic()
        for ward in ending:
            left = members.get(ward.executor, [])
            if ward.kill_at is not None and ward.kill_at <= now:
                # An orphan without a sign of whose it is may be this executor's: it cannot stay either.
                left = left + members.get(None, [])
                if left:
                    _signal_group(ward.pid, signal.SIGKILL)
                    _kill_cgroups(ward.cgroups)
                    _kill(left)
            if ward.status is not None and not left:
                self._gone(ward)

    def _gone(self, ward: Ward) -> None:
        del self._wards[ward.executor]
        self._end_output(ward)
        self._share_cpus()
        if self._closing:
            _remove(ward.cgroups)  # nobody else is there to do it
        _say(event="gone", executor=ward.executor, status=ward.status)

    def _do_sweep(self, marker: bytes, cgroups: list[str]) -> None:
        """Kill what an earlier warden could not: processes whose environment has `marker`, or in `cgroups`."""
        inside = {pid for directory in cgroups for pid in cgroup_members(directory)}
        own = {os.getpid(), os.getppid()}
        left = [p for p in process_table().values() if p.pid not in own and (p.pid in inside or has_marker(p, marker))]
        if left:
            _kill_cgroups(cgroups)
            _kill(left)
            return
        _remove(cgroups)
        self._sweep = None
        _say(event="swept")
        waiting, self._waiting = self._waiting, []
        for order in waiting:
            self._obey(order)

    def _pause(self) -> float | None:
        """Seconds until there is something to do besides orders and dead children."""
        now = time.monotonic()
        due = [ward.kill_at for ward in self._wards.values() if ward.kill_at is not None]
        pauses = [moment - now for moment in due if moment > now]
        if self._closing or self._sweep is not None or len(pauses) < len(due):
            pauses.append(self._tick)
            self._tick = min(2 * self._tick, _TICK_MAX_S)
        if any(ward.memory_bytes for ward in self._wards.values()):
            pauses.append(max(0.0, self._last_watch + _WATCH_S - now))
        return min(pauses, default=None)

    # --- whose is it ----------------------------------------------------------------------------

    def _members(self) -> dict[str | None, list[Process]]:
        """Living processes by executor; under None those below the warden that show no owner."""
        table = process_table()
        own = os.getpid()
        below = descendants(table, own)
        owners: dict[int, str | None] = {}
        members: dict[str | None, list[Process]] = {}
        for process in below:  # parents come before their children
            owner = owners.get(process.parent) if process.parent != own else self._owner(process)
            owners[process.pid] = owner
            members.setdefault(owner, []).append(process)
        # One that another service started on an executor's behalf is not below the warden.
        for process in table.values():
            if process.pid not in owners and process.pid != own and (owner := self._marked(process)) is not None:
                members.setdefault(owner, []).append(process)
        return members

    def _owner(self, process: Process) -> str | None:
        """Whose worker or orphan a child of the warden is."""
        for ward in self._wards.values():
            if ward.pid in (process.pid, process.group, process.session):
                return ward.executor
        for ward in self._wards.values():
            if any(process.pid in cgroup_members(directory) for directory in ward.cgroups):
                return ward.executor
        return self._marked(process)

    def _marked(self, process: Process) -> str | None:
        environment = read_environment(process.pid)
        if b"ULLAGE_EXECUTOR=" not in environment:
            return None
        entries = set(environment.split(b"\0"))
        return next((ward.executor for ward in self._wards.values() if ward.markers <= entries), None)

    # --- CPUs -----------------------------------------------------------------------------------

    def _share_cpus(self, taken: frozenset[int] = frozenset()) -> None:
        """Keep executors without CPUs of their own off those that others have, and off `taken`.

        If none is left for them they run on all: they have nowhere else to go. All are those that the warden may use
        now: CPUs come and go, and so does what a cpuset allows.
        """
        own, every = taken.union(*(ward.cpus for ward in self._wards.values())), frozenset(os.sched_getaffinity(0))
        shared, before = every - own or every, self._shared_cpus
        self._shared_cpus = shared
        rounds = 0 if shared == before else _MOST_MOVES
        while rounds and self._move(before, shared):
            rounds -= 1

    def _move(self, before: frozenset[int], shared: frozenset[int]) -> bool:
        """Bring the threads of executors that share CPUs to `shared`; whether any had to be moved."""
        sharing = {ward.executor for ward in self._wards.values() if not ward.cpus}
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
        watched = [ward for ward in self._wards.values() if ward.memory_bytes and ward.kill_at is None]
        if not watched or now - self._last_watch < _WATCH_S:
            return
        self._last_watch = now
        members = self._members()
        page = os.sysconf("SC_PAGESIZE")
        for ward in watched:
            processes = members.get(ward.executor, [])
            limit = ward.memory_bytes or 0
            # Resident pages count shared ones once per process, so look closer before acting on them.
            if sum(process.rss_pages for process in processes) * page > limit:
                held = sum(proportional_bytes(process.pid) for process in processes)
                if held > limit:
                    ward.kill_at = 0.0
                    _say(event="too-large", executor=ward.executor, bytes=held)


def _drain(wake: int) -> None:
    os.read(wake, 4096)


def process_table() -> dict[int, Process]:
    """Return every process that lives, by pid. A zombie holds nothing any more and is left out."""
    table = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # strings are wanted, and many
        if name.isdigit():
            process = _read_stat(name)
            if process is not None:
                table[process.pid] = process
    return table


def _read_stat(name: str) -> Process | None:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123  # this runs for every process there is
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # a command name may hold blanks and parentheses
    state, threads = fields[0], int(fields[17])
    if state in b"XZ" and threads <= 1:  # a zombie leader with threads still runs
        return None
    return Process(int(name), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), int(fields[21]))


def descendants(table: dict[int, Process], pid: int) -> list[Process]:
    """Everything below `pid`, parents before children."""
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
    """Return the pids in a cgroup; none if it is not there."""
    try:
        with open(f"{directory}/cgroup.procs", encoding="ascii") as file:  # noqa: PTH123  # as in `_read_stat`
            return [int(line) for line in file]
    except OSError:
        return []


def proportional_bytes(pid: int) -> int:
    """Memory of a process, shared pages divided among those who share them: proc_pid_smaps(5)."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:  # noqa: PTH123  # as in `_read_stat`
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def move_threads(pid: int, before: frozenset[int], after: frozenset[int]) -> bool:
    """Bring all threads of a process to CPUs of `after`; whether one had to be moved.

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
            continue  # it ended, or is not ours to move
    return moved


def thread_ids(pid: int) -> list[int]:
    """Return the threads of a process; none if it has ended."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208  # as in `process_table`
    except OSError:
        return []


def _kill(processes: Iterable[Process]) -> None:
    for process in processes:
        _signal(process, signal.SIGKILL)


def _signal(process: Process, number: signal.Signals) -> None:
    """Signal exactly this process, not one that took its pid meanwhile: pidfd_open(2)."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        now = _read_stat(str(process.pid))
        if now is not None and now.start == process.start:
            signal.pidfd_send_signal(descriptor, number)
    except OSError:
        pass  # it died, or is not ours to signal
    finally:
        os.close(descriptor)


def _signal_group(group: int, number: signal.Signals) -> None:
    """Signal a whole group at once, so that none forks away in between.

    The pid of a worker names its group until the last member is reaped, and cannot be given to
    another process before that.
    """
    if any(process.group == group for process in process_table().values()):
        try:
            os.killpg(group, number)
        except OSError:
            return


def _kill_cgroups(directories: Iterable[str]) -> None:
    for directory in directories:
        try:
            with open(f"{directory}/cgroup.kill", "w", encoding="ascii") as file:  # noqa: PTH123  # version 2 only
                file.write("1")
        except OSError:
            continue


def _remove(directories: Iterable[str]) -> None:
    for directory in directories:
        try:
            os.rmdir(directory)  # noqa: PTH106  # no path objects here: the fewer imports, the faster the start
        except OSError:
            continue


def _open_output(order: dict[str, Any]) -> tuple[dict[int, LogWriter], list[int]]:
    """Return the logs of an executor by the pipes that feed them, and the ends for its standard output and error.

    Raises:
        OSError: there is no descriptor left, or a log cannot be opened.

    """
    output: dict[int, LogWriter] = {}
    writers: list[int] = []
    try:
        for path in map(Path, (order["out"], order["err"])):
            log = LogWriter(path.parent, path.name)
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            output[reader] = log
            writers.append(writer)
    except OSError:
        for descriptor in (*output, *writers):
            os.close(descriptor)
        for log in output.values():
            log.close()
        raise
    return output, writers


def _become(
    order: dict[str, Any],
    output: list[int],
    cpus: frozenset[int],
    shared: frozenset[int],
    warden: int,
    report_fd: int,
) -> NoReturn:
    """In the child: become the worker. What goes wrong is written to `report_fd`."""
    try:
        _prepare(order, output, warden)
        _stay_on(cpus, shared, required=order.get("cpus_required", False))
        _stay_near(order.get("zones") or [])
        argv = order["argv"]
        try:
            os.execvpe(argv[0], argv, order["env"])  # noqa: S606  # no shell is the point
        except OSError as error:
            where = "" if "/" in argv[0] else f" (PATH is {order['env'].get('PATH', '')})"
            os.write(report_fd, f"{error.strerror}: {argv[0]}{where}".encode()[:4096])
    except OSError as error:
        os.write(report_fd, f"{error.strerror}: {error.filename}".encode()[:4096])
    except BaseException as error:  # noqa: BLE001  # nothing may return from here into the warden's loop
        os.write(report_fd, repr(error).encode()[:4096])
    os._exit(127)


def _prepare(order: dict[str, Any], output: list[int], warden: int) -> None:
    """Everything between fork and exec."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != warden:  # it died before the line above took effect
        os._exit(1)
    _join(order.get("cgroups") or [])
    _offer_to_oom_killer()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # ignored signals would stay ignored through exec
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    for standard, writer in enumerate(output, start=1):
        os.dup2(writer, standard)
    os.chdir(order["cwd"])


def _join(cgroups: Iterable[str]) -> None:
    for directory in cgroups:
        with open(f"{directory}/cgroup.procs", "w", encoding="ascii") as file:  # noqa: PTH123  # as in `_remove`
            file.write("0")  # "0" is the writer itself: cgroups(7)


def _stay_on(cpus: frozenset[int], shared: frozenset[int], *, required: bool) -> None:
    """Have this process, and all that it starts, run on these CPUs only, or on the `shared` ones if it may use none.

    The kernel leaves out CPUs that a cpuset forbids without a word: sched_setaffinity(2). If they are `required`,
    all of them must be there.
    """
    for wanted in (cpus, shared):
        try:
            os.sched_setaffinity(0, wanted)
        except OSError:
            continue
        break
    if required and os.sched_getaffinity(0) != cpus:
        shown = ",".join(map(str, sorted(cpus)))
        raise OSError(errno.EINVAL, "the kernel does not let it run on all of the CPUs it was placed on", shown)


def _stay_near(zones: list[int]) -> None:
    """Have this process, and all that it starts, take its memory from these zones while they have some.

    See set_mempolicy(2). A kernel without zones, or one that does not let it, leaves things as they are: memory comes
    from where a page is first touched.
    """
    call = _SET_MEMPOLICY.get(os.uname().machine)
    if call is None or not zones or not 0 <= min(zones) <= max(zones) < _MOST_ZONES:
        return
    mask = sum(1 << zone for zone in set(zones)).to_bytes(_MOST_ZONES // 8, "little")
    for mode in (_MPOL_PREFERRED_MANY, _MPOL_PREFERRED)[: 2 if len(zones) == 1 else 1]:  # the first is of Linux 5.15
        if _libc.syscall(call, mode, mask, ctypes.c_ulong(_MOST_ZONES + 1)) == 0:
            return


def _offer_to_oom_killer() -> None:
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:  # noqa: PTH123  # as in `_remove`
            if int(file.read()) < _OOM_SCORE_ADJ:
                file.write(str(_OOM_SCORE_ADJ))
    except OSError:
        return  # a hint to the kernel, not a promise to anybody


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def _say(**event: object) -> None:
    try:
        data = json.dumps(event).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        return  # the server is gone; the end of standard input says so too


def main() -> None:
    """Be the warden. Only the end of standard input ends it, or SIGKILL."""
    # Some event loops leave a child more than its three descriptors; workers would hold the pipes open.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are meant for the server, which then closes the pipe
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    Warden().run()
