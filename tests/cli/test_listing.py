"""Output and errors of the verbs that show state."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.fake_api import FakeSession, FakeTask, gpu, holder, node
from ullage.cli.main import build_parser, main
from ullage.cli.verbs import VERBS
from ullage.client.own_name import user_name
from ullage.wire.event import EventBody
from ullage.wire.session import CreateSession


@pytest.fixture
def session(fake):
    spec = CreateSession(application="function", owner=user_name(), resreq="cpu=2,mem=4Gi,gpu=1", priority=3)
    session = fake.sessions["function-1"] = FakeSession(spec, "function-1")
    session.tasks.append(FakeTask(1, b"", None, "running"))
    session.tasks.append(FakeTask(2, b"", None, "failed", code=3, message="broke\ntraceback"))
    return session


def printed(capsys, *argv):
    assert main(argv) == 0
    return capsys.readouterr().out


def fields(line):
    return line.split()


def test_queue_shows_sessions_and_their_resources(capsys, fake, session):
    fake.reason = "insufficient-gpu"
    titles, row = printed(capsys, "queue").splitlines()
    assert fields(titles) == [
        *("ID", "QUEUE", "APP", "OWNER", "STATE", "PRIO", "PENDING", "RUNNING"),
        *("HELD/DESERVED", "REQUEST", "TIME", "TIME-LIMIT", "AGE", "REASON"),
    ]
    shown = fields(row)
    assert shown[:5] == ["function-1", "default", "function", user_name(), "running"]
    assert shown[5:10] == ["3", "0", "1", "1/2", "cpu=2,mem=4Gi,gpu=1"]
    assert shown[-1] == "insufficient-gpu"


def test_queue_can_be_narrowed(capsys, fake, session):
    assert len(printed(capsys, "queue", "--me").splitlines()) == 2
    fake.sessions["other"] = FakeSession(CreateSession(application="function", queue="other"), "other")
    assert len(printed(capsys, "queue", "-q", "default").splitlines()) == 2
    del fake.sessions["other"]
    session.state = "closed"
    assert len(printed(capsys, "queue").splitlines()) == 1
    assert len(printed(capsys, "sessions", "--state", "closed").splitlines()) == 2


@pytest.mark.parametrize("verb", ["queue", "sessions", "nodes", "gpus", "executors", "queues", "apps", "events"])
def test_every_list_has_a_json_form(capsys, fake, verb):
    fake.nodes, fake.gpus = [node("n1")], [gpu("n1", 0)]
    assert isinstance(json.loads(printed(capsys, verb, "-o", "json")), list)


def test_times_have_date_and_zone(capsys, monkeypatch, session):
    monkeypatch.setenv("TZ", "UTC")
    assert "2023-11-14 22:13:20 +0000" in printed(capsys, "sessions")


def test_tasks_show_the_first_line_of_their_error(capsys, session):
    out = printed(capsys, "tasks", "function-1")
    assert "function-1/2" in out
    assert "broke" in out
    assert "traceback" not in out


def test_nodes_show_held_over_allocatable(capsys, fake):
    fake.nodes = [node("n1")]
    _, row = printed(capsys, "nodes").splitlines()
    assert fields(row) == ["n1", "ready", "1.5/8", "1Gi/32Gi", "1/4", "1/128", "-"]


def test_wide_shows_more_columns(capsys, fake):
    fake.gpus = [gpu("n1", 0)]
    assert "UUID" not in printed(capsys, "gpus")


def test_gpus_show_free_amounts_and_holders(capsys, fake):
    fake.gpus = [
        gpu("n1", 0, holder("train", 0.5), holder("serve", 0.25, "bob")),
        gpu("n1", 1, holder("alone", 1.0)),
        gpu("n1", 2),
    ]
    shared, whole, free = (re.split(r" {2,}", row.strip()) for row in printed(capsys, "gpus").splitlines()[1:])
    assert shared[2:] == ["H100", "0.25", "60Gi/80Gi", "45/60", "0", "yes", "train 0.5, serve 0.25", "ann, bob"]
    assert whole[2:6] == ["H100", "0", "80Gi/80Gi", "60/60"]
    assert whole[8:] == ["alone", "ann"]
    assert (free[3], free[8:]) == ("1", ["-", "-"])
    assert "train 0.5, serve 0.25" in printed(capsys, "top")
    shown = printed(capsys, "show", "gpu", "n1/0")
    assert "executor=e-train, session=train, owner=ann, fraction=0.5" in shown
    assert "; executor=e-serve" in shown


def test_wide_shows_uuids(capsys, fake):
    fake.gpus = [gpu("n1", 0)]
    assert "GPU-0" in printed(capsys, "gpus", "-o", "wide")


@pytest.mark.parametrize(
    ("kind", "name", "shown"),
    [
        ("session", "function-1", "application"),
        ("task", "function-1/2", "broke"),
        ("node", "n1", "cpu_milli=8000"),
        ("gpu", "n1/0", "H100"),
        ("gpu", "GPU-0", "H100"),
    ],
)
def test_show_gives_every_field(capsys, fake, session, kind, name, shown):
    fake.nodes, fake.gpus = [node("n1")], [gpu("n1", 0)]
    assert shown in printed(capsys, "show", kind, name)


@pytest.mark.parametrize(("kind", "name"), [("session", "x"), ("node", "x"), ("executor", "x"), ("task", "x/1")])
def test_show_of_an_unknown_object_is_an_error(capsys, fake, kind, name):
    assert main(["show", kind, name]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_why_shows_the_reason_and_its_cure(capsys, session):
    out = printed(capsys, "why", "function-1")
    assert out.startswith("function-1: nothing-pending: 0 of 4 gpus are free\n")
    assert "position 2" in out
    assert "ask for gpu=0" in out


def test_cancel_takes_sessions_and_tasks(fake, session):
    assert main(["cancel", "function-1/1"]) == 0
    assert session.tasks[0].state == "cancelled"
    assert main(["cancel", "function-1"]) == 0
    assert session.state == "closed"


def test_closing_while_tasks_run_is_refused_with_a_hint(capsys, session):
    assert main(["close", "function-1"]) == 75
    complaint, hint = capsys.readouterr().err.splitlines()
    assert complaint == "ullage: tasks-running: 1 task runs"
    assert hint == "hint: `ullage cancel` ends running tasks too"


def test_a_closed_session_is_deleted_and_an_open_one_is_not(capsys, fake, session):
    assert main(["delete", "function-1"]) == 75
    complaint, hint = capsys.readouterr().err.splitlines()
    assert complaint == "ullage: session-open: session function-1 is open; close it before deleting it"
    assert "`ullage close`" in hint
    session.state = "closed"
    assert main(["delete", "function-1"]) == 0
    assert main(["delete", "function-1"]) == 2
    assert fake.sessions == {}


@pytest.mark.parametrize("target", ["function-1/0", "function-1/x", "/1", "function-1/"])
def test_a_task_that_is_no_number_is_refused(capsys, fake, target):
    assert main(["cancel", target]) == 2
    assert fake.seen == []


def test_events_are_listed_and_narrowed(capsys, fake):
    fake.events = [
        EventBody(number=n, at=1_700_000_000.0, kind="session.created", session="s", code=None, message="m", data={})
        for n in (1, 2)
    ]
    assert len(printed(capsys, "events").splitlines()) == 3
    assert len(printed(capsys, "events", "--after", "1").splitlines()) == 2


def test_an_event_names_its_subject(capsys, fake):
    facts = [("s", {"uid": "e1"}), (None, {"uid": "pod-1"}), (None, {"gang": "train"}), (None, {"node": "n"})]
    fake.events = [
        EventBody(number=n, at=1_700_000_000.0, kind="k", session=session, code=None, message="", data=data)
        for n, (session, data) in enumerate(facts, start=1)
    ]
    rows = printed(capsys, "events").splitlines()
    column = rows[0].index("ABOUT")
    assert [row[column:].split()[0] for row in rows[1:]] == ["s", "pod-1", "train", "-"]


def test_top_without_a_terminal_prints_one_picture(capsys, fake, session):
    fake.nodes, fake.gpus = [node("n1")], [gpu("n1", 0)]
    out = printed(capsys, "top")
    assert "n1" in out
    assert "function-1" in out
    assert "idle: 5.5 cards, 9 % of it no likely task can use; room for 5 x 1, 2 x 2, 1 x 4 whole cards" in out


def test_an_application_is_registered_from_toml(capsys, fake, tmp_path):
    file = tmp_path / "echo.toml"
    file.write_text('name = "echo"\ncommand = "echo-worker"\nretries = 2\n')
    printed(capsys, "apps", "register", "-f", str(file))
    assert fake.applications["echo"].retries == 2
    assert "echo-worker" in printed(capsys, "apps")
    printed(capsys, "apps", "unregister", "echo")
    assert fake.applications == {}


@pytest.mark.parametrize(
    ("name", "text", "output"),
    [
        ("a.toml", 'command = "x"', "name"),
        ("a.toml", 'name = "x"\nretry = 1', "retry"),
        ("a.json", '{"name": "x", "retries": "two"}', "retries"),
        ("a.json", "{", "not TOML or JSON"),
    ],
)
def test_a_wrong_application_file_is_refused_with_the_field(capsys, fake, tmp_path, name, text, output):
    file = tmp_path / name
    file.write_text(text)
    assert main(["apps", "register", "-f", str(file)]) == 2
    assert output in capsys.readouterr().err
    assert fake.seen == []


def test_no_server_is_exit_code_69_with_a_hint(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("ULLAGE_ENDPOINT", raising=False)
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path))
    assert main(["queue"]) == 69
    assert capsys.readouterr().err.startswith("ullage: no server is running\nhint: `ullage up`")


def test_a_wrong_command_line_is_exit_code_2(capsys):
    assert main(["queue", "--nonsense"]) == 2
    assert main(["nonsense"]) == 2
    assert main([]) == 2


def test_an_unexpected_error_is_one_line_unless_debugging(capsys, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("ullage.cli.sessions.reach", broken)
    monkeypatch.delenv("ULLAGE_DEBUG", raising=False)
    assert main(["queue"]) == 70
    assert capsys.readouterr().err.startswith("ullage: ZeroDivisionError: oh\n")
    monkeypatch.setenv("ULLAGE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["queue"])


def test_a_reader_that_leaves_ends_the_output_quietly(fake, session):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ullage.cli.main", "queue"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_help_text_with_an_example(capsys, verb):
    assert main([verb, "--help"]) == 0
    assert f"example: ullage {verb}" in capsys.readouterr().out


def test_the_whole_parser_can_be_built():
    assert build_parser().format_help()


def test_completions_are_printed(capsys):
    pytest.importorskip("shtab", reason="shtab is not installed")
    assert "ullage" in printed(capsys, "completion", "bash")


def test_completions_without_shtab_have_a_hint(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 69
    assert "pip install shtab" in capsys.readouterr().err
