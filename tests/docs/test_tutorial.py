"""A reader who types what the tutorial says gets what it shows, from the first server to the last command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_examples import ROOT, blocks

PAGE = "docs/tutorial/first-steps.md"
_LEFT_OUT = ("make run", ". .venv/bin/activate", "export ULLAGE_HOME")
"""What prepares the reader's shell; the test has a home and this environment."""


def commands(shown: str) -> list[tuple[str, list[str]]]:
    """The commands of a block of a terminal, each with the lines that it shows."""
    found: list[tuple[str, list[str]]] = []
    for line in shown.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


@pytest.mark.long
def test_the_tutorial_can_be_followed_to_its_end(tmp_path: Path) -> None:
    scripts = Path(sys.executable).parent
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ULLAGE_")},
        "ULLAGE_HOME": str(tmp_path / "home"),
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
    }

    def typed(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    (program,) = blocks(PAGE, "python")
    (answer,) = (text for text in blocks(PAGE, "text") if text.startswith("late:"))
    (tmp_path / "squares.py").write_text(program)
    outputs = {}
    try:
        for block in blocks(PAGE, "console"):
            for command, shown in commands(block):
                if command.startswith(_LEFT_OUT):
                    continue
                outputs[command] = typed(command)
                if shown:
                    assert outputs[command].splitlines() == shown, command
            if "ullage nodes" in block:
                assert typed("python squares.py") == "328350\n"
    finally:
        subprocess.run(["bash", "-c", "ullage down"], env=env, capture_output=True, check=False)
    assert outputs["ullage why late"].startswith(answer.rstrip())
    assert "big" in outputs["ullage why late"]
    row = next(line for line in outputs["ullage sessions"].splitlines() if line.startswith("function-"))
    assert "100" in row.split()
    assert "declared" in outputs["ullage nodes"]


def test_every_command_of_the_tutorial_is_in_a_block_that_is_read() -> None:
    text = (ROOT / PAGE).read_text()
    assert sum(len(commands(block)) for block in blocks(PAGE, "console")) == sum(
        line.startswith("$ ") for line in text.splitlines()
    )
