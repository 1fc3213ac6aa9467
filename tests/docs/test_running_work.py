"""The examples of the page on running work do what it says on a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.test_examples import blocks, run_python, server
from tests.system.live_server import LiveServer

__all__ = ["server"]

PAGE = "docs/how-to/look-into-running-work.md"


def test_the_example_shows_prints_as_they_arrive(server: LiveServer, tmp_path: Path) -> None:
    program, *_ = blocks(PAGE, "python")
    shown = run_python(program, tmp_path).splitlines()
    assert sorted(shown) == ["[1] computing 0", "[2] computing 1", "[3] computing 2"]


def test_the_example_of_a_program_beside_a_function_runs(server: LiveServer, tmp_path: Path) -> None:
    _, program, *_ = blocks(PAGE, "python")
    assert run_python(program, tmp_path) == ""


def test_the_example_of_a_grace_runs(server: LiveServer, tmp_path: Path) -> None:
    _, _, program, _ = blocks(PAGE, "python")
    assert run_python(program, tmp_path) == ""


def test_the_example_of_a_signal_saves_before_its_time_limit(server: LiveServer, tmp_path: Path) -> None:
    *_, program = blocks(PAGE, "python")
    (tmp_path / "train.py").write_text(program)
    line = ["run", "--signal", "USR1@58", "-t", "1m", "--cpus", "1", "--", sys.executable, str(tmp_path / "train.py")]
    ran = subprocess.run([sys.executable, "-m", "ullage.cli.main", *line], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"saved after step \d+\n", ran.stdout)
    assert "ullage: USR1, 58 s before its time limit of 60 s\n" in ran.stderr
