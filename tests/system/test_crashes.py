"""Processes are killed during work: nothing is lost, nothing ends twice, and no process is left."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from concurrent.futures import as_completed
from pathlib import Path

import msgspec

import ullage
from tests.system.live_server import LiveServer, wait_until
from ullage.model.task import LOST_LIMIT


def slow_square(number: int) -> int:
    time.sleep(0.002)
    return number * number


def square_in_time(number: int, gate: Path) -> int:
    """The square; of the last numbers as soon as there is a gate."""
    while number >= 900 and not gate.exists():
        time.sleep(0.01)
    return slow_square(number)


def test_kill_9_of_the_server_in_the_middle_of_1000_tasks_loses_nothing(server: LiveServer, tmp_path: Path):
    gate = tmp_path / "gate"
    with ullage.connect() as client:
        session = client.session("survivor", resreq="cpu=1,mem=256m")
        futures = [session.submit(square_in_time, n, gate) for n in range(1000)]
        wait_until(lambda: session.status().succeed >= 100, "a tenth is done")
        server.kill()
        assert not all(future.done() for future in futures)
        wait_until(lambda: not server.leftovers(), "the workers of the dead server are gone")
        gate.touch()
        server.start()
        assert [future.result(timeout=60) for future in futures] == [n * n for n in range(1000)]
        status = session.status()
        assert (status.succeed, status.failed, status.pending) == (1000, 0, 0)
        session.close()
    server.stop()
    database = sqlite3.connect(server.home / "state.db")
    with database:
        counted = database.execute("select count(*), count(distinct task), count(distinct sequence) from results")
        assert counted.fetchone() == (1000, 1000, 1000)
    database.close()


def test_kill_9_of_an_executor_puts_its_task_back(server: LiveServer):
    with ullage.connect() as client, client.session("s", resreq="cpu=1,mem=256m") as session:
        futures = [session.submit(slow_square, n) for n in range(300)]
        wait_until(lambda: session.status().succeed >= 20, "work is under way")
        victim = next(executor for executor in client.executors() if executor.pid)
        os.kill(victim.pid, signal.SIGKILL)
        assert sorted(future.result(timeout=60) for future in as_completed(futures)) == [n * n for n in range(300)]
        wait_until(lambda: victim.id not in {executor.id for executor in client.executors()}, "its loss is known")


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_that_kills_its_executor_fails_after_three_losses_and_others_go_on(server: LiveServer):
    with ullage.connect() as client, client.session("s", resreq="cpu=1,mem=256m") as session:
        deadly = session.submit(kill_myself)
        others = [session.submit(slow_square, n) for n in range(20)]
        assert [future.result(timeout=60) for future in others] == [n * n for n in range(20)]
        error = deadly.exception(timeout=60)
        assert "lost 3 times" in str(error)
        assert session.status().failed == 1


def test_a_task_is_not_blamed_for_the_ends_of_its_server(server: LiveServer):
    with ullage.connect() as client:
        session = client.session("long", resreq="cpu=1,mem=256m", application="command")
        task = session.run(command_input(["sleep", "600"]))
        for _ in range(LOST_LIMIT):
            wait_until(lambda: session.status().running == 1 and task.running(), "the task runs")
            server.stop()
            server.start()
        wait_until(lambda: session.status().running == 1, "the task runs again")
        status = session.status()
        assert (status.failed, status.bind_failures) == (0, 0)
        session.cancel()


def test_a_stopped_server_leaves_no_process(server: LiveServer):
    with ullage.connect() as client:
        session = client.session("s", resreq="cpu=1,mem=256m", application="command")
        session.run(command_input(["sh", "-c", "sleep 300 & setsid sleep 300 & sleep 300"]))
        wait_until(lambda: len([c for c in server.leftovers() if c.startswith("sleep")]) == 3, "the program runs")
        server.stop()
        assert server.leftovers() == []


def command_input(argv: list[str]) -> bytes:
    return msgspec.msgpack.encode({"argv": argv, "cwd": None, "env": {"PATH": os.environ["PATH"]}, "stdin": None})


def test_a_program_past_its_time_limit_is_ended_and_its_session_closes(server: LiveServer):
    with ullage.connect() as client:
        options = {"application": "command", "resreq": "cpu=1,mem=256m", "task_timeout_s": 0.5, "close_when_done": True}
        session = client.session("limited", **options)
        error = session.run(command_input(["sleep", "300"])).exception(timeout=60)
        assert "longer than its limit of 0.5 s" in str(error)
        wait_until(lambda: session.status().state == "closed", "the session closes by itself")
