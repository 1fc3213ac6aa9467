"""The server as a service of the machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from ullage.bootstrap.settings import read_settings
from ullage.cli.main import main
from ullage.cli.service import SETTINGS, UNIT, closed_to_others, unit_text
from ullage.client import endpoint


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


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of a service that is installed and down, on a machine whose user has no home of a server."""
    for name in ("ULLAGE_HOME", "ULLAGE_ENDPOINT", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("ULLAGE_SYSTEM", str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    (tmp_path / "state").mkdir(mode=0o711)
    (tmp_path / "ullage.toml").write_text('[node]\nname = "gpu-box"\ngpus = 0\n')
    monkeypatch.setattr(endpoint, "SYSTEM_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(endpoint, "SYSTEM_SETTINGS", str(tmp_path / "ullage.toml"))
    return tmp_path / "state"


def _as_user(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr("os.geteuid", lambda: number)


def test_root_looks_after_the_service(
    service: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _as_user(monkeypatch, 0)
    assert main(["settings", "-o", "name,value", "--no-header"]) == 0
    assert "gpu-box" in capsys.readouterr().out
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    for text in (f"there is no {service / 'state.db'}", "ullage.toml is valid", "`sudo systemctl start ullage`"):
        assert text in said
    assert main(["recover"]) != 0
    assert str(service / "state.db") in capsys.readouterr().err
    assert main(["up", "--show-settings"]) == 0
    assert "gpu-box" not in capsys.readouterr().out


def test_others_look_after_nothing_where_there_is_a_service(
    service: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _as_user(monkeypatch, 1234)
    assert main(["doctor", "-o", "json"]) == 1
    checked = {each["check"] for each in json.loads(capsys.readouterr().out)}
    assert checked == {"python", "packages", "variables", "server"}
    assert main(["recover"]) != 0
    assert "only root" in capsys.readouterr().err
    assert main(["down"]) == 0
    assert "`sudo systemctl stop ullage`" in capsys.readouterr().out


def test_a_home_of_ones_own_comes_before_the_service(service: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _as_user(monkeypatch, 0)
    own = endpoint.home()
    own.mkdir(parents=True)
    assert endpoint.looked_after() == endpoint.ServerPlace(own, None)
    assert service.exists()
