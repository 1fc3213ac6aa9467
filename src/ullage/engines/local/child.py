"""A child of the supervisor between fork and exec: its output, CPUs, memory and cgroups."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from ullage.wire.output_log import LogWriter

_PR_SET_PDEATHSIG = 1

_OOM_SCORE_ADJ = 500
"""When the machine runs out of memory, the kernel kills workers before servers: proc_pid_oom_score_adj(5)."""

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261}
"""System call number by machine: no C library wraps the call."""
_MPOL_PREFERRED, _MPOL_PREFERRED_MANY = 1, 5
_MOST_ZONES = 1024
"""The most zones that a kernel can be built for."""

_libc = ctypes.CDLL(None, use_errno=True)


def open_output(order: dict[str, Any]) -> tuple[dict[int, LogWriter], list[int]]:
    """Return the logs of an executor by the pipes that feed them, and the ends for its standard output and error.

    Raises:
        OSError: no descriptor is left, or a log cannot be opened.

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


def exec_worker(
    order: dict[str, Any],
    output: list[int],
    cpus: frozenset[int],
    shared: frozenset[int],
    supervisor: int,
    report_fd: int,
) -> NoReturn:
    """Replace the child by the worker. Write an error to `report_fd`."""
    try:
        _prepare(order, output, supervisor)
        if order.get("run_as") is not None:
            _become(order["run_as"], supervisor)
        os.chdir(order["cwd"])
        _set_affinity(cpus, shared, required=order.get("cpus_required", False))
        _set_memory_policy(order.get("zones") or [])
        argv = order["argv"]
        program, *_ = argv
        try:
            os.execvpe(program, argv, order["env"])  # noqa: S606  # no shell is the point
        except OSError as error:
            where = "" if "/" in program else f" (PATH is {order['env'].get('PATH', '')})"
            os.write(report_fd, f"{error.strerror}: {program}{where}".encode()[:4096])
    except OSError as error:
        os.write(report_fd, f"{error.strerror}: {error.filename}".encode()[:4096])
    except BaseException as error:  # noqa: BLE001  # nothing may return from here into the loop of the supervisor
        os.write(report_fd, repr(error).encode()[:4096])
    os._exit(127)


def _prepare(order: dict[str, Any], output: list[int], supervisor: int) -> None:
    """Set up session, cgroups, signals and output between fork and exec."""
    os.setsid()
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it died before the line above took effect
        os._exit(1)
    _join(order.get("cgroups") or [])
    _raise_oom_score()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # ignored signals would stay ignored through exec
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    for standard, writer in enumerate(output, start=1):
        os.dup2(writer, standard)


def _become(user: dict[str, Any], supervisor: int) -> None:
    """Become the user for good: groups, ids, umask. The kernel forgets the death signal then: prctl(2)."""
    os.setgroups(user["groups"])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])
    os.umask(user["umask"])
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)


def _join(cgroups: Iterable[str]) -> None:
    for directory in cgroups:
        with open(f"{directory}/cgroup.procs", "w", encoding="ascii") as file:  # noqa: PTH123  # as in `processes.py`
            file.write("0")  # "0" is the writer itself: cgroups(7)


def _set_affinity(cpus: frozenset[int], shared: frozenset[int], *, required: bool) -> None:
    """Pin this process and its descendants to `cpus`, or to `shared` if the kernel allows none of them.

    The kernel silently leaves out CPUs that a cpuset forbids: sched_setaffinity(2).

    Raises:
        OSError: the CPUs are `required`, and the kernel leaves out one.

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


def _set_memory_policy(zones: list[int]) -> None:
    """Prefer these zones for the memory of this process and its descendants: set_mempolicy(2).

    If the kernel has no zones or refuses, its default remains: a page comes from the zone that first touches it.
    """
    call = _SET_MEMPOLICY.get(os.uname().machine)
    if call is None or not zones or not 0 <= min(zones) <= max(zones) < _MOST_ZONES:
        return
    mask = sum(1 << zone for zone in set(zones)).to_bytes(_MOST_ZONES // 8, "little")
    for mode in (_MPOL_PREFERRED_MANY, _MPOL_PREFERRED)[: 2 if len(zones) == 1 else 1]:  # the first needs Linux 5.15
        if _libc.syscall(call, mode, mask, ctypes.c_ulong(_MOST_ZONES + 1)) == 0:
            return


def _raise_oom_score() -> None:
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:  # noqa: PTH123  # as in `processes.py`
            if int(file.read()) < _OOM_SCORE_ADJ:
                file.write(str(_OOM_SCORE_ADJ))
    except OSError:
        return  # the score is a hint only


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process. Raises OSError if the kernel refuses."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")
