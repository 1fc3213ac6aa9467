"""Executors as processes of this machine: the `Engine` port on a supervisor, a socket, and cgroups.

Everything runs on the event loop of `open`; nothing here blocks it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Container, Coroutine, Sequence
from pathlib import Path
from typing import Any

from ullage.engines.local import cgroup
from ullage.engines.local.card_devices import CardDevices, find_closer
from ullage.engines.local.cgroup import Cell, Confinement
from ullage.engines.local.ended_logs import EndedLogs
from ullage.engines.local.environment import worker_command, worker_environment
from ullage.engines.local.executor import LocalExecutor, own_cpus
from ullage.engines.local.home import Home, remove
from ullage.engines.local.link import SupervisorLink
from ullage.engines.local.run_as import find_user, give, identity_order, inherited
from ullage.engines.local.sharing import Sharing, Unenforced
from ullage.engines.local.task_note import append_note
from ullage.engines.local.terminals import HostedTerminal, HostedTerminals
from ullage.engines.local.worker_connection import WorkerConnection
from ullage.host.terminal import SECRET, host_command, order_of
from ullage.model.error import AlreadyExists, Conflict
from ullage.model.node import Node
from ullage.service.engine_port import (
    BindOrder,
    EngineEvent,
    EngineListener,
    ExecOrder,
    ExecutorGone,
    LaunchOrder,
    NodeReported,
    SignalOrder,
    TaskOrder,
)
from ullage.service.system_users import SystemUsers
from ullage.wire import frames
from ullage.wire.output_log import remove_log

HELLO_S = 30.0
"""Seconds from the start of a worker within which it must register."""

GRACE_S = 5.0
"""Seconds `close` gives workers to end."""

_LINGER_S = 1.0
"""Seconds a worker may live without its connection: enough to exit by itself."""

_REMOVE_S = 0.05
_REMOVE_TRIES = 20
"""Seconds between attempts to remove a cgroup, and their number: it is busy for moments after its last process."""


class LocalEngine:
    """Runs executors on this machine.

    `data_dir` belongs to this engine alone. `node` is the node that it reports. Without `confinement` the engine
    uses the strongest layer that works here. `sharing` enforces parts of cards. With `clients`, the directory where
    clients of all users find the server, executors run as the users of their orders; this process is root then.
    """

    def __init__(
        self,
        data_dir: Path,
        node: Node,
        server_id: str,
        *,
        hello_s: float = HELLO_S,
        confinement: Confinement | None = None,
        sharing: Sharing | None = None,
        clients: Path | None = None,
    ) -> None:
        self._home = Home(data_dir, clients)
        self._system_users = SystemUsers()
        self._cards = CardDevices(node.gpus, None)  # until it is open
        self._ended_logs = EndedLogs(self._home.executor_logs)
        self._node = node
        self._server_id = server_id
        self._hello_s = hello_s
        self._confinement = confinement
        self._sharing = sharing or Unenforced()
        self._executors: dict[str, LocalExecutor] = {}
        self._lost: list[LocalExecutor] = []  # of a supervisor that died; gone once the next one has swept
        self._swept = asyncio.Event()
        self._idle = asyncio.Event()
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: EngineListener | None = None
        self._server: asyncio.Server | None = None
        self._terminals = HostedTerminals(self._find_worker)
        self._link = SupervisorLink(self._home.supervisor_log, self._on_supervisor, self._on_supervisor_lost)

    @property
    def layer(self) -> str:
        """A sentence on how the limits of executors are enforced; known after `open`."""
        if self._confinement is None:
            return "not open"
        return "; ".join(filter(None, (self._confinement.layer, self._cards.layer)))

    @property
    def supervisor_pid(self) -> int | None:
        """The pid of the supervisor."""
        return self._link.pid

    async def open(self, listener: EngineListener) -> None:
        """End the processes of an earlier run, then accept orders.

        Raises:
            Unavailable: another engine uses the data directory.

        """
        self._home.open()
        for path in self._ended_logs.open():
            remove_log(path)
        self._listener = listener
        if self._confinement is None:
            self._confinement = cgroup.detect(f"ullage-{self._home.id}")
        self._cards = CardDevices(self._node.gpus, *find_closer(f"ullage-{self._home.id}", self._confinement))
        self._link.start()
        self._sweep()
        await self._swept.wait()
        self._home.record_roots(self._roots)
        path, terminals = self._home.socket, self._home.terminal_socket
        for each in (path, terminals):
            remove(each)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: WorkerConnection(self._authenticate), str(path), backlog=512
        )
        await self._terminals.open(terminals)
        for each in (path, terminals):
            each.chmod(0o666 if self._home.is_shared else 0o600)  # who connects proves who it is
        self._report(NodeReported(self._node))

    async def close(self, grace_s: float = GRACE_S) -> None:
        """End all workers, by force after `grace_s` seconds, and release the data directory."""
        self._closing = True
        for executor in list(self._executors):
            self.stop(executor, grace_s)
        while self._executors or self._lost:
            self._idle.clear()
            await self._idle.wait()
        await self._link.close()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        await self._terminals.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for root in self._roots:
            cgroup.remove(root)
        self._home.close()

    # --- orders ---------------------------------------------------------------------------------

    def launch(self, order: LaunchOrder) -> None:
        """Start a worker: `Registered` follows, or `ExecutorGone`.

        Raises:
            AlreadyExists: the executor exists, or its end is not reported yet.

        """
        if order.executor in self._executors:
            raise AlreadyExists(f"executor {order.executor} exists already", field="executor")
        if self._closing:
            self._report_gone_later(order.executor, "the engine is closing")
            return
        out, err = self._home.logs(order.executor)
        self._ended_logs.reopen(out.stem)
        secret = secrets.token_hex(32)
        executor = LocalExecutor(order, secret, err, self._report, on_disconnect=self._on_disconnect)
        try:
            executor.account = account = find_user(self._system_users, order.user)
            given = inherited(os.environ, account)
            environment = worker_environment(
                order, self._home, given, self._sharing, server_id=self._server_id, secret=secret
            )
            argv = worker_command(order, environment)
            cwd = order.setup.working_directory or order.application.working_directory
            if cwd is None and account is not None and Path(account.home).is_dir():
                cwd = account.home
            if cwd is None:
                executor.work = give(self._home.make_work(order.executor), account)
            executor.cell = self._confine(order)
        except (OSError, ValueError) as error:
            self._clear(executor)
            self._report_gone_later(order.executor, f"the worker could not be started: {error}")
            return
        self._executors[order.executor] = executor
        executor.environment = {name: value for name, value in environment.items() if name != "ULLAGE_WORKER_SECRET"}
        self._link.send(
            do="start",
            executor=order.executor,
            argv=argv,
            env=environment,
            cwd=cwd or str(executor.work),
            out=str(out),
            err=str(err),
            cgroups=[str(directory) for directory in executor.cell.directories],
            memory_bytes=executor.cell.watched_bytes,
            cpus=own_cpus(order),
            cpus_required=_cpus_required(order),
            zones=[] if order.placement is None else order.placement.zones,
            run_as=identity_order(account),
        )

    def bind(self, order: BindOrder) -> None:
        """Enter a session: `ExecutorBound` follows, or `ExecutorGone`."""
        executor = self._find(order.executor)
        if executor is not None:
            if executor.account is not None and order.logs:
                self._home.make_task_logs(order.logs, executor.account)
            executor.bind(order)

    def hand_out(self, executor: str, tasks: Sequence[TaskOrder]) -> None:
        """Run tasks: each comes back in `Completed` or `Returned`, or `ExecutorGone` ends all."""
        found = self._find(executor)
        if found is not None:
            found.hand_out(tasks)

    def unbind(self, executor: str) -> None:
        """Leave the session: `Unbound` follows, or `ExecutorGone`."""
        found = self._find(executor)
        if found is not None:
            for name in self._terminals.take_started(executor):
                self._link.send(do="end-exec", exec=name)
            found.unbind()

    def signal(self, executor: str, order: SignalOrder) -> None:
        """Send a signal to the program of a hand-out, if that runs."""
        found = self._find(executor)
        if found is not None:
            found.signal(order)

    def stop(self, executor: str, grace_s: float) -> None:
        """End the worker and all it started: `ExecutorGone` follows once none is left."""
        found = self._find(executor)
        if found is not None:
            found.set_exit_reason("stopped")
            self._link.send(do="stop", executor=executor, grace_s=grace_s)

    async def execute(self, order: ExecOrder) -> HostedTerminal:
        """Start another program in an executor.

        Raises:
            Conflict: it cannot be started (`exec-failed`).

        """
        executor = self._executors.get(order.executor)
        if executor is None or not executor.registered:
            raise Conflict(f"the executor {order.executor} does not run", code="exec-failed")
        name = secrets.token_hex(8)
        own = executor.environment | {"ULLAGE_EXEC": name}
        request = order_of(order.argv, executor.exec_environment(order, own), order.cwd, tty=order.tty, logged=False)
        host = own | {SECRET: self._terminals.expect(executor, name)}
        self._link.send(do="exec", exec=name, executor=order.executor, argv=host_command(), env=host)
        terminal = await self._terminals.arrival(name)
        terminal.send_order(request)
        return terminal

    def terminal(self, executor: str, task: int) -> HostedTerminal | None:
        """Return the terminal of a running task; None if it was started without one."""
        return self._terminals.of_task(executor, task)

    def forget(self, logs: str) -> None:
        """Remove the logs of a session's programs, in a thread: there may be many."""
        self._remove_in_thread(self._home.move_task_logs_aside(logs))

    def note(self, logs: str, task: int, text: str) -> None:
        """Append a line to the log of a task whose executor is gone, so that no other process writes to it."""
        append_note(self._home.task_logs / logs, task, text)

    def keep_logs(self, names: Container[str]) -> None:
        """Remove the logs of all other sessions: a crash came between their deletion and that of their logs."""
        for directory in self._home.other_task_logs(names):
            self._remove_in_thread(self._home.move_aside(directory))

    def _find_worker(self, executor: str) -> LocalExecutor | None:
        return self._executors.get(executor)

    def _find(self, executor: str) -> LocalExecutor | None:
        found = self._executors.get(executor)
        if found is None:
            self._report_gone_later(executor, "no such executor")
        return found

    def _confine(self, order: LaunchOrder) -> Cell:
        assert self._confinement is not None, "launch before open"
        cell = self._confinement.confine(order.executor, order.requirement, own_cpus(order))
        return self._cards.close(cell, order.executor, order.gpus)

    @property
    def _roots(self) -> tuple[Path, ...]:
        """The directories below which each executor has its cgroups."""
        limits = () if self._confinement is None else self._confinement.roots
        return (*limits, *self._cards.roots)

    # --- workers --------------------------------------------------------------------------------

    def _authenticate(self, connection: WorkerConnection, hello: frames.Hello) -> LocalExecutor | None:
        executor = self._executors.get(hello.executor)
        return executor if executor is not None and executor.authenticate(connection, hello) else None

    def _on_disconnect(self, executor: LocalExecutor) -> None:
        """Kill an executor that does not exit soon after its connection closed."""
        if executor.name in self._executors:
            executor.set_timer(asyncio.get_running_loop().call_later(_LINGER_S, self._kill, executor))

    def _expect_hello(self, executor: LocalExecutor) -> None:
        if not executor.registered:
            executor.set_timer(
                asyncio.get_running_loop().call_later(self._hello_s, self._registration_timed_out, executor)
            )

    def _registration_timed_out(self, executor: LocalExecutor) -> None:
        executor.set_exit_reason(executor.with_tail(f"the worker did not register within {self._hello_s:g} s"))
        self._kill(executor)

    def _kill(self, executor: LocalExecutor) -> None:
        self._link.send(do="stop", executor=executor.name, grace_s=0)

    # --- the supervisor -----------------------------------------------------------------------------

    def _on_supervisor(self, event: dict[str, Any]) -> None:
        if event["event"] == "swept":
            doomed, self._lost = self._lost, []
            for lost in doomed:
                self._finish(lost)
            self._swept.set()
            return
        if event["event"] == "exec-ended":
            self._terminals.ended(event["exec"], event["message"])
            return
        executor = self._executors.get(event["executor"])
        if executor is None:
            return
        match event["event"]:
            case "started":
                self._expect_hello(executor)
            case "failed":
                executor.set_exit_reason(f"the worker could not be started: {event['message']}")
                self._finish(executor)
            case "exited":
                executor.status, executor.worker_peak_bytes = event["status"], event["peak_bytes"]
            case "too-large":
                executor.set_memory_exceeded()
            case "gone":
                self._finish(executor)

    def _on_supervisor_lost(self) -> None:
        """Mark all executors as lost: the kernel killed them, and the next supervisor kills their descendants."""
        self._lost = list(self._executors.values())
        self._terminals.end_all("the supervisor was killed")
        for executor in self._lost:
            executor.set_exit_reason("the supervisor was killed, and the worker with it")
        self._sweep()

    def _sweep(self) -> None:
        assert self._confinement is not None
        roots = {*self._home.recorded_roots(), *self._roots}
        cgroups = [str(directory) for directory in cgroup.executor_directories(sorted(roots))]
        self._link.send(do="sweep", marker=self._home.marker, cgroups=cgroups)

    # --- the end of an executor -----------------------------------------------------------------

    def _finish(self, executor: LocalExecutor) -> None:
        self._spawn(self._terminate(executor))

    async def _terminate(self, executor: LocalExecutor) -> None:
        """Report the end of an executor without processes, after all its frames."""
        await executor.drain()
        executor.set_timer(None)
        exit_reason, peak_bytes = executor.exit_reason(), executor.memory_peak_bytes()
        for _ in range(_REMOVE_TRIES):
            if executor.cell.remove():
                break
            await asyncio.sleep(_REMOVE_S)
        self._clear(executor)
        for path in self._ended_logs.add(self._home.logs(executor.name)[0].stem):
            self._spawn(asyncio.to_thread(remove_log, path))
        del self._executors[executor.name]
        self._terminals.take_started(executor.name)
        self._report(ExecutorGone(executor.name, exit_reason, peak_bytes))
        self._idle.set()

    def _clear(self, executor: LocalExecutor) -> None:
        """Remove the private directory of an executor, in a thread: it may be large."""
        self._home.new_cache(executor.name)
        if executor.work is not None:
            self._remove_in_thread(self._home.move_aside(executor.work))

    def _remove_in_thread(self, path: Path | None) -> None:
        if path is not None:
            self._spawn(asyncio.to_thread(remove, path))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _report_gone_later(self, executor: str, reason: str) -> None:
        """Report after the order that caused it has returned."""
        asyncio.get_running_loop().call_soon(self._report, ExecutorGone(executor, reason))

    def _report(self, event: EngineEvent) -> None:
        assert self._listener is not None
        self._listener.on_engine_event(event)


def _cpus_required(order: LaunchOrder) -> bool:
    """Return whether the start must fail if the worker cannot run on all its CPUs."""
    return order.requirement.alignment.required and bool(own_cpus(order))
