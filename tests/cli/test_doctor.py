"""`ullage doctor` in homes and on machines that the tests break."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import yaml

from tests.fake_api import TOKEN, leave_files, queue
from ullage.bootstrap import database_check
from ullage.bootstrap.announcement import announce
from ullage.bootstrap.machine_checks import check_cards, check_cgroups, check_compiler, check_settings
from ullage.bootstrap.settings_changes import file_settings
from ullage.cli.main import main
from ullage.client.endpoint import own_place
from ullage.inventory.nvml import CardsUnreadable
from ullage.model.session import SessionInfo, SessionSpec
from ullage.service.store_port import AddTasks, PutSession
from ullage.storage.lock import FileLock
from ullage.storage.open import open_store
from ullage.storage.schema import known_revisions
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
        *("compiler", "database"),
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


def test_a_guarantee_that_cannot_be_met_is_warned_of(doctor, fake):
    text = "queue vast is guaranteed gpu=100; all nodes together have gpu=4"
    fake.queues = [msgspec.structs.replace(queue(name), warnings=[text]) for name in ("vast", "other")]
    assert doctor()[1]["queues"]["text"] == text


def test_settings_that_stop_a_server_are_bad(home):
    (home / "ullage.toml").write_text("[server]\nprot = 1\n")
    (finding,) = check_settings(own_place())
    assert finding.verdict == "bad"
    assert "did you mean port?" in finding.text
    (home / "ullage.toml").write_text("[queues.a]\nweight = 2\n")
    assert [each.verdict for each in check_settings(own_place())] == ["ok"]


def test_settings_that_a_running_server_has_not_read_are_warned_of(home, capsys):
    file = home / "ullage.toml"
    file.write_text("[history]\ndays = 30\n[queues.a]\nweight = 2\n")
    announce(home, "http://127.0.0.1:1", {"config": str(file)}, [], settings=file_settings(file))
    assert [each.verdict for each in check_settings(own_place())] == ["ok"]
    file.write_text("[history]\nrows = 5\n[queues.a]\nweight = 3\n")
    _, finding = check_settings(own_place())
    assert finding.verdict == "warn"
    assert finding.text.startswith("history.days, history.rows, queues changed since the server started")
    assert main(["settings"]) == 0
    assert "does not have these values yet: history.days, history.rows, queues" in capsys.readouterr().err
    (home / "server.json").unlink()  # it has ended
    assert [each.verdict for each in check_settings(own_place())] == ["ok"]


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


def make_database(home, name="state.db"):
    store = open_store(str(home / name))
    store.load()
    store.write(PutSession(SessionInfo("s", SessionSpec("function"), 1.0, 1))).result()
    store.close()
    return home / name


def database(capsys):
    main(["doctor", "-o", "json"])
    return [each for each in json.loads(capsys.readouterr().out) if each["check"] == "database"]


def test_the_database_is_shown_with_its_size_its_schema_and_its_check(capsys, home):
    path = make_database(home)
    before = path.read_bytes()
    (finding,) = database(capsys)
    assert finding["verdict"] == "ok"
    assert finding["text"].startswith(f"{path}: ")
    assert f" MiB, schema revision {known_revisions()[-1]}, a full check finds no error" in finding["text"]
    assert path.read_bytes() == before


def test_a_database_that_the_settings_name_is_the_one_that_is_checked(capsys, home):
    (home / "ullage.toml").write_text(f'[server]\nstorage = "{home}/other.db"\n')
    (finding,) = database(capsys)
    assert finding["text"] == f"there is no {home}/other.db yet; the first server creates it"
    make_database(home, "other.db")
    (finding,) = database(capsys)
    assert finding["text"].startswith(f"{home}/other.db: ")
    (home / "ullage.toml").write_text('[server]\nstorage = "memory://"\n')
    (finding,) = database(capsys)
    assert finding["text"] == "the settings keep the state in memory alone"


def test_a_database_that_is_open_is_checked_too(capsys, home):
    store = open_store(str(home / "state.db"))
    store.load()
    (finding,) = database(capsys)
    store.close()
    assert finding["verdict"] == "ok"
    assert finding["text"].endswith("a full check finds no error, in use by a server")


def test_a_damaged_database_is_bad_and_recovery_is_named(capsys, home):
    path = make_database(home)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    (finding,) = database(capsys)
    assert (finding["verdict"], finding["fix"]) == ("bad", f"`ullage recover {path}` shows what is intact")


def test_a_database_of_an_older_and_of_a_newer_version_is_named(capsys, home):
    path = make_database(home)
    for revision, verdict, text in (
        ("0001", "ok", f"schema revision 0001 of {known_revisions()[-1]}"),
        ("9999", "bad", "was written by a newer version of Ullage (schema revision 9999)"),
    ):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
            connection.commit()
        for each in (f"{path}-wal", f"{path}-shm"):
            Path(each).unlink(missing_ok=True)
        store = FileLock(path.with_name("state.db.lock"))  # as a server of that version has it open
        (finding,) = database(capsys)
        store.release()
        assert (finding["verdict"], text in finding["text"]) == (verdict, True), finding


def test_a_disk_without_room_for_a_copy_is_a_warning(capsys, home, monkeypatch):
    make_database(home)
    monkeypatch.setattr(database_check.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 10))
    _, room = database(capsys)
    assert (room["verdict"], room["text"].startswith("0.0 MiB free beside ")) == ("warn", True)


def test_recovery_that_worked_ends_with_zero(capsys, home):
    path = home / "state.db"
    store = open_store(str(path))
    store.load()
    for number, name in enumerate(("whole", "broken"), 1):
        session = PutSession(SessionInfo(name, SessionSpec("function"), 1.0, number))
        store.write(session, AddTasks(name, 1, "k", 1, (name.encode() * 100_000,), 1.0)).result()
    store.close()
    assert main(["recover"]) == 0
    data = bytearray(path.read_bytes())
    middle = data.index(b"broken" * 500) + 300_000
    data[middle : middle + 9000] = bytes(9000)
    path.write_bytes(data)
    assert main(["recover"]) == 1
    assert "nothing was changed; --keep keeps the intact records" in capsys.readouterr().out
    assert main(["recover", "--keep"]) == 0
    assert main(["recover"]) == 0
