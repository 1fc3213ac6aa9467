"""The state of one worker process in the engine, from its launch to its end."""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ullage.engines.local import reason
from ullage.engines.local.cgroup import Cell
from ullage.engines.local.processes import peak_resident_bytes
from ullage.engines.local.worker_connection import WorkerConnection
from ullage.host.program_start import program_environment
from ullage.model.executor import BindCode
from ullage.model.idset import format_ids
from ullage.model.quantity import format_bytes
from ullage.service.engine_port import (
    BindOrder,
    Completed,
    EngineEvent,
    ExecOrder,
    ExecutorBound,
    LaunchOrder,
    Registered,
    Returned,
    SignalOrder,
    TaskOrder,
    TaskOutcome,
    Unbound,
)
from ullage.service.system_users import SystemUser
from ullage.wire import frames
from ullage.worker.context import Gang, gang_variables

RUN_BYTES = 8 << 20
"""Bytes of inputs in one `Run` frame, unless one input alone is larger."""

_OUT_OF_MEMORY = 137
"""The code of a program that the kernel killed: 128 + SIGKILL."""

_CONNECTION_CLOSE_S = 1.0
"""The most seconds between the end of all processes and the end of their connection."""


class LocalExecutor:
    """One executor. It ends when its processes have ended and all their frames are read."""

    def __init__(
        self,
        order: LaunchOrder,
        secret: str,
        error_log: Path,
        report: Callable[[EngineEvent], None],
        on_disconnect: Callable[[LocalExecutor], None],
    ) -> None:
        self.name = order.executor
        self.cell = Cell()
        self.work: Path | None = None  # the private directory, if it has one
        self.account: SystemUser | None = None  # the user that it runs as, if not that of the server
        self.environment: dict[str, str] = {}  # without the secret of its worker
        self.status: int | None = None
        self.worker_peak_bytes: int | None = None  # of the largest process, known once the worker has ended
        self.pid: int | None = None
        self._gang: Gang | None = None
        self._cpus = own_cpus(order)
        self._memory = order.requirement.memory_bytes
        self._secret = secret
        self._error_log = error_log
        self._report = report
        self._on_disconnect = on_disconnect  # called when the connection closes
        self._loop = asyncio.get_running_loop()
        self._connection: WorkerConnection | None = None
        self._connection_closed = asyncio.Event()
        self._waiting: list[frames.ToWorker] = []
        self._reason: str | None = None  # the first known cause of the end
        self.registered = False
        self._kills_reported = 0
        self._timer: asyncio.TimerHandle | None = None

    # --- the worker's side ----------------------------------------------------------------------

    def authenticate(self, connection: WorkerConnection, hello: frames.Hello) -> bool:
        """Return whether `hello` is the first one of this executor and has the right secret."""
        if self._connection is not None or not hmac.compare_digest(hello.secret.encode(), self._secret.encode()):
            return False
        self._connection = connection
        return True

    def on_frame(self, frame: frames.FromWorker) -> None:
        """Report a frame as an event."""
        match frame:
            case frames.Done():
                self._report(Completed(self.name, tuple(map(self._outcome, frame.outcomes))))
            case frames.GaveBack():
                self._report(Returned(self.name, tuple(frame.claims)))
            case frames.Entered():
                self._report(ExecutorBound(self.name, _bind_code(frame.code), frame.message))
            case frames.Left():
                self._report(Unbound(self.name, self.memory_peak_bytes()))
            case frames.Hello():
                self._register(frame)

    def on_closed(self, fault: str | None) -> None:
        """End the executor, which is of no use without its connection."""
        if fault is not None:
            self.set_exit_reason(f"the worker violated the protocol: {fault}")
        self._connection_closed.set()
        self._on_disconnect(self)

    def _register(self, hello: frames.Hello) -> None:
        if self.registered or hello.protocol != frames.PROTOCOL:
            self.set_exit_reason(
                f"the worker uses protocol {hello.protocol}, not {frames.PROTOCOL}: update its ullage package"
            )
            self.abort()
            return
        self.registered, self.pid = True, hello.pid
        self.set_timer(None)
        self._report(Registered(self.name, hello.pid, self._cpu_mismatch(hello.pid)))
        waiting, self._waiting = self._waiting, []
        self._send(*waiting)

    def _cpu_mismatch(self, pid: int) -> str:
        """Return a sentence if the worker may run on other CPUs than its own; "" if not."""
        try:
            runs_on = os.sched_getaffinity(pid)
        except OSError:
            return ""  # its end is reported anyway
        if not self._cpus or runs_on <= set(self._cpus):
            return ""
        return f"it was placed on CPUs {format_ids(self._cpus)} alone, but may run on {format_ids(runs_on)}"

    def _outcome(self, outcome: frames.Outcome) -> TaskOutcome:
        message = outcome.message
        if outcome.code == _OUT_OF_MEMORY and (kills := self.cell.kills()) > self._kills_reported:
            self._kills_reported = kills
            message = f"{message}: it {self._exceeded()}"
        return TaskOutcome(
            outcome.task,
            outcome.claim,
            outcome.code,
            outcome.output,
            message=message,
            started_at=outcome.started_at,
            ended_at=outcome.ended_at,
        )

    # --- the service's side ---------------------------------------------------------------------

    def bind(self, order: BindOrder) -> None:
        """Send the session."""
        gang, self._gang = None, None
        if order.gang is not None:
            self._gang = Gang(order.gang.id, order.gang.rank, order.gang.size)
            gang = frames.Membership(order.gang.id, order.gang.rank, order.gang.size)
        try:
            self._send(frames.Enter(order.session, order.common_data, gang, order.logs))
        except frames.FrameError as error:
            self._report_later(ExecutorBound(self.name, BindCode.UNKNOWN, f"the common data cannot be sent: {error}"))

    def hand_out(self, tasks: Sequence[TaskOrder]) -> None:
        """Send tasks in frames of about `RUN_BYTES`. A task whose input fits in no frame fails."""
        batch: list[frames.HandOut] = []
        held = 0
        for order in tasks:
            size = len(order.input) + len(order.shared or b"")
            if size > frames.MAX_PAYLOAD:
                self._report_failure(order, f"the input has {size} bytes; at most {frames.MAX_PAYLOAD} can be sent")
                continue
            if batch and held + size > RUN_BYTES:
                self._send(frames.Run(batch))
                batch, held = [], 0
            batch.append(frames.HandOut(order.task, order.claim, order.input, order.shared_id, shared=order.shared))
            held += size
        if batch:
            self._send(frames.Run(batch))

    def signal(self, order: SignalOrder) -> None:
        """Send a signal for the program of a hand-out, and the text for its log."""
        self._send(frames.Signal(*order))

    def unbind(self) -> None:
        """Send the end of the session."""
        self._send(frames.Leave())

    def exec_environment(self, order: ExecOrder, own: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of another program in the executor, whose own environment is `own`."""
        names = {"ULLAGE_SESSION": order.session, "ULLAGE_TASK": str(order.task)}
        return program_environment(own, order.env, names | gang_variables(self._gang))

    def _send(self, *frames_: frames.ToWorker) -> None:
        if self._connection is None or not self.registered:
            self._waiting.extend(frames_)
        else:
            self._connection.send(*frames_)

    def _report_failure(self, order: TaskOrder, message: str) -> None:
        now = time.time()
        outcome = TaskOutcome(order.task, order.claim, 1, None, message=message, started_at=now, ended_at=now)
        self._report_later(Completed(self.name, (outcome,)))

    def _report_later(self, event: EngineEvent) -> None:
        """Report after the order that caused it has returned."""
        self._loop.call_soon(self._report, event)

    def memory_peak_bytes(self) -> int | None:
        """Return the most memory that it had: all processes in its cgroup, else its largest process, else None."""
        counted = self.cell.peak_bytes()
        if counted is not None:
            return counted
        return self.worker_peak_bytes or (None if self.pid is None else peak_resident_bytes(self.pid))

    # --- the end --------------------------------------------------------------------------------

    def set_exit_reason(self, text: str) -> None:
        """Set the reason of the end, unless one is set already."""
        if self._reason is None:
            self._reason = text

    @property
    def known_exit_reason(self) -> str | None:
        """The first known cause of the end; None while it runs, and if nothing but its end is known."""
        return self._reason

    def abort(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.abort()

    def set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        """Replace the pending timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    async def drain(self) -> None:
        """Wait until all frames of the ended worker are reported."""
        if self._connection is None:
            return
        try:
            await asyncio.wait_for(self._connection_closed.wait(), _CONNECTION_CLOSE_S)
        except TimeoutError:
            self.abort()

    def exit_reason(self) -> str:
        """Return a sentence on why the executor ended."""
        if self._reason is not None:
            return self._reason
        if self.cell.kills() > self._kills_reported:
            return f"the worker {self._exceeded()}"
        how = f"the worker {reason.ended(self.status)}"
        if not self.registered:
            how += " before it registered"
        return self.with_tail(how)

    def with_tail(self, text: str) -> str:
        """Return `text` and the end of the worker's standard error."""
        return reason.with_tail(text, self._error_log)

    def set_memory_exceeded(self) -> None:
        """Set the memory limit as the reason of the end."""
        self.set_exit_reason(f"the worker {self._exceeded()}")

    def _exceeded(self) -> str:
        return f"exceeded its memory limit of {format_bytes(self._memory)}"


def _bind_code(code: int) -> BindCode:
    try:
        return BindCode(code)
    except ValueError:
        return BindCode.UNKNOWN


def own_cpus(order: LaunchOrder) -> tuple[int, ...]:
    """Return the CPUs that a worker has alone; none if it shares CPUs."""
    return () if order.placement is None else order.placement.cpus
