"""Empty function tasks per second through the local engine and one worker.

Each batch size is run with two batches in flight, as the service hands them out: the worker never
waits for the next batch, and one core decodes and encodes here while the other runs tasks there.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]  # it has no types

from ullage.engines.local.engine import LocalEngine
from ullage.model.application import FUNCTION
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement
from ullage.model.session import Setup
from ullage.service.engine_port import (
    BindOrder,
    Completed,
    EngineEvent,
    ExecutorBound,
    ExecutorGone,
    LaunchOrder,
    Registered,
    TaskOrder,
)

SECONDS = 3.0
IN_FLIGHT = 2
EMPTY = cloudpickle.dumps(((), {}))


def nothing() -> None:
    pass


class Driver:
    """Keeps `IN_FLIGHT` batches of `size` tasks at the worker until the time is over."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.ready = asyncio.Event()
        self.size = 1
        self.ended = 0
        self.next = 1
        self.returned = 0
        self.until = 0.0

    def on_engine_event(self, event: EngineEvent) -> None:
        """Replace each task that ends by a new one."""
        match event:
            case Completed():
                self.ended += len(event.outcomes)
                if self.ended + self.returned == self.next - 1:
                    self.ready.set()
                self.feed(len(event.outcomes))
            case Registered():
                self.engine.bind(BindOrder("bench", "session"))
            case ExecutorBound():
                self.ready.set()
            case ExecutorGone():
                self.ready.set()
            case _:
                self.returned += len(getattr(event, "claims", ()))

    def feed(self, count: int) -> None:
        """Hand out `count` new tasks, unless the time is over."""
        if time.perf_counter() < self.until:
            first, self.next = self.next, self.next + count
            self.engine.hand_out(
                "bench", [TaskOrder("session", task, task, EMPTY, 1) for task in range(first, first + count)]
            )

    async def measure(self, size: int, seconds: float) -> float:
        """Tasks per second over `seconds`, the last ones included."""
        self.ready.clear()
        self.until = time.perf_counter() + seconds
        begun, before = time.perf_counter(), self.ended
        for _ in range(IN_FLIGHT):
            self.feed(size)
        await self.ready.wait()
        return (self.ended - before) / (time.perf_counter() - begun)


async def run(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        engine = LocalEngine(Path(directory), Node("here", 2000, 1 << 31), "bench")
        driver = Driver(engine)
        await engine.open(driver)
        started = time.perf_counter()
        engine.launch(LaunchOrder("bench", "here", FUNCTION, Setup(), ResourceRequirement.of(cpu=2)))
        await driver.ready.wait()
        print(f"launched and bound in {1000 * (time.perf_counter() - started):.0f} ms; {engine.layer}")
        driver.next = 2
        driver.ready.clear()
        engine.hand_out("bench", [TaskOrder("session", 1, 1, EMPTY, 1, cloudpickle.dumps(nothing))])
        await driver.ready.wait()
        for size in (1, 16, 64):
            rate = await driver.measure(size, seconds)
            print(f"batches of {size:2}: {rate:10,.0f} tasks/s")
        print(f"given back: {driver.returned}")
        await engine.close()


def main() -> None:
    """Three seconds for each size of a batch."""
    asyncio.run(run(SECONDS))


if __name__ == "__main__":
    main()
