"""The CPUs of processes that share them, as executors with their own CPUs start and end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.recorder import opened
from ullage.engines.local.processes import move_threads, thread_ids

CPUS = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
A, B, *_ = (*CPUS, 0, 0)
GONE = 2**15  # a CPU that no machine has: the kernel leaves it out


@pytest.fixture
def pid() -> Iterator[int]:
    """A process with a few threads."""
    text = "import threading; [threading.Thread(target=input).start() for _ in range(3)]; print(flush=True)"
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.mark.parametrize(
    ("own", "before", "after", "then"),
    [
        ({A, B}, {A, B}, {B}, {B}),
        ({B}, {B}, {A, B}, {A, B}),
        ({B}, {A, B, GONE}, {B, GONE}, {B}),
        ({B}, {A, GONE}, {A, B}, {B}),
        ({B}, {A, B, GONE}, {A, GONE}, {A}),
    ],
    ids=["cut", "back", "keeps-its-choice", "not-widened", "its-choice-is-taken"],
)
def test_threads_move_to_the_cpus_that_remain(
    pid: int, own: set[int], before: set[int], after: set[int], then: set[int]
) -> None:
    for thread in thread_ids(pid):
        os.sched_setaffinity(thread, own)
    assert move_threads(pid, frozenset(before), frozenset(after)) == (own != then)
    assert [os.sched_getaffinity(thread) for thread in thread_ids(pid)] == [then] * 4


def test_moving_an_ended_process_does_nothing() -> None:
    assert not move_threads(2**22 + 1, frozenset(CPUS), frozenset(CPUS[:1]))


def runs_on() -> set[int]:
    return os.sched_getaffinity(0)


def test_shared_cpus_follow_the_affinity_of_the_supervisor(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            assert recorder.engine.supervisor_pid is not None
            for number, allowed in enumerate(({A}, {A, B})):
                os.sched_setaffinity(recorder.engine.supervisor_pid, allowed)
                await recorder.enter(f"e{number}")
                assert await recorder.run(number, runs_on, name=f"e{number}") == allowed
            assert await recorder.run(2, runs_on, name="e0") == {A, B}

    asyncio.run(main())
