"""No process of an executor survives it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.engines.recorder import Recorder, alive, eventually, marked, opened
from ullage.service.engine_port import Completed, ExecutorGone, Registered


def scatter(directory: str) -> None:
    """Start descendants that are hard to find, write down their pids, and sleep.

    One in a session of its own, one double-forked in a session of its own, and one of those with
    an empty environment; all ignore SIGTERM.
    """
    text = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if sys.argv[2] == 'double' and os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if sys.argv[2] == 'double' and os.fork(): os._exit(0)\n"
        "open(sys.argv[1], 'w').write(f'{os.getpid()}\\n')\n"
        "time.sleep(3600)\n"
    )
    for name, how, env in (("a", "single", None), ("b", "double", None), ("c", "double", {"PATH": "/bin"})):
        path = f"{directory}/{name}"
        child = subprocess.Popen([sys.executable, "-c", text, path, how], env=env)
        if how == "double":
            child.wait()
        while not Path(path).exists() or not Path(path).read_text().endswith("\n"):
            time.sleep(0.001)
    Path(directory, "ready").touch()
    time.sleep(3600)


def scattered(directory: Path) -> list[int]:
    return [int((directory / name).read_text()) for name in ("a", "b", "c")]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    directory = tmp_path / "notes"
    directory.mkdir()
    return directory


async def scatter_in(recorder: Recorder, notes: Path) -> list[int]:
    """Return the pids of the worker and all its hidden descendants."""
    await recorder.enter()
    recorder.give(1, scatter, str(notes))
    await eventually((notes / "ready").exists)
    pids = [recorder.of(Registered)[0].pid, *scattered(notes)]
    assert all(map(alive, pids))
    return pids


@pytest.mark.parametrize("how", ["stop", "kill", "exit"])
def test_no_descendant_survives_its_executor(tmp_path: Path, notes: Path, how: str) -> None:
    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            pids = await scatter_in(recorder, notes)
            if how == "stop":
                recorder.engine.stop("e", 0.2)
            else:
                os.kill(pids[0], signal.SIGKILL if how == "kill" else signal.SIGTERM)
            gone = await recorder.first(ExecutorGone)
            assert not any(map(alive, pids)), "gone was reported too early"
            expected = {"stop": "stopped", "kill": "the worker was killed by SIGKILL", "exit": "ended with exit code 0"}
            assert expected[how] in gone.reason

    asyncio.run(main())


def test_the_end_of_one_executor_leaves_the_descendants_of_others(tmp_path: Path, notes: Path) -> None:
    def start_helper() -> int:
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True).pid

    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter("other")
            helper = await recorder.run(2, start_helper, name="other")
            await scatter_in(recorder, notes)
            recorder.engine.stop("e", 0.0)
            await recorder.first(ExecutorGone)
            assert alive(helper)
            recorder.engine.stop("other", 0.0)
            await recorder.first(ExecutorGone, 2)
            assert not alive(helper)

    asyncio.run(main())


def test_executors_of_the_same_name_belong_to_their_engine(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "one") as one, opened(tmp_path / "two") as two:
            await one.enter()
            await two.enter()
            one.engine.stop("e", 10.0)
            await one.first(ExecutorGone)
            assert await two.run(1, abs, -1) == 1

    asyncio.run(main())


SERVER = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = {path!r}
from tests.engines.recorder import opened
from tests.engines import test_local_ends

async def main():
    async with opened(Path({data!r})) as recorder:
        await test_local_ends.scatter_in(recorder, Path({notes!r}))
        worker = recorder.of(test_local_ends.Registered)[0].pid
        print("ready", worker, recorder.engine.supervisor_pid, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.mark.parametrize("with_supervisor", [False, True], ids=["server", "server-and-supervisor"])
def test_no_process_of_a_killed_server_survives(tmp_path: Path, notes: Path, *, with_supervisor: bool) -> None:
    data = tmp_path / "data"
    text = SERVER.format(path=[str(Path(__file__).parents[2])], data=str(data), notes=str(notes))
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        ready, worker, supervisor = server.stdout.readline().split()
        assert ready == "ready"
        pids = [int(worker), *scattered(notes)]
        assert all(map(alive, pids))
        if with_supervisor:
            os.kill(server.pid, signal.SIGSTOP)  # so that it cannot start another one
            os.kill(int(supervisor), signal.SIGKILL)
        os.kill(server.pid, signal.SIGKILL)

    async def main() -> None:
        if with_supervisor:
            await eventually(lambda: not alive(pids[0]))  # the kernel ended the worker; others may linger
            async with opened(data):
                assert not any(map(alive, found_by_sweep(pids)))
        else:
            await eventually(lambda: not any(map(alive, [*pids, int(supervisor)])))
            async with opened(data):
                pass

    try:
        asyncio.run(main())
    finally:
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGKILL)


def found_by_sweep(pids: list[int]) -> list[int]:
    """Return the pids that a sweep finds: without a cgroup, it misses a process that emptied its environment."""
    legacy = any("memory" in line.split(":")[1] for line in Path("/proc/self/cgroup").read_text().splitlines())
    return pids if legacy else pids[:-1]


def test_a_killed_supervisor_is_replaced_and_its_executors_are_gone(tmp_path: Path, notes: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            pids = await scatter_in(recorder, notes)
            first = recorder.engine.supervisor_pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            gone = await recorder.first(ExecutorGone)
            assert "the supervisor was killed" in gone.reason
            assert not any(map(alive, found_by_sweep(pids)))
            recorder.launch("next")
            await recorder.first(Registered, 2)
            assert recorder.engine.supervisor_pid != first

    asyncio.run(main())


def test_a_launch_while_there_is_no_supervisor_reaches_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = asyncio.subprocess.Process.wait

    async def long(process: asyncio.subprocess.Process) -> int:
        await asyncio.sleep(0.2)
        return await wait(process)

    async def main() -> None:
        monkeypatch.setattr(asyncio.subprocess.Process, "wait", long)
        async with opened(tmp_path / "data") as recorder:
            pid = recorder.engine.supervisor_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda: recorder.engine.supervisor_pid != pid)
            recorder.launch()
            await recorder.first(Registered)

    asyncio.run(main())


def test_a_supervisor_that_cannot_be_started_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, left = asyncio.create_subprocess_exec, [OSError(errno.EAGAIN, "no process is left")] * 2

    async def scarce(*arguments: Any, **more: Any) -> asyncio.subprocess.Process:
        if left:
            raise left.pop()
        return await start(*arguments, **more)

    async def main() -> None:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", scarce)
        async with opened(tmp_path / "data") as recorder:
            recorder.launch()
            await recorder.first(Registered)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert not left


def test_tasks_for_a_killed_worker_are_dropped(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter()
            os.kill(recorder.of(Registered)[0].pid, signal.SIGKILL)
            task = 0
            while not recorder.of(ExecutorGone):  # also between the end of its connection and the news of its own
                recorder.give(task := task + 1, abs, -1)
                await asyncio.sleep(0)
            assert "killed" in recorder.of(ExecutorGone)[0].reason

    uvloop.run(main())  # as the server: a closed transport of uvloop takes no write, asyncio's own does


def test_orders_for_a_killed_supervisor_are_dropped(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter()
            pid = recorder.engine.supervisor_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            while recorder.engine.supervisor_pid == pid:
                recorder.engine.stop("e", 0.0)
                await asyncio.sleep(0)
            await recorder.first(ExecutorGone)

    uvloop.run(main())


def test_a_stop_lets_a_task_clean_up(tmp_path: Path) -> None:
    def work(path: str) -> None:
        try:
            Path(path, "begun").touch()
            time.sleep(3600)
        finally:
            Path(path, "cleaned").touch()

    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter()
            recorder.give(1, work, str(tmp_path))
            await eventually((tmp_path / "begun").exists)
            recorder.engine.stop("e", 30.0)
            await recorder.first(ExecutorGone)
            assert (tmp_path / "cleaned").exists()
            assert recorder.of(Completed) == []

    asyncio.run(main())


def test_a_task_that_ignores_the_stop_is_killed_after_the_grace(tmp_path: Path) -> None:
    def stubborn(path: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(path).touch()
        time.sleep(3600)

    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter()
            recorder.give(1, stubborn, str(tmp_path / "begun"))
            await eventually((tmp_path / "begun").exists)
            recorder.engine.stop("e", 3600.0)
            recorder.engine.stop("e", 0.2)  # a shorter grace counts
            assert (await recorder.first(ExecutorGone)).reason == "stopped"

    asyncio.run(main())


def test_a_stop_right_after_the_launch(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            for number in range(8):
                recorder.launch(f"e{number}")
                recorder.engine.stop(f"e{number}", 10.0)
            await recorder.first(ExecutorGone, 8)
            assert {event.reason for event in recorder.of(ExecutorGone)} == {"stopped"}

    asyncio.run(main())


def test_close_ends_all_workers(tmp_path: Path) -> None:
    async def main() -> str:
        async with opened(tmp_path / "data") as recorder:
            for name in ("a", "b", "c"):
                await recorder.enter(name)
            recorder.give(1, time.sleep, 3600, name="b")
            marker: str = recorder.engine._home.marker
            assert len(marked(marker)) == 6  # three workers, each with the recorder of its output
        assert len(recorder.of(ExecutorGone)) == 3
        assert marked(marker) == []
        return marker

    asyncio.run(main())
    assert not (tmp_path / "data/run/executors.sock").exists()


def test_a_forked_child_neither_holds_the_connection_nor_obeys_for_the_worker(tmp_path: Path) -> None:
    def fork() -> int:
        pid = os.fork()
        if pid == 0:
            time.sleep(3600)
            os._exit(0)
        os.kill(pid, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter()
            assert await recorder.run(1, fork) == -signal.SIGTERM
            assert await recorder.run(2, abs, -1) == 1

    asyncio.run(main())
