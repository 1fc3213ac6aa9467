"""The port to engines, which run work: it takes orders and reports events. Both are model values.

All calls are made from the one thread of the service, and none blocks. One contract suite tests every adapter and every
fake (`tests/contracts/`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ullage.model.allocation import Charge
from ullage.model.application import Application
from ullage.model.error import Conflict
from ullage.model.executor import BindCode, ExecutorGang
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement
from ullage.model.session import Setup
from ullage.model.zone_placement import ZonePlacement

# --- orders out ---


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """Start one worker process that holds exactly `requirement`; `gpus` are the granted cards, in order.

    `charges` are the granted parts of these cards, in the same order; without any it holds whole cards exclusively. It
    also holds the CPUs of its `placement` exclusively, and all its processes stay on them. If the kernel refuses that,
    `ExecutorGone` follows where its policy requires alignment; elsewhere `Registered` has a note. It runs as
    `user`; "" is the user of the server.
    """

    executor: str
    node: str
    application: Application
    setup: Setup
    requirement: ResourceRequirement
    gpus: tuple[Gpu, ...] = ()
    charges: tuple[Charge, ...] = ()
    placement: ZonePlacement | None = None
    user: str = ""


@dataclass(frozen=True, slots=True)
class BindOrder:
    """Enter a session: the worker gets its common data before the first task.

    `logs` names the output of its programs; no other session ever has the same name.
    """

    executor: str
    session: str
    common_data: bytes | None = None
    gang: ExecutorGang | None = None
    logs: str = ""


class TaskOrder(NamedTuple):
    """One hand-out of a task. `claim` names this hand-out for good: a result carries it back.

    `shared_id` names data that many tasks use; `shared` holds it only if the executor lacks it.
    """

    session: str
    task: int
    claim: int
    input: bytes
    shared_id: int | None = None
    shared: bytes | None = None


class SignalOrder(NamedTuple):
    """A signal for the program of a hand-out; `text` says in its log why."""

    claim: int
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class ExecOrder:
    """Run a program in the executor of a task, as the same user and within the same limits.

    `env` is added to the environment of the executor; `cwd` None is its directory. With `tty` it has a terminal.
    """

    executor: str
    session: str
    task: int
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    tty: bool = False


class Terminal(Protocol):
    """A program in an executor whose input and output go through the server, in the frames of `wire/terminal.py`."""

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client with it, until the client or the program ends."""


class Engine(Protocol):
    """Runs executors. Every order is answered later by an event, also when it fails."""

    def launch(self, order: LaunchOrder) -> None:
        """Start a worker: `Registered` follows, or `ExecutorGone`."""

    def bind(self, order: BindOrder) -> None:
        """Enter a session: `ExecutorBound` follows, or `ExecutorGone`."""

    def hand_out(self, executor: str, tasks: Sequence[TaskOrder]) -> None:
        """Run tasks one after the other: each comes back in `Completed` or `Returned`, or `ExecutorGone` ends all."""

    def unbind(self, executor: str) -> None:
        """Leave the session once handed-out tasks are done: `Unbound` follows, or `ExecutorGone`."""

    def signal(self, executor: str, order: SignalOrder) -> None:
        """Send a signal to the program of a hand-out, if that runs. No event follows."""

    def stop(self, executor: str, grace_s: float) -> None:
        """End the worker and all it started, after `grace_s` by force: `ExecutorGone` follows once none is left."""

    def forget(self, logs: str) -> None:
        """Remove the files under the name `logs` of a bind order, whose session is deleted. No event follows."""

    def note(self, logs: str, task: int, text: str) -> None:
        """Append a line to the log of a task, under the name `logs`, whose executor is gone. No event follows."""

    async def execute(self, order: ExecOrder) -> Terminal:
        """Start another program in an executor. It ends with the executor, and when that leaves its session.

        Raises:
            Conflict: it cannot be started (`exec-failed`), or the engine has no terminals (`no-terminals`).

        """

    def terminal(self, executor: str, task: int) -> Terminal | None:
        """Return the terminal of a running task; None if it was started without one."""


class NoTerminals:
    """The part of an engine without terminals."""

    async def execute(self, order: ExecOrder) -> Terminal:
        """Refuse.

        Raises:
            Conflict: always (`no-terminals`).

        """
        text = f"the engine of {order.executor} starts no other programs in an executor"
        raise Conflict(text, code="no-terminals")

    def terminal(self, executor: str, task: int) -> None:
        """Return None: no task has one."""


# --- events in ---


@dataclass(frozen=True, slots=True)
class NodeReported:
    """A node was discovered, or its facts changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLost:
    """Contact with a node was lost."""

    node: str


@dataclass(frozen=True, slots=True)
class Registered:
    """The worker process is up and can be bound. `note` says if it does not run where it was placed."""

    executor: str
    pid: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class ExecutorBound:
    """A bind ended; `code` other than OK means the session was not entered."""

    executor: str
    code: BindCode = BindCode.OK
    message: str = ""


class TaskOutcome(NamedTuple):
    """The result of one hand-out; code 0 is success. Times are seconds since 1970."""

    task: int
    claim: int
    code: int
    output: bytes | None
    message: str
    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Completed:
    """Some handed-out tasks ended."""

    executor: str
    outcomes: tuple[TaskOutcome, ...]


@dataclass(frozen=True, slots=True)
class Returned:
    """Handed-out tasks the worker gave back unstarted, because the one before them runs long."""

    executor: str
    claims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unbound:
    """The worker left its session and is idle. `memory_peak_bytes` is the most memory that it had by then."""

    executor: str
    memory_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ExecutorGone:
    """The worker and all it started have ended; `reason` says why, for people.

    `memory_peak_bytes` is the most memory that they had, None if that is not known.
    """

    executor: str
    reason: str
    memory_peak_bytes: int | None = None


EngineEvent = NodeReported | NodeLost | Registered | ExecutorBound | Completed | Returned | Unbound | ExecutorGone


class EngineListener(Protocol):
    """The receiver of the reports of an engine."""

    def on_engine_event(self, event: EngineEvent) -> None:
        """Handle one event; called from the thread of the service only."""


class HostedEngine(Engine, Protocol):
    """An engine as a server opens and closes it."""

    @property
    def layer(self) -> str:
        """A text on how the limits of executors are enforced; known after `open`."""

    async def open(self, listener: EngineListener) -> None:
        """End what an earlier run left behind, report the nodes, then accept orders.

        Raises:
            Unavailable: another server uses the same resources.

        """

    async def close(self) -> None:
        """End all workers and release everything."""

    def keep_logs(self, names: Container[str]) -> None:
        """Remove the logs of sessions that are not among these. They were deleted before a crash."""
