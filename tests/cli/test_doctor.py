"""`ullage doctor` in homes and on machines that the tests break."""

import json
import os

import pytest
import yaml

from tests.fake_api import TOKEN, leave_files
from ullage.bootstrap.machine_checks import check_cards, check_cgroups, check_compiler, check_settings
from ullage.cli.main import main
from ullage.inventory.nvml import CardsUnreadable
from ullage.wire.overview import ServerBody


@pytest.fixture
def doctor(capsys):
    """Runs the doctor and gives its exit code, and its findings by check."""

    def run(*options):
        code = main(["doctor", "-o", "json", *options])
        shown = json.loads(capsys.readouterr().out)
        return code, {each["check"]: each for each in shown if each["verdict"] != "ok"}, {e["check"] for e in shown}

    return run


def test_a_machine_without_anything_has_nothing_bad(doctor, home):
    home.chmod(0o700)
    code, wrong, checked = doctor()
    assert code == 0
    assert checked == {
        *("python", "packages", "variables", "home", "token", "disk", "server", "settings", "cards", "cgroups"),
        "compiler",
    }
    assert not {name for name, each in wrong.items() if each["verdict"] == "bad"}


def test_each_line_has_a_verdict_and_a_bad_one_its_fix(capsys, home):
    home.chmod(0o700)
    (home / "token").write_text("t" * 64)
    (home / "token").chmod(0o644)
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ok    python     Python 3.") for line in lines)
    place = next(n for n, line in enumerate(lines) if line.startswith("bad   token"))
    assert lines[place + 1].strip().startswith(f"chmod 600 {home / 'token'}")
    assert lines[-1].startswith("1 check bad, ")


def test_a_home_that_others_may_enter_is_a_warning(doctor, home):
    home.chmod(0o755)
    code, wrong, _ = doctor()
    assert (code, wrong["home"]["verdict"], wrong["home"]["fix"]) == (0, "warn", f"chmod 700 {home}")


def test_a_home_that_others_may_only_pass_is_fine(doctor, home):
    home.chmod(0o711)
    _, wrong, _ = doctor()
    assert "home" not in wrong


def test_a_home_that_is_a_file_or_cannot_be_created_is_bad(doctor, home, monkeypatch):
    (home / "file").touch()
    monkeypatch.setenv("ULLAGE_HOME", str(home / "file"))
    assert doctor()[1]["home"]["text"] == f"{home / 'file'} is no directory"
    monkeypatch.setenv("ULLAGE_HOME", str(home / "file/below"))
    code, wrong, _ = doctor()
    assert code == 1
    assert wrong["home"]["text"] == (
        f"{home / 'file/below'} cannot be created: {home / 'file'} is no directory that this user can write"
    )


def test_a_home_that_is_not_writable_is_bad(doctor, home):
    home.chmod(0o500)
    code, wrong, _ = doctor()
    home.chmod(0o700)
    assert (code, wrong["home"]["fix"]) == (1, f"chmod u+rwx {home}")


def test_a_token_that_is_none_is_bad(doctor, home):
    home.chmod(0o700)
    (home / "token").write_text("short\n")
    (home / "token").chmod(0o600)
    code, wrong, _ = doctor()
    assert (code, "holds no token" in wrong["token"]["text"]) == (1, True)


def test_a_server_that_was_killed_is_found_by_its_file(doctor, home):
    home.chmod(0o700)
    leave_files(home, "http://127.0.0.1:1", pid=2**22 + 1)
    (home / "token").write_text("t" * 64)
    (home / "token").chmod(0o600)
    code, wrong, _ = doctor()
    assert (code, wrong["server"]["verdict"]) == (0, "warn")
    assert "`ullage up` starts one" in wrong["server"]["fix"]


def test_a_server_that_does_not_answer_is_bad_with_the_way_to_end_it(doctor, home):
    leave_files(home, "http://127.0.0.1:1")
    code, wrong, _ = doctor()
    assert code == 1
    assert f"kill -CONT {os.getpid()}" in wrong["server"]["fix"]


