"""The server as a service of the machine."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from ullage.bootstrap.settings import read_settings
from ullage.cli.main import main
from ullage.cli.service import SETTINGS, UNIT, closed_to_others, unit_text


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    unit = tmp_path / "ullage.service"
    unit.write_text(unit_text("/bin/sh"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "ullage" in line]
    assert complaints == []
    assert done.returncode == 0, done.stderr


def test_printing_the_unit_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("/", UNIT).exists()
    assert main(["service", "install", "--print"]) == 0
    printed = capsys.readouterr().out
    assert "RuntimeDirectory=ullage" in printed
    assert "ExecStart=" in printed
    assert Path("/", UNIT).exists() is before


def test_what_is_installed_below_a_directory_is_removed_again_and_settings_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", "install", "--root", str(tmp_path)]) == 0
    settings = tmp_path / SETTINGS
    users = tomllib.loads(settings.read_text())["users"]
    assert (users["run_as"], users["socket"]) == ("owner", "/run/ullage")
    assert read_settings(settings).users.default == "user"
    settings.write_text('[users]\ndefault = "none"\n')
    assert main(["service", "install", "--root", str(tmp_path)]) == 0
    assert settings.read_text() == '[users]\ndefault = "none"\n'
    assert main(["service", "uninstall", "--root", str(tmp_path)]) == 0
    assert not (tmp_path / UNIT).exists()
    assert settings.exists()
    assert "stay" in capsys.readouterr().out
    assert main(["service", "uninstall", "--root", str(tmp_path)]) == 0


def test_only_root_installs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    for action in ("install", "uninstall"):
        assert main(["service", action]) == 2
        assert f"only root may {action} the service" in capsys.readouterr().err


def test_status_says_that_no_service_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ULLAGE_SYSTEM", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("ULLAGE_HOME", raising=False)
    assert main(["service", "status"]) == 1
    assert f"none answers in {tmp_path}" in capsys.readouterr().out


def test_a_directory_that_others_may_not_enter_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    found = closed_to_others(folder / "python")
    assert found is not None
    assert found == folder or found in folder.parents
    assert closed_to_others(Path("/bin/sh")) is None
