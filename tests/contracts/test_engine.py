"""The contract of every engine."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import cloudpickle
import pytest
from tests.system.live_server import wait_until

from ullage.engines.local.engine import LocalEngine
from ullage.model.alignment import Alignment
from ullage.model.application import FUNCTION, Application
from ullage.model.error import AlreadyExists, Conflict
from ullage.model.executor import BindCode, ExecutorGang
from ullage.model.idset import format_ids
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement
from ullage.model.session import Setup
from ullage.model.topology import ZonePolicy
from ullage.model.zone_placement import ZonePlacement
from ullage.service.engine_port import (
    BindOrder,
    Completed,
    Engine,
    EngineEvent,
    ExecOrder,
    ExecutorBound,
    ExecutorGone,
    LaunchOrder,
    NodeReported,
    NoTerminals,
    Registered,
    Returned,
    TaskOrder,
    TaskOutcome,
    Terminal,
    Unbound,
)
from ullage.wire.terminal import CODE, SIZE, Frame, FrameKind, encode
from ullage.wire.terminal_stream import read_frame

E = TypeVar("E", bound=EngineEvent)
NODE = Node("here", cpu_milli=4000, memory_bytes=4 << 30)
SMALL = ResourceRequirement.of(cpu=1, memory="512m")


class Log:
    """Records every event in order. Hands returned tasks out again: an engine may return any task."""

    def __init__(self) -> None:
        self.events: list[EngineEvent] = []
        self._news = asyncio.Event()
        self._given: dict[int, Callable[[], None]] = {}

    def on_engine_event(self, event: EngineEvent) -> None:
        self.events.append(event)
        self._news.set()
        if isinstance(event, Returned):
            for claim in event.claims:
                if claim in self._given:
                    self._given[claim]()

    def hand_out(self, engine: Engine, *orders: TaskOrder, to: str = "e") -> None:
        for order in orders:
            self._given[order.claim] = lambda order=order: engine.hand_out(to, [order])
        engine.hand_out(to, orders)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(60):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"it did not happen; this did: {self.events}") from None

    async def first(self, kind: type[E], count: int = 1) -> E:
        await self.until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def outcomes(self) -> dict[int, TaskOutcome]:
        found = [outcome for event in self.of(Completed) for outcome in event.outcomes]
        by_claim = {outcome.claim: outcome for outcome in found}
        assert len(by_claim) == len(found), "a claim came back twice"
        return by_claim


Opened = tuple[Engine, Log]


@asynccontextmanager
async def local(directory: Path) -> AsyncIterator[Opened]:
    engine, log = LocalEngine(directory, NODE, "contract"), Log()
    await engine.open(log)
    try:
        yield engine, log
    finally:
        await engine.close(grace_s=0.0)


Scenario = Callable[[Engine, Log], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture(params=[local], ids=lambda opened: opened.__name__)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Runs a scenario on a fresh engine."""
    open_engine: Callable[[Path], AbstractAsyncContextManager[Opened]] = request.param

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            async with open_engine(tmp_path / "data") as (engine, log):
                await scenario(engine, log)

        asyncio.run(main())

    return run


def call(task: int, function: Callable[..., object], *arguments: object, session: str = "s") -> TaskOrder:
    return TaskOrder(session, task, task + 1000, cloudpickle.dumps((function, arguments, {})))


async def launched(engine: Engine, log: Log, name: str = "e", cpus: tuple[int, ...] = ()) -> None:
    engine.launch(on_cpus(name, cpus))
    await log.until(lambda: any(event.executor == name for event in log.of(Registered)))


def on_cpus(name: str, cpus: tuple[int, ...], policy: ZonePolicy = ZonePolicy.RESTRICTED) -> LaunchOrder:
    """Return a launch on CPUs of its own, if there are any."""
    if not cpus:
        return LaunchOrder(name, "here", FUNCTION, Setup(), SMALL)
    asked = replace(SMALL, alignment=Alignment(policy))
    return LaunchOrder(name, "here", FUNCTION, Setup(), asked, placement=ZonePlacement((0,), cpus))


