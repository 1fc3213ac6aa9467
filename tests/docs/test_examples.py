"""The examples of the documents work on a real server."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.live_server import LiveServer

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    home = tmp_path / "home"
    monkeypatch.setenv("ULLAGE_HOME", str(home))
    monkeypatch.delenv("ULLAGE_ENDPOINT", raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with LiveServer(home, "--gpus=4") as live:
        yield live


def blocks(page: str, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall((ROOT / page).read_text()) if kind == language]


def run(command: list[str], where: Path) -> str:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_python(program: str, where: Path) -> str:
    """A program in a file of its own, as a reader would have it."""
    file = where / "example.py"
    file.write_text(program)
    return run([sys.executable, str(file)], where)


def test_the_python_example_of_the_readme_prints_its_output(server: LiveServer, tmp_path: Path) -> None:
    (program,) = blocks("README.md", "python")
    shown = next(text for text in blocks("README.md", "text") if text.startswith("[0, 1"))
    assert run_python(program, tmp_path) == shown


def test_the_allocator_as_a_library_prints_its_output(tmp_path: Path) -> None:
    page = "docs/how-to/use-the-allocator-as-a-library.md"
    (program,), (shown,) = blocks(page, "python"), blocks(page, "text")
    assert run_python(program, tmp_path) == shown


@pytest.mark.parametrize("disabled", ["0", "1"], ids=["compiled", "uncompiled"])
def test_the_compiled_function_of_the_guide_prints_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disabled: str
) -> None:
    page = "docs/how-to/write-a-compiled-function.md"
    (program,), (shown,) = blocks(page, "python"), blocks(page, "text")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", disabled)
    assert run_python(program, tmp_path) == shown


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/first-steps.md"])
def test_the_run_example_ends_as_it_shows(server: LiveServer, tmp_path: Path, page: str) -> None:
    shown = next(text for text in blocks(page, "console") if text.startswith("$ ullage run"))
    lines = shown.splitlines()
    script = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    expected = [line for line in lines if not line.startswith("$ ")]
    assert run(["bash", "-c", script], tmp_path).splitlines() == expected


def test_the_program_of_the_tutorial_prints_its_output(server: LiveServer, tmp_path: Path) -> None:
    (program,) = blocks("docs/tutorial/first-steps.md", "python")
    assert run_python(program, tmp_path) == "328350\n"


def test_functions_raise_in_the_caller(server: LiveServer, tmp_path: Path) -> None:
    program, *_ = blocks("docs/how-to/call-functions.md", "python")
    assert run_python(program, tmp_path) == "42 1\nthe task raised: bad 3\n"


def test_a_map_tries_again_and_a_run_with_a_key_is_found_again(server: LiveServer, tmp_path: Path) -> None:
    page = "docs/how-to/call-functions.md"
    _, retried, _, _, resumed, greeted = blocks(page, "python")
    shown, *_ = blocks(page, "text")
    assert run_python(retried, tmp_path) == shown
    assert [run_python(resumed, tmp_path) for _ in range(2)] == ["328350\n"] * 2
    assert "100" in run(["ullage", "sessions"], tmp_path)
    assert run_python(greeted, tmp_path) == "hello ann\n"


def test_large_data_is_bound_and_calls_make_calls(server: LiveServer, tmp_path: Path) -> None:
    page = "docs/how-to/call-functions.md"
    _, _, bound, within, _, _ = blocks(page, "python")
    _, *shown = blocks(page, "text")
    assert [run_python(bound, tmp_path), run_python(within, tmp_path)] == shown


def test_the_asyncio_example_prints_its_output(server: LiveServer, tmp_path: Path) -> None:
    page = "docs/how-to/from-async-code.md"
    (program,), (shown,) = blocks(page, "python"), blocks(page, "text")
    assert run_python(program, tmp_path) == shown


def test_the_executor_of_the_reference_sums_up(server: LiveServer, tmp_path: Path) -> None:
    (program,) = blocks("docs/reference/python.md", "python")
    assert run_python(program, tmp_path) == "25\n"


def test_the_worker_of_the_guide_can_be_registered(server: LiveServer, tmp_path: Path) -> None:
    worker, caller = blocks("docs/how-to/write-a-worker.md", "python")
    (described,) = blocks("docs/how-to/write-a-worker.md", "toml")
    (tmp_path / "echo.py").write_text(worker)
    paths = described.replace("/path/to/venv/bin/python", sys.executable).replace(
        "/path/to/echo.py", str(tmp_path / "echo.py")
    )
    (tmp_path / "echo.toml").write_text(paths)
    run(["ullage", "apps", "register", "-f", "echo.toml"], tmp_path)
    assert run_python(caller, tmp_path) == "b'HELLO!'\n[b'A!', b'B!']\n"


def test_the_first_program_of_one_who_comes_from_ray_prints_its_output(server: LiveServer, tmp_path: Path) -> None:
    page = "docs/how-to/come-from-ray.md"
    (program,), (shown,) = blocks(page, "python"), blocks(page, "text")
    assert run_python(program, tmp_path) == shown


def test_a_server_takes_the_settings_for_teams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab.toml").write_text("\n".join(blocks("docs/how-to/share-between-teams.md", "toml")))
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path / "home"))
    with LiveServer(tmp_path / "home", f"--config={tmp_path / 'lab.toml'}"):
        shown = run([sys.executable, "-m", "ullage.cli.main", "queues", "-o", "name,parent"], tmp_path)
    assert [line.rpartition("  ")[0].strip() for line in shown.splitlines()[1:]] == [
        "default",
        "production",
        "research",
        "├─ language",
        "└─ vision",
    ]
