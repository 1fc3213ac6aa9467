"""A local engine and a listener that records its events."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from ullage.engines.local.cgroup import Confinement
from ullage.engines.local.engine import LocalEngine
from ullage.model.application import FUNCTION, Application
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement
from ullage.model.session import Setup
from ullage.model.zone_placement import ZonePlacement
from ullage.service.engine_port import (
    BindOrder,
    Completed,
    EngineEvent,
    ExecutorBound,
    ExecutorGone,
    LaunchOrder,
    Registered,
    TaskOrder,
    TaskOutcome,
)

E = TypeVar("E", bound=EngineEvent)
NODE = Node("here", cpu_milli=4000, memory_bytes=4 << 30)
SMALL = ResourceRequirement.of(cpu=1, memory="512m")
DEADLINE_S = 60.0


class Recorder:
    """One engine and all its events."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.events: list[EngineEvent] = []
        self._news = asyncio.Event()

    def on_engine_event(self, event: EngineEvent) -> None:
        self.events.append(event)
        self._news.set()

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"it did not happen; this did: {self.events}") from None

    async def first(self, kind: type[E], count: int = 1) -> E:
        await self.until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def launch(
        self,
        name: str = "e",
        application: Application = FUNCTION,
        requirement: ResourceRequirement = SMALL,
        setup: Setup = Setup(),
        gpus: tuple[Gpu, ...] = (),
        placement: ZonePlacement | None = None,
    ) -> None:
        self.engine.launch(LaunchOrder(name, "here", application, setup, requirement, gpus, placement=placement))

    async def enter(self, name: str = "e", application: Application = FUNCTION, **rest: Any) -> None:
        """Launch and bind."""
        self.launch(name, application, **rest)
        await self.until(
            lambda: bool(self.of(ExecutorGone)) or any(event.executor == name for event in self.of(Registered))
        )
        assert not self.of(ExecutorGone), self.of(ExecutorGone)
        self.engine.bind(BindOrder(name, "s"))
        await self.until(lambda: any(event.executor == name for event in self.of(ExecutorBound)))

    def give(self, task: int, function: Callable[..., object], *arguments: object, name: str = "e") -> None:
        self.engine.hand_out(name, [TaskOrder("s", task, task, pickled(function, arguments))])

    async def outcome(self, task: int) -> TaskOutcome:
        def found() -> list[TaskOutcome]:
            return [outcome for event in self.of(Completed) for outcome in event.outcomes if outcome.claim == task]

        await self.until(lambda: bool(found()))
        return found()[0]

    async def run(self, task: int, function: Callable[..., object], *arguments: object, name: str = "e") -> Any:
        """Run the function in the worker and return its result."""
        self.give(task, function, *arguments, name=name)
        outcome = await self.outcome(task)
        assert outcome.code == 0, outcome.message
        return cloudpickle.loads(outcome.output)


def pickled(function: Callable[..., object], arguments: tuple[object, ...]) -> bytes:
    """Return the input of a function task. Functions of test modules are pickled by value: workers lack the modules."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is not None and module.__name__.startswith("tests."):
        cloudpickle.register_pickle_by_value(module)
    data: bytes = cloudpickle.dumps((function, arguments, {}))
    return data


@asynccontextmanager
async def opened(
    directory: Path, *, hello_s: float = DEADLINE_S, confinement: Confinement | None = None
) -> AsyncIterator[Recorder]:
    """Open an engine and close it at the end."""
    engine = LocalEngine(directory, NODE, "server", hello_s=hello_s, confinement=confinement)
    recorder = Recorder(engine)
    await engine.open(recorder)
    try:
        yield recorder
    finally:
        await engine.close(grace_s=0.0)


def marked(marker: str) -> list[int]:
    """Return the living processes whose environment has `marker`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marker.encode() in environment.split(b"\0") and state not in "ZX":
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for a condition that no event reports."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # a foreign process sets no event when it ends
            await asyncio.sleep(0.01)