def test_a_server_of_another_version_and_another_time_is_warned_of(doctor, fake, monkeypatch):
    handler = fake._handler
    old = ServerBody(version="0.0.9", epoch=1, started_at=0.0, home="/h", storage="s", isolation="i", policy={})
    monkeypatch.setattr(handler, "get_server", lambda self: old)
    code, wrong, checked = doctor()
    assert code == 1
    assert "home" not in checked  # the server is elsewhere
    assert wrong["version"]["text"].startswith("the server is 0.0.9, this command line ")
    assert "s behind that of this machine" in wrong["clock"]["text"]
    assert wrong["clock"]["verdict"] == "bad"


def test_a_wrong_token_and_a_wrong_address_are_bad(doctor, fake, monkeypatch):
    monkeypatch.setenv("ULLAGE_TOKEN", f"{TOKEN}-other")
    assert "the token is wrong" in doctor()[1]["server"]["text"]
    monkeypatch.setenv("ULLAGE_ENDPOINT", "http://127.0.0.1:1")
    assert doctor()[1]["server"]["fix"].startswith("check the address in ULLAGE_ENDPOINT")
    monkeypatch.setenv("ULLAGE_ENDPOINT", "127.0.0.1:1")
    code, wrong, _ = doctor()
    assert (code, wrong["variables"]["verdict"], wrong["server"]["verdict"]) == (1, "bad", "bad")


def test_a_misspelt_variable_is_a_warning(doctor, home, monkeypatch):
    monkeypatch.setenv("ULLAGE_HOEM", "/x")
    assert "did you mean ULLAGE_HOME?" in doctor()[1]["variables"]["text"]


def test_settings_that_stop_a_server_are_bad(home):
    (home / "ullage.toml").write_text("[server]\nprot = 1\n")
    (finding,) = check_settings()
    assert finding.verdict == "bad"
    assert "did you mean port?" in finding.text
    (home / "ullage.toml").write_text("[queues.a]\nweight = 2\n")
    assert [each.verdict for each in check_settings()] == ["ok"]


class NoCards:
    def cards(self):
        raise CardsUnreadable("NVML does not start: Driver/library version mismatch")

    def nvlinks(self):
        return ()


def test_cards_that_a_driver_has_and_nvml_cannot_read_are_bad():
    (finding,) = check_cards(NoCards(), driver=True)
    assert (finding.verdict, "version mismatch" in finding.text) == ("bad", True)
    assert [each.verdict for each in check_cards(NoCards(), driver=False)] == ["ok"]


@pytest.mark.parametrize(
    ("mounts", "version", "verdict"),
    [
        ([], 0, "warn"),
        (["36 25 0:32 / {root} rw - cgroup2 cgroup2 rw"], 2, "ok"),
        (["36 25 0:32 / {root} rw - cgroup cgroup rw,memory"], 1, "ok"),
    ],
)
def test_cgroups_are_judged_by_what_the_kernel_offers(tmp_path, mounts, version, verdict):
    (tmp_path / "self").mkdir()
    membership = {0: "", 1: "4:memory:/\n", 2: "0::/\n"}[version]
    (tmp_path / "self/cgroup").write_text(membership)
    root = tmp_path / "mounted"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu memory")
    (root / "cgroup.subtree_control").write_text("")
    (root / "cgroup.procs").write_text("1\n")
    (tmp_path / "self/mountinfo").write_text("".join(f"{each.format(root=root)}\n" for each in mounts))
    (finding,) = check_cgroups(tmp_path)
    assert finding.verdict == verdict
    (root / "cgroup.type").write_text("domain")
    if version == 2:
        (finding,) = check_cgroups(tmp_path)
        assert "has other processes" in finding.text


def test_the_cache_of_the_compiler_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    assert [each.verdict for each in check_compiler()] == ["warn"]
    (tmp_path / "a.nbi").touch()
    assert [each.verdict for each in check_compiler()] == ["ok"]


def test_a_cluster_is_checked_when_it_is_named(doctor, home, tmp_path):
    assert "cluster" not in doctor()[2]
    code, wrong, _ = doctor("--kubeconfig", str(tmp_path / "nothing"))
    assert (code, wrong["cluster"]["verdict"]) == (1, "bad")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    assert "does not answer" in doctor("--kubeconfig", str(tmp_path / "config"))[1]["cluster"]["text"]
    assert doctor("--kubeconfig", str(tmp_path / "config"), "--context", "other")[1]["cluster"]["verdict"] == "bad"