async def bound(engine: Engine, log: Log, name: str = "e", cpus: tuple[int, ...] = ()) -> None:
    await launched(engine, log, name, cpus)
    engine.bind(BindOrder(name, "s"))
    await log.until(lambda: any(event.executor == name for event in log.of(ExecutorBound)))


def test_the_node_is_the_first_thing_reported(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        assert log.events == [NodeReported(NODE)]

    play(scenario)


def test_an_executor_registers_and_is_gone_once_after_a_stop(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        await launched(engine, log)
        engine.stop("e", 5.0)
        assert log.of(ExecutorGone) == [], "an order is answered later, not while it is given"
        gone = await log.first(ExecutorGone)
        assert (gone.executor, gone.reason) == ("e", "stopped")
        engine.launch(LaunchOrder("e", "here", FUNCTION, Setup(), SMALL))
        await log.first(Registered, 2)
        assert log.events[1:] == [log.of(Registered)[0], gone, log.of(Registered)[1]]

    play(scenario)


def test_a_name_in_use_is_refused_and_its_executor_unaffected(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        await launched(engine, log)
        with pytest.raises(AlreadyExists):
            engine.launch(LaunchOrder("e", "here", FUNCTION, Setup(), SMALL))
        engine.bind(BindOrder("e", "s"))
        assert (await log.first(ExecutorBound)).code is BindCode.OK

    play(scenario)


CPUS = tuple(sorted(os.sched_getaffinity(0)))
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="CPUs are kept apart where there are two")


async def runs_on(engine: Engine, log: Log, name: str, task: int) -> list[tuple[int, ...]]:
    """Return the CPU sets of the threads of a worker, of a program that it starts, and of one that runs already."""

    def look() -> list[tuple[int, ...]]:
        import subprocess  # noqa: PLC0415  # this runs in a worker
        import sys  # noqa: PLC0415  # this runs in a worker
        import threading  # noqa: PLC0415  # this runs in a worker

        if "KEPT" not in os.environ:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            os.environ["KEPT"] = str(subprocess.Popen(["sleep", "3600"]).pid)
        text = "import os; print(*sorted(os.sched_getaffinity(0)))"
        started = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True).stdout
        threads = [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
        assert len(threads) > 1
        found = {tuple(sorted(os.sched_getaffinity(thread))) for thread in (*threads, int(os.environ["KEPT"]))}
        return sorted({*found, tuple(map(int, started.split()))})

    log.hand_out(engine, call(task, look), to=name)
    await log.until(lambda: task + 1000 in log.outcomes())
    output = log.outcomes()[task + 1000].output
    assert output is not None, log.outcomes()[task + 1000].message
    found: list[tuple[int, ...]] = cloudpickle.loads(output)
    return found


@two_cpus
def test_all_threads_of_an_executor_stay_on_its_own_cpus(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log, "e", CPUS[1:])
        assert await runs_on(engine, log, "e", 1) == [CPUS[1:]]
        assert [event.note for event in log.of(Registered)] == [""]

    play(scenario)


@two_cpus
def test_executors_that_share_cpus_avoid_those_of_another_until_it_is_gone(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log, "shares")
        assert await runs_on(engine, log, "shares", 1) == [CPUS]
        await bound(engine, log, "alone", CPUS[:1])
        assert await runs_on(engine, log, "alone", 2) == [CPUS[:1]]
        await bound(engine, log, "later")
        assert await runs_on(engine, log, "shares", 3) == [CPUS[1:]]
        assert await runs_on(engine, log, "later", 4) == [CPUS[1:]]
        engine.stop("alone", 0.0)
        await log.first(ExecutorGone)
        assert await runs_on(engine, log, "shares", 5) == [CPUS]
        assert await runs_on(engine, log, "later", 6) == [CPUS]

    play(scenario)


NO_CPU = 2**15
"""The id of a CPU that no machine has."""


def test_an_executor_that_requires_its_cpus_does_not_start_without_them(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        engine.launch(on_cpus("e", (NO_CPU,)))
        gone = await log.first(ExecutorGone)
        assert gone.reason.endswith(f"the kernel does not let it run on all of the CPUs it was placed on: {NO_CPU}")
        engine.launch(on_cpus("f", (CPUS[0], NO_CPU)))
        gone = await log.first(ExecutorGone, 2)
        assert gone.reason.endswith(f"CPUs it was placed on: {CPUS[0]},{NO_CPU}")
        assert log.of(Registered) == []

    play(scenario)


def test_an_executor_may_run_without_its_preferred_cpus_and_reports_it(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        engine.launch(on_cpus("e", (NO_CPU,), ZonePolicy.BEST_EFFORT))
        note = (await log.first(Registered)).note
        assert note.startswith(f"it was placed on CPUs {NO_CPU} alone, but may run on ")

    play(scenario)


@two_cpus
def test_an_executor_without_its_cpus_avoids_those_of_others(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log, "alone", CPUS[:1])
        engine.launch(on_cpus("e", (NO_CPU,), ZonePolicy.BEST_EFFORT))
        await log.first(Registered, 2)
        note = log.of(Registered)[1].note
        assert note == f"it was placed on CPUs {NO_CPU} alone, but may run on {format_ids(CPUS[1:])}"

    play(scenario)


def test_tasks_see_their_session_common_data_and_gang(play: Play) -> None:
    def look() -> tuple[object, ...]:
        from ullage.worker import context  # noqa: PLC0415  # this runs in a worker

        here = context()
        gang = here.gang
        assert gang is not None
        rank = os.environ["ULLAGE_GANG_RANK"]
        return here.executor, here.session, here.task, here.common_data, gang.id, gang.rank, gang.size, rank

    async def scenario(engine: Engine, log: Log) -> None:
        await launched(engine, log)
        engine.bind(BindOrder("e", "s-1", b"common", ExecutorGang("g", 2, 4)))
        engine.hand_out("e", [call(5, look, session="s-1")])
        event = await log.first(Completed)
        assert event.outcomes[0].output is not None
        assert cloudpickle.loads(event.outcomes[0].output) == ("e", "s-1", 5, b"common", "g", 2, 4, "2")

    play(scenario)


def test_tasks_run_one_after_the_other_and_come_back_once(play: Play) -> None:
    def times_two(number: int) -> int:
        return 2 * number

    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log)
        log.hand_out(engine, *[call(task, times_two, task) for task in range(1, 101)])
        log.hand_out(engine, *[call(task, times_two, task) for task in range(101, 201)])
        await log.until(lambda: len(log.outcomes()) == 200)
        outcomes = list(log.outcomes().values())
        results = {outcome.task: cloudpickle.loads(outcome.output) for outcome in outcomes}
        assert results == {task: 2 * task for task in range(1, 201)}
        assert all(outcome.code == 0 and outcome.claim == outcome.task + 1000 for outcome in outcomes)
        assert all(a.ended_at <= b.started_at for a, b in pairwise(outcomes))

    play(scenario)


def test_a_task_that_raises_fails_alone(play: Play) -> None:
    def divide(by: int) -> float:
        return 1 / by

    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log)
        log.hand_out(engine, call(1, divide, 0), call(2, divide, 2))
        await log.until(lambda: len(log.outcomes()) == 2)
        failed, fine = log.outcomes()[1001], log.outcomes()[1002]
        assert failed.code == 1
        assert failed.message.splitlines()[0] == "ZeroDivisionError: division by zero"
        assert "in divide" in failed.message
        assert isinstance(cloudpickle.loads(failed.output), ZeroDivisionError)
        assert (fine.code, fine.message) == (0, "")

    play(scenario)


def test_shared_data_travels_once(play: Play) -> None:
    def double(number: int) -> int:
        return 2 * number

    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log)
        shared = cloudpickle.dumps(double)
        inputs = [cloudpickle.dumps(((number,), {})) for number in (4, 5)]
        log.hand_out(engine, TaskOrder("s", 1, 1, inputs[0], 9, shared), TaskOrder("s", 2, 2, inputs[1], 9))
        await log.until(lambda: len(log.outcomes()) == 2)
        log.hand_out(engine, TaskOrder("s", 3, 3, inputs[0], 9))
        await log.until(lambda: len(log.outcomes()) == 3)
        assert [cloudpickle.loads(outcome.output) for outcome in log.outcomes().values()] == [8, 10, 8]

    play(scenario)


def test_tasks_behind_a_long_one_are_returned_and_can_run_elsewhere(play: Play, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def wait(path: str) -> str:
        while not Path(path).exists():
            time.sleep(0.001)
        return "opened"

    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log)
        await bound(engine, log, "other")
        behind = [call(task, abs, -task) for task in range(2, 10)]
        engine.hand_out("e", [call(1, wait, str(gate)), *behind[:4]])
        await log.first(Returned)
        engine.hand_out("e", behind[4:])  # what arrives while it runs does not wait either
        await log.until(lambda: sum(len(event.claims) for event in log.of(Returned)) == 8)
        log.hand_out(engine, *behind, to="other")
        await log.until(lambda: len(log.outcomes()) == 8)
        gate.touch()
        await log.until(lambda: len(log.outcomes()) == 9)
        returned = [claim for event in log.of(Returned) if event.executor == "e" for claim in event.claims]
        assert returned == [order.claim for order in behind]
        assert cloudpickle.loads(log.outcomes()[1001].output) == "opened"

    play(scenario)


def test_a_finished_task_is_reported_while_the_next_one_runs(play: Play, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def wait(path: str) -> None:
        while not Path(path).exists():
            time.sleep(0.001)

    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log)
        log.hand_out(engine, call(1, abs, -1), call(2, wait, str(gate)))
        await log.until(lambda: 1001 in log.outcomes())
        assert 1002 not in log.outcomes()
        gate.touch()
        await log.until(lambda: 1002 in log.outcomes())

    play(scenario)


def test_an_executor_leaves_a_session_after_its_tasks_and_enters_another(play: Play) -> None:
    def common() -> bytes | None:
        from ullage.worker import context  # noqa: PLC0415  # this runs in a worker

        return context().common_data

    async def scenario(engine: Engine, log: Log) -> None:
        await launched(engine, log)
        for session, data in (("a", b"of a"), ("b", None)):
            engine.bind(BindOrder("e", session, data))
            engine.hand_out("e", [call(1, common, session=session)])
            engine.unbind("e")
        await log.first(Unbound, 2)
        kinds = [type(event) for event in log.events[2:]]
        assert kinds == [ExecutorBound, Completed, Unbound] * 2
        outputs = [event.outcomes[0].output for event in log.of(Completed)]
        assert [cloudpickle.loads(output) for output in outputs] == [b"of a", None]

    play(scenario)


def test_orders_for_an_unknown_executor_are_answered_with_gone(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        engine.bind(BindOrder("nobody", "s"))
        engine.hand_out("nobody", [call(1, abs, -1)])
        engine.unbind("nobody")
        engine.stop("nobody", 0.0)
        await log.first(ExecutorGone, 4)
        assert {event.executor for event in log.of(ExecutorGone)} == {"nobody"}

    play(scenario)


def test_a_missing_program_is_gone_with_its_name_in_the_reason(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        missing = Application("missing", command="/nowhere/worker")
        engine.launch(LaunchOrder("e", "here", missing, Setup(), SMALL))
        gone = await log.first(ExecutorGone)
        assert "could not be started" in gone.reason
        assert "/nowhere/worker" in gone.reason
        assert log.of(Registered) == []

    play(scenario)


def test_a_worker_that_dies_in_a_task_is_gone_after_its_finished_tasks(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log)
        log.hand_out(engine, call(1, abs, -1), call(2, time.sleep, 0.05), call(3, abs, -1))
        await log.until(lambda: len(log.outcomes()) == 3)
        engine.hand_out("e", [call(4, os._exit, 3)])
        gone = await log.first(ExecutorGone)
        assert "exit code 3" in gone.reason
        assert log.events[-1] is gone
        assert 1004 not in log.outcomes()

    play(scenario)


def test_a_stop_ends_a_running_task(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log)
        engine.hand_out("e", [call(1, time.sleep, 3600), call(2, abs, -1)])
        await log.first(Returned)
        engine.stop("e", 10.0)
        assert (await log.first(ExecutorGone)).executor == "e"
        assert log.of(Completed) == []

    play(scenario)


def test_executors_end_independently(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        for name in ("a", "b", "c"):
            await bound(engine, log, name)
        engine.hand_out("b", [call(1, os._exit, 1)])
        assert (await log.first(ExecutorGone)).executor == "b"
        engine.hand_out("a", [call(2, abs, -1)])
        engine.hand_out("c", [call(3, abs, -1)])
        await log.until(lambda: len(log.outcomes()) == 2)
        assert len(log.of(ExecutorGone)) == 1

    play(scenario)


class Client:
    """A client of a terminal, at the other end of a pair of sockets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    @asynccontextmanager
    async def of(cls, terminal: Terminal) -> AsyncIterator[Client]:
        ours, theirs = socket.socketpair()
        (reader, writer), far = await asyncio.open_connection(sock=ours), await asyncio.open_connection(sock=theirs)
        relaying = asyncio.create_task(terminal.relay(*far))
        client = cls(reader, writer)
        client.send(FrameKind.RESIZE, SIZE.pack(0, 0))
        try:
            yield client
        finally:
            writer.close()
            await relaying
            far[1].close()

    def send(self, kind: FrameKind, data: bytes = b"") -> None:
        self.writer.write(encode(kind, data))

    async def until(self, *kinds: FrameKind) -> list[Frame]:
        """Return the frames up to one of these kinds."""
        frames: list[Frame] = []
        async with asyncio.timeout(60):
            while not frames or frames[-1].kind not in kinds:
                frame = await read_frame(self.reader)
                assert frame is not None, frames
                frames.append(frame)
        return frames


DEAF = "trap '' TERM HUP; echo $$; sleep 600"


def exec_order(*argv: str, to: str = "e") -> ExecOrder:
    return ExecOrder(to, "s", 1, argv, env={"MINE": "1"}, cwd="/")


def test_another_program_runs_in_an_executor_with_its_environment(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log)
        show = 'echo "$ULLAGE_EXECUTOR $ULLAGE_SESSION $ULLAGE_TASK $MINE $PWD"; cat >&2; exit 5'
        async with Client.of(await engine.execute(exec_order("sh", "-c", show))) as client:
            client.send(FrameKind.STDIN, b"given")
            client.send(FrameKind.EOF)
            *output, end = await client.until(FrameKind.EXIT)
        assert CODE.unpack(end.data) == (5,)
        assert b"".join(each.data for each in output if each.kind is FrameKind.STDOUT) == b"e s 1 1 /\n"
        assert b"".join(each.data for each in output if each.kind is FrameKind.STDERR) == b"given"

    play(scenario)


def test_another_program_ends_when_its_executor_leaves_the_session(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log)
        async with Client.of(await engine.execute(exec_order("sh", "-c", DEAF))) as client:
            first, *_ = await client.until(FrameKind.STDOUT)
            engine.unbind("e")
            await log.first(Unbound)
            await client.until(FrameKind.END)
        process = Path(f"/proc/{int(first.data)}")
        await asyncio.to_thread(wait_until, lambda: not process.exists(), "it is killed")
        assert not log.of(ExecutorGone)

    play(scenario)


def test_another_program_ends_with_its_executor(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        await bound(engine, log)
        async with Client.of(await engine.execute(exec_order("sh", "-c", DEAF))) as client:
            await client.until(FrameKind.STDOUT)
            engine.stop("e", 0.0)
            *_, end = await client.until(FrameKind.END)
        assert end.data == b"its executor ended: stopped"
        await log.first(ExecutorGone)

    play(scenario)


def test_a_program_for_an_executor_that_does_not_run_is_refused_by_code(play: Play) -> None:
    async def scenario(engine: Engine, log: Log) -> None:
        with pytest.raises(Conflict) as refused:
            await engine.execute(exec_order("true", to="nobody"))
        assert refused.value.code == "exec-failed"
        await bound(engine, log)
        assert engine.terminal("e", 1) is None

    play(scenario)


def test_an_engine_without_terminals_refuses_by_code() -> None:
    with pytest.raises(Conflict) as refused:
        asyncio.run(NoTerminals().execute(exec_order("true")))
    assert refused.value.code == "no-terminals"
    assert NoTerminals().terminal("e", 1) is None
