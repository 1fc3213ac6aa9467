"""Engines of other distributions: chosen by name in the settings, or refused with the name of who brings them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_examples import blocks
from tests.installed import install
from tests.system.live_server import LiveServer

PAGE = "docs/how-to/add-an-engine.md"
(MODULE,), (PYPROJECT,) = blocks(PAGE, "python"), blocks(PAGE, "toml")


def with_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str = MODULE) -> None:
    site = install(tmp_path / "site", PYPROJECT, quiet_engine=module)
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def choose(home: Path, name: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "ullage.toml").write_text(f'[server]\nengine = "{name}"\n')


def refused_start(home: Path) -> str:
    command = [sys.executable, "-m", "ullage.cli.main", "up", "--foreground", "--port=0"]
    environment = os.environ | {"ULLAGE_HOME": str(home), "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


def test_a_server_runs_work_on_the_engine_of_the_page(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_engine(tmp_path, monkeypatch)
    choose(home, "quiet")
    with LiveServer(home, "--gpus=1") as server, server.client() as http:
        assert http.get("/v1/server").json()["isolation"].startswith("quiet, ")
        command = [sys.executable, "-m", "ullage.cli.main", "run", "-r", "gpu=1", "--", "echo", "done by it"]
        environment = os.environ | {"ULLAGE_HOME": str(home)}
        assert (
            "done by it" in subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        )


def test_an_engine_that_nobody_offers_is_refused_with_those_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_engine(tmp_path, monkeypatch)
    choose(tmp_path / "home", "slurm")
    assert "engine: 'slurm'" in (said := refused_start(tmp_path / "home"))
    assert "choose one of local, quiet" in said


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def quiet(context): raise OSError('no cluster')", "OSError: no cluster"),
        ("def quiet(context): return 7", "int has no bind, close, execute, forget, hand_out, "),
    ],
)
def test_an_engine_that_cannot_be_created_stops_the_start_and_its_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, reason: str
) -> None:
    with_engine(tmp_path, monkeypatch, module)
    choose(tmp_path / "home", "quiet")
    said = refused_start(tmp_path / "home")
    assert "engine quiet of quiet-engine 1.0 (quiet_engine:quiet) cannot be used: " in said
    assert reason in said
