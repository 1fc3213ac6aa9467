"""The examples of the page on running work do what it says on a real server."""

from __future__ import annotations

from pathlib import Path

from tests.docs.test_examples import blocks, run_python, server
from tests.system.live_server import LiveServer

__all__ = ["server"]

PAGE = "docs/how-to/look-into-running-work.md"


def test_the_example_shows_prints_as_they_arrive(server: LiveServer, tmp_path: Path) -> None:
    program, _ = blocks(PAGE, "python")
    shown = run_python(program, tmp_path).splitlines()
    assert sorted(shown) == ["[1] computing 0", "[2] computing 1", "[3] computing 2"]


def test_the_example_of_a_grace_runs(server: LiveServer, tmp_path: Path) -> None:
    _, program = blocks(PAGE, "python")
    assert run_python(program, tmp_path) == ""
