"""Hosts of programs that the supervisor starts in an executor that runs already.

A host that ends with 0 has ended its program. After any other end, such as by SIGKILL, the supervisor kills what the
program has started: each of its processes has the id of the host in its environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ullage.engines.local.child import exec_worker
from ullage.engines.local.processes import has_marker, kill, process_table

_MOST_MESSAGE = 4096


class ExecHosts:
    """The hosts of one supervisor; `emit` reports an event."""

    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        self._running: dict[int, tuple[str, int]] = {}  # by pid: the id, and the pipe with what it printed
        self._killed: set[bytes] = set()  # markers

    @property
    def is_killing(self) -> bool:
        """Whether processes are being killed, which takes another round."""
        return bool(self._killed)

    def start(
        self, order: dict[str, Any], executor: dict[str, Any], cpus: frozenset[int], shared: frozenset[int]
    ) -> None:
        """Start a host as the worker of an executor was started, by its order."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        supervisor = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(reader)
            os.close(writer)
            self.fail(order["exec"], f"cannot fork: {error.strerror}")
            return
        if pid == 0:
            own = {name: order[name] for name in ("argv", "env")}
            exec_worker(executor | own, [writer, writer], cpus, shared, supervisor=supervisor, report_fd=writer)
        os.close(writer)
        self._running[pid] = (order["exec"], reader)

    def fail(self, name: str, message: str) -> None:
        """Report that a host could not be started."""
        self._emit(event="exec-ended", exec=name, message=message)

    def reap(self, pid: int, status: int) -> None:
        """Handle the end of a child that is no worker."""
        if pid not in self._running:
            return
        name, reader = self._running.pop(pid)
        try:
            message = os.read(reader, _MOST_MESSAGE).decode(errors="replace")
        except BlockingIOError:
            message = ""
        os.close(reader)
        if status != 0:
            self.kill(name)
        self._emit(event="exec-ended", exec=name, message=message)

    def kill(self, name: str) -> None:
        """Kill a host and all that its program has started."""
        self._killed.add(f"ULLAGE_EXEC={name}".encode())

    def kill_left(self) -> None:
        """Kill the processes that are left of ended hosts. The next round finds those that were started meanwhile."""
        if not self._killed:
            return
        table = process_table().values()
        for marker in list(self._killed):
            left = [process for process in table if has_marker(process, marker)]
            kill(left)
            if not left:
                self._killed.discard(marker)
