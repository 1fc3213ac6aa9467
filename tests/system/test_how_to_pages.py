"""The commands of the pages on cards print the output of the pages."""

import getpass
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.live_server import LiveServer

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
HTTP_ERROR = 22
"""The exit code of `curl --fail-with-body` when the server refuses."""


class Step(NamedTuple):
    """A command of a page, and the output that the page shows; None if it shows none."""

    command: str
    shown: str | None


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)


def steps(page: str) -> list[Step]:
    """A command begins with `$ ` and goes on over lines that are indented or end a text in quotes."""
    found = []
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, shown = re.fullmatch(r"(.+?\n(?:(?:    .*| +}'|  }')\n)*)(.*)", part, re.DOTALL).groups()
            found.append(Step(command, shown or None))
    return found


@pytest.fixture
def bash(home: Path, tmp_path: Path) -> Iterator[Callable[[list[str]], list[tuple[int, str]]]]:
    """Runs commands in one shell, beside a server with the cards of the page on pods; their codes and outputs."""
    if shutil.which("curl") is None:
        pytest.skip("the pages use curl, which this machine does not have")
    (home / "ullage.toml").write_text(blocks("hold-cards-for-pods.md", "toml")[0])
    (tmp_path / "pod.json").write_text(blocks("hold-cards-for-pods.md", "json")[0])

    def run(commands: list[str]) -> list[tuple[int, str]]:
        script = [
            f'ullage() {{ {sys.executable} -m ullage.cli.main "$@"; }}',
            'curl() { command curl --fail-with-body "$@"; }',
            *(f"{command}\nprintf '\\n%s\\n' \"=== $?\"" for command in commands),
        ]
        text = "\n".join(script).replace("http://127.0.0.1:7480", server.url)
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=True,
        )
        parts = re.split(r"\n=== (\d+)\n", done.stdout)
        return list(zip(map(int, parts[1::2]), parts[::2], strict=False))

    with LiveServer(home) as server:
        yield run


@pytest.mark.parametrize("page", ["hold-cards-for-pods.md", "set-quotas.md", "make-room.md"])
def test_every_command_of_a_page_prints_the_output_of_the_page(bash, page: str):
    walked = steps(page)
    for step, (code, out) in zip(walked, bash([step.command for step in walked]), strict=True):
        assert code != HTTP_ERROR, (step.command, out)
        if step.shown is None:
            assert "ullage: " not in out, step.command
        else:
            shown = step.shown.replace("root", getpass.getuser())
            assert out.rstrip("\n") == shown.rstrip("\n"), step.command
