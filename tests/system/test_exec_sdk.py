"""`Session.exec`: a program beside a running task, by the SDK, with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ullage
from tests.system.live_server import LiveServer, wait_until
from tests.system.terminals import Shell, with_word
from ullage.client.offload import THREADS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(tmp_path_factory.mktemp("exec") / "home", NUMBA_DISABLE_JIT="1") as server:
        yield server
    assert server.leftovers() == []


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[ullage.Client]:
    with ullage.connect(server.url, server.token) as client:
        yield client


@pytest.fixture(scope="module")
def session(client: ullage.Client) -> Iterator[ullage.Session]:
    """A session whose only task runs."""
    with client.session("held", resreq="cpu=0.1,mem=128m", environment={"COLOUR": "red"}) as session:
        future = session.submit(time.sleep, 86401)
        wait_until(lambda: session.status().running == 1, "it runs")
        yield session
        future.cancel()


def test_the_exit_code_the_output_and_the_errors_of_a_program(session: ullage.Session) -> None:
    code, out, err = session.exec(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (code, out, err) == (3, b"out\n", b"err\n")
    result = session.exec(["no-such-program"], task=1)
    assert result.exit_code == 127
    assert b"no-such-program: program not found" in result.stderr


def test_it_has_the_task_of_its_session_and_variables_of_its_own(session: ullage.Session) -> None:
    result = session.exec(["sh", "-c", "echo $ULLAGE_SESSION $MINE ${ULLAGE_WORKER_SECRET-none}"], env={"MINE": "a b"})
    assert result.stdout == b"held a b none\n"


def test_its_input_is_passed_whole_and_comes_back_whole(session: ullage.Session, tmp_path: Path) -> None:
    given = os.urandom(5_000_001)
    assert hashlib.sha256(session.exec(["cat"], stdin=given).stdout).digest() == hashlib.sha256(given).digest()
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        result = session.exec(["sh", "-c", "cat; echo done >&2"], stdin=given, stdout=out, stderr=err)
    assert result == (0, b"", b"")
    assert (tmp_path / "out").read_bytes() == given
    assert (tmp_path / "err").read_text() == "done\n"
    assert session.exec(["true"], stdin=given).exit_code == 0


class Slow(bytearray):
    """A file that takes some bytes at a time; as long as it is empty it counts as false."""

    def write(self, data: bytes) -> int:
        self.extend(data[:1000])
        return len(data[:1000])


def test_files_that_take_a_part_at_a_time_get_all(session: ullage.Session) -> None:
    out: Any = Slow()
    err: Any = Slow()
    given = os.urandom(50_001)
    assert session.exec(["sh", "-c", "cat; echo done >&2"], stdin=given, stdout=out, stderr=err) == (0, b"", b"")
    assert (bytes(out), bytes(err)) == (given, b"done\n")


def test_no_time_at_all_starts_nothing(session: ullage.Session) -> None:
    for timeout in (0, -1):
        with pytest.raises(TimeoutError, match="true was not started within"):
            session.exec(["true"], timeout=timeout)


class Sink:
    def write(self, data: bytes) -> int:
        return len(data)


@pytest.mark.parametrize("script", ["echo go; sleep {0}; true", "while printf {0}; do :; done"])
def test_a_program_that_takes_too_long_is_hung_up(session: ullage.Session, word: str, script: str) -> None:
    sink: Any = Sink()
    with pytest.raises(TimeoutError):
        session.exec(["sh", "-c", script.format(word), word], stdout=sink, timeout=2)
    wait_until(lambda: with_word(word) == [], "it is gone")


def test_what_is_asked_for_is_checked(client: ullage.Client, session: ullage.Session) -> None:
    wrong: Any
    for wrong in ("ls -l", [], [""], ["ls", 3], b"ls", None, 3):
        with pytest.raises(ullage.InvalidRequest, match="write the program and each of its arguments as a text"):
            session.exec(wrong)
    with pytest.raises(ullage.InvalidRequest, match="a name of a variable"):
        session.exec(["true"], env={"a b": "c"})
    with pytest.raises(ullage.InvalidRequest, match="MiB; use stdin"):
        session.exec(["true", "x" * (5 << 20)])
    wrong = "text"
    with pytest.raises(ullage.InvalidRequest, match=r"text\.encode\(\)"):
        session.exec(["cat"], stdin=wrong)
    for wrong in (0, "1", True):
        with pytest.raises(ullage.InvalidRequest, match="tasks have numbers from 1"):
            session.exec(["true"], task=wrong)
    with pytest.raises(ullage.NotFound):
        session.exec(["true"], task=7)
    other = client.session("other", resreq="cpu=0.1,mem=64m")
    with pytest.raises(ullage.InvalidRequest, match="it has 0 tasks; name one, as in task=1"):
        other.exec(["true"])
    other.cancel()


def test_a_task_that_does_not_run_is_refused(client: ullage.Client) -> None:
    with client.session(resreq="cpu=0.1,mem=128m") as session:
        assert session.submit(abs, -1).result() == 1
        with pytest.raises(ullage.Conflict, match="it has ended: succeed") as caught:
            session.exec(["true"])
        assert caught.value.code == "task-not-running"


def test_a_program_that_ends_with_its_executor_has_no_result(client: ullage.Client, word: str) -> None:
    with client.session(resreq="cpu=0.1,mem=128m", grace_s=0) as session:
        future = session.submit(time.sleep, 600)
        wait_until(lambda: session.status().running == 1, "it runs")
        caught: list[BaseException] = []

        def execute() -> None:
            try:
                session.exec(["sh", "-c", f"trap '' TERM HUP; while :; do sleep {word}; done"])
            except ullage.UllageError as error:
                caught.append(error)

        thread = threading.Thread(target=execute)
        thread.start()
        wait_until(lambda: with_word(word) != [], "it runs")
        session.cancel()
        thread.join()
        assert future.cancelled()
    (error,) = caught
    assert isinstance(error, ullage.Conflict)
    assert (error.code, error.message) == ("program-ended", "its executor ended: stopped")


def test_a_closed_client_runs_nothing(server: LiveServer, session: ullage.Session) -> None:
    with ullage.connect(server.url, server.token) as client:
        again = client.open_session(session.id)
    for timeout in (None, 5):
        with pytest.raises(ullage.Conflict, match="the client is closed"):
            again.exec(["true"], timeout=timeout)


def test_asyncio_runs_more_programs_than_it_has_threads(
    server: LiveServer, session: ullage.Session, tmp_path: Path
) -> None:
    """All of them wait for one another."""

    async def run() -> None:
        async with ullage.aconnect(server.url, server.token) as client:
            own = await client.open_session(session.id)
            count = THREADS + 2
            script = (
                f'touch {tmp_path}/$0; until [ "$(ls {tmp_path} | wc -l)" = {count} ]; do sleep 0.05; done; echo $0'
            )
            results = await asyncio.gather(*(own.exec(["sh", "-c", script, str(n)]) for n in range(count)))
            assert [result.stdout for result in results] == [f"{n}\n".encode() for n in range(count)]

    asyncio.run(run())


def test_a_cancelled_coroutine_takes_its_program_along(server: LiveServer, session: ullage.Session, word: str) -> None:
    async def run() -> None:
        async with ullage.aconnect(server.url, server.token) as client:
            own = await client.open_session(session.id)
            running = asyncio.ensure_future(own.exec(["sh", "-c", f"sleep {word}; true"]))
            await asyncio.to_thread(wait_until, lambda: with_word(word) != [], "it runs")
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            assert running.cancelled()
            assert (await own.exec(["echo", "on"])).stdout == b"on\n"
            await client.close()
            with pytest.raises(ullage.Conflict, match="the client is closed"):
                await own.exec(["true"])

    asyncio.run(run())
    wait_until(lambda: with_word(word) == [], "it is gone")


def test_a_server_that_is_killed_takes_the_program_along(tmp_path: Path, word: str) -> None:
    server = LiveServer(tmp_path / "home", NUMBA_DISABLE_JIT="1")
    with server:
        shell = Shell(server, PYTHONPATH=os.pathsep.join(sys.path))
        name = shell.submitted("--", "sleep", "608")
        with ullage.connect(server.url, server.token) as client:
            session = client.open_session(name)
            killer = threading.Thread(
                target=lambda: (wait_until(lambda: with_word(word) != [], "it runs"), server.kill())
            )
            killer.start()
            with pytest.raises(ullage.Unavailable, match="a server that ends, ends the program too"):
                session.exec(["sleep", word])
            killer.join()
        wait_until(lambda: with_word(word) == [], "it is gone")
        wait_until(lambda: not server.leftovers(), "none is left")
