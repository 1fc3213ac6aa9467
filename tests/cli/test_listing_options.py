"""The options of listings: sorting, selection, columns, formats and `--watch`."""

import argparse
import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_api import FakeSession, FakeTask, gpu, holder, node, queue
from ullage.cli.listing import sort_key
from ullage.cli.main import build_parser, main
from ullage.cli.queues import tree
from ullage.cli.sessions import QUEUE
from ullage.cli.yaml_text import yaml_text
from ullage.client.local import reach
from ullage.client.own_name import user_name
from ullage.wire.session import CreateSession

LISTINGS = ("queue", "sessions", "tasks", "executors", "nodes", "gpus", "queues", "apps", "allocations", "quotas")
COMMAND = [sys.executable, "-m", "ullage.cli.main"]


@pytest.fixture
def sessions(fake):
    for name, owner, place, priority, state in (
        ("train-2", "ann", "vision", 5, "running"),
        ("train-10", "bob", "speech", 9, "pending"),
        ("notes", user_name(), "default", 1, None),
    ):
        spec = CreateSession(application="function", owner=owner, queue=place, priority=priority)
        session = fake.sessions[name] = FakeSession(spec, name)
        if state:
            session.tasks.append(FakeTask(1, b"", None, state))
    return fake.sessions


@pytest.fixture
def shown(capsys):
    def show(line):
        assert main(line.split()) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return show


@pytest.fixture
def refused(capsys):
    def show(line):
        assert main(line.split()) == 2
        return capsys.readouterr().err

    return show


def names(text):
    return text.splitlines()


def options(verb):
    (verbs,) = (a for a in build_parser(verb)._actions if isinstance(a, argparse._SubParsersAction))
    return set(verbs.choices[verb]._option_string_actions)


@pytest.mark.parametrize("verb", [*LISTINGS, "bindings", "events"])
def test_every_listing_has_the_options_of_all_listings(verb):
    assert {"--sort", "--output", "-o", "--no-header", "--watch", "-w"} <= options(verb)


@pytest.mark.parametrize(
    ("line", "order"),
    [
        ("--sort id", ["notes", "train-2", "train-10"]),
        ("--sort -id", ["train-10", "train-2", "notes"]),
        ("--sort=-priority", ["train-10", "train-2", "notes"]),
        ("--sort prio", ["notes", "train-2", "train-10"]),
        ("--sort running,-id", ["train-10", "notes", "train-2"]),
        ("--sort CREATED_AT", ["train-2", "train-10", "notes"]),
    ],
)
def test_rows_are_sorted_by_columns_and_by_fields_of_the_body(shown, sessions, line, order):
    assert names(shown(f"queue -o name {line}")) == order


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("--state running", ["train-2"]),
        ("--state PENDING,idle", ["train-10", "notes"]),
        ("--user ann", ["train-2"]),
        ("--user ann,bob", ["train-2", "train-10"]),
        ("--me", ["notes"]),
        ("--queue speech,vision --state running", ["train-2"]),
        ("-u ann --state pending", []),
    ],
)
def test_rows_are_selected_by_state_user_and_queue(shown, fake, sessions, line, left):
    fake.queues = [queue("vision"), queue("speech")]
    assert names(shown(f"queue -o name {line}")) == left


def test_open_sessions_have_two_states(shown, sessions):
    sessions["notes"].state = "closed"
    assert names(shown("sessions -o name --state open")) == ["train-2", "train-10"]
    assert names(shown("sessions -o name --state idle")) == []
    assert names(shown("sessions -o name --state closed,running")) == ["train-2", "notes"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "queue --sort prioritty",
            "--sort: 'prioritty' is not valid: did you mean priority? fields of a session are id,",
        ),
        ("queue -o idd,state", "--output: 'idd' is not valid: did you mean id?"),
        ("queue -o jsno", "--output: 'jsno' is not valid: did you mean json?"),
        ("queue -o csv=statee", "--output: 'statee' is not valid: did you mean state?"),
        ("queue --state runing_", "--state: 'runing_' is not valid: did you mean running? states of a session are"),
        ("nodes --state readi", "did you mean ready? states of a node are ready, unknown, not-ready, cordoned"),
        ("queue --watch --every soon", "--every: 'soon' is not valid"),
        ("events -f --sort kind", "--sort needs all events"),
    ],
)
def test_an_unknown_field_format_or_state_is_refused_before_the_server_is_asked(refused, fake, line, message):
    assert message in refused(line)
    assert ("GET", "/v1/sessions?state=open") not in fake.seen


def test_a_user_who_is_like_one_that_has_sessions_is_asked_after(capsys, sessions):
    assert main(["queue", "--user", "anne"]) == 0
    assert "warning: nothing of user 'anne' is listed: did you mean ann?" in capsys.readouterr().err


def test_one_user_is_chosen_in_one_way(refused, fake):
    assert "not allowed with argument" in refused("queue --me --user ann")


def test_columns_are_chosen_by_title_and_by_field(shown, sessions):
    assert shown("queue -o id,HELD/DESERVED,batch_size --sort id").splitlines() == [
        "ID        HELD/DESERVED  BATCH-SIZE",
        "notes     1/2                     1",
        "train-2   1/2                     1",
        "train-10  1/2                     1",
    ]
    assert "ID" not in shown("queue --no-header")


def test_run_times_and_time_limits_are_shown_and_sorted_as_numbers(shown, sessions, monkeypatch):
    monkeypatch.setattr("ullage.cli.sessions.seconds_between", lambda since: 100_000.0 - since)
    times = {"train-2": (99_880.0, 3600.0), "train-10": (20_000.0, 90_000.0), "notes": (None, 500.0)}
    for name, (since, limit) in times.items():
        sessions[name].running_since = since
        sessions[name].spec = msgspec.structs.replace(sessions[name].spec, task_timeout_s=limit)
    line = "queue --no-header -o id,time,time-limit,TIME_LEFT --sort"
    rows = [
        ["train-10", "22h13m", "1d01h", "2h46m"],
        ["train-2", "2m00s", "1h00m", "58m00s"],
        ["notes", "-", "8m20s", "8m20s"],
    ]
    assert [row.split() for row in shown(f"{line} -time").splitlines()] == rows
    assert [row.split() for row in shown(f"{line} -time-limit").splitlines()] == rows
    assert [row.split() for row in shown(f"{line} -timeleft").splitlines()] == rows
    assert [row.split() for row in shown(f"{line} TimeUsed").splitlines()] == [rows[1], rows[0], rows[2]]


def test_a_queue_fits_eighty_columns_and_keeps_the_run_times(sessions, fake):
    fake.reason = "insufficient-gpu"
    form = QUEUE.form(build_parser("queue").parse_args(["queue"]))
    titles, *rows = QUEUE.text(reach(start=False).sessions(), form, 80).splitlines()
    assert titles.split() == ["ID", "QUEUE", "OWNER", "STATE", "PENDING", "RUNNING", "TIME", "REASON"]
    assert all("…" not in row and len(row) <= 80 for row in rows)


def test_csv_has_all_columns_and_nothing_cut(shown, fake, sessions):
    fake.reason = 'the "first", of two'
    row = next(csv.DictReader(io.StringIO(shown("queue -o csv --sort id"))))
    assert (row["ID"], row["REASON"], row["WEIGHT"]) == ("notes", 'the "first", of two', "1")
    assert shown("queue -o csv=id,state --no-header --sort id").splitlines()[0] == "notes,idle"


def test_yaml_and_json_say_the_same(shown, sessions):
    assert yaml.safe_load(shown("queue -o yaml")) == json.loads(shown("queue -o json"))
    assert yaml.safe_load(shown("show session notes -o yaml")) == json.loads(shown("show session notes -o json"))


def test_what_a_verb_was_given_before_its_action_counts(shown, fake):
    assert json.loads(shown("apps -o json list")) == []


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)


@given(_VALUES)
def test_a_reader_of_yaml_finds_the_value_again(value):
    assert yaml.safe_load(yaml_text(value)) == value


@pytest.mark.parametrize(
    "text", ["yes", "No", "on", "~", "null", "1e3", "12:30:00", "0x1f", "- a", "a: b", "#", "=", "2026-01-01"]
)
def test_a_text_that_looks_like_something_else_stays_a_text(text):
    assert yaml.safe_load(yaml_text([text, {text: text}])) == [text, {text: text}]


def test_numbers_within_names_are_compared_as_numbers():
    assert sorted(["n10", "n9", "m", "n9b"], key=sort_key) == ["m", "n9", "n9b", "n10"]


def test_rows_without_a_value_come_last_in_both_directions(shown, fake):
    fake.gpus = [gpu("n1", n) for n in range(3)]
    fake.gpus[0] = msgspec.structs.replace(fake.gpus[0], model=None)
    for order in ("model", "-model"):
        assert names(shown(f"gpus -o name --sort {order}"))[-1] == "n1/0"


def test_cards_are_selected_by_use_and_by_their_users(shown, fake):
    fake.gpus = [gpu("n1", 0, holder("t", 1.0, "ann")), gpu("n1", 1, holder("s", 0.5, "bob")), gpu("n1", 2)]
    fake.gpus[2] = msgspec.structs.replace(fake.gpus[2], healthy=False)
    assert names(shown("gpus -o name --state full")) == ["n1/0"]
    assert names(shown("gpus -o name --state partial,unhealthy")) == ["n1/1", "n1/2"]
    assert names(shown("gpus -o name --user bob")) == ["n1/1"]


def test_cordoned_nodes_are_found(shown, fake):
    fake.nodes = [node("n1"), msgspec.structs.replace(node("n2"), cordoned=True)]
    assert names(shown("nodes -o name --state cordoned")) == ["n2"]
    assert names(shown("nodes -o name --state ready")) == ["n1", "n2"]


def test_failed_tasks_are_found_beyond_the_first_page(shown, fake, sessions):
    sessions["notes"].tasks[:] = [FakeTask(n, b"", None, "succeed") for n in range(1, 2002)]
    sessions["notes"].tasks[2000].state = "failed"
    assert names(shown("tasks notes -o name --state failed")) == ["notes/2001"]
    assert len(names(shown("tasks notes -o name"))) == 1000
    assert names(shown("tasks notes -o name --limit 2 --after 5")) == ["notes/6", "notes/7"]


# --- queues ---


def test_queues_are_drawn_below_their_parents():
    found, drawn = tree([queue("b1", "b"), queue("a"), queue("b"), queue("b2", "b"), queue("b1x", "b1")])
    assert [each.name for each in found] == ["a", "b", "b1", "b1x", "b2"]
    assert drawn == ["a", "b", "├─ b1", "│  └─ b1x", "└─ b2"]


def test_queues_are_set_changed_and_deleted(ran):
    code, out, _ = ran("queues set lab --weight 3 --guarantee gpu=1 --limit gpu=2")
    assert code == 0
    assert [line.split(maxsplit=1) for line in out.splitlines()[:5]] == [
        ["queue", "lab"],
        ["parent", "root"],
        ["weight", "3"],
        ["guarantee", "gpu=1"],
        ["limit", "gpu=2"],
    ]
    assert ran("show queue lab")[1] == out
    _, out, _ = ran("queues set lab-a --parent lab --default-resreq mem=2g --max-time 90m")
    shown = dict(re.split(r"  +", line) for line in out.splitlines())
    assert (shown["parent"], shown["longest time"], shown["limit"]) == ("lab", "1h30m", "-")
    assert (shown["default request"], shown["holds"]) == ("cpu=0,mem=2Gi,gpu=0", "cpu=0,mem=0,gpu=0")
    code, out, _ = ran("queues set lab --limit none -o json")
    body = json.loads(out)
    assert (body["weight"], body["guarantee"], body["limit"]) == (3, "gpu=1", None)
    _, out, _ = ran("queues")
    assert [line.split("  ")[0] for line in out.splitlines()[1:]] == ["default", "lab", "└─ lab-a"]
    assert ran("queues -o name --sort -name")[1].splitlines() == ["lab-a", "lab", "default"]
    assert ran("queues delete lab")[0] == 75
    assert [ran(f"queues delete {name}")[0] for name in ("lab-a", "lab")] == [0, 0]


def test_a_guarantee_above_what_all_nodes_have_is_warned_of_where_it_is_set_and_shown(ran, http):
    code, out, error = ran("queues set vast --guarantee gpu=100")
    assert (code, out.splitlines()[3].split()) == (0, ["guarantee", "gpu=100"])
    assert error.startswith("warning: queue vast is guaranteed gpu=100; all nodes together have gpu=")
    assert ran("queues")[2] == ran("show queue vast")[2] == error
    assert f"warning: {http.get('/v1/queues').json()[-1]['warnings'][0]}\n" == error
    assert ran("queues delete vast")[0] == 0
    assert ran("queues")[2] == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("queues set default", "nothing of it is to be changed: give one of --parent, --weight"),
        ("queues set lab --parent nosuch", "--parent: 'nosuch' is not valid: name an existing queue or root"),
        ("queues set lab --weight 0", "weight: 0 is not valid"),
        ("queues set lab --guarantee gpus=1", "did you mean gpu?"),
        ("queues delete nosuch", "queue nosuch does not exist"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_with_the_option(ran, line, message):
    code, _, error = ran(line)
    assert code == 2
    assert message in error


# --- watching ---


def next_line(stream):
    ready, _, _ = select.select([stream], [], [], 30)
    assert ready, "nothing was printed"
    return stream.readline().decode().rstrip("\n")


def test_a_watch_in_a_pipe_prints_what_has_changed_and_what_is_gone(fake, sessions):
    command = [*COMMAND, "queue", "-w", "--every", "0.05s", "-o", "id,state,age", "--sort", "id"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        assert [next_line(process.stdout).split()[:2] for _ in range(4)] == [
            ["ID", "STATE"],
            ["notes", "idle"],
            ["train-2", "running"],
            ["train-10", "pending"],
        ]
        sessions["train-10"].tasks[0].state = "running"
        assert next_line(process.stdout).split()[:2] == ["train-10", "running"]
        del sessions["train-2"]
        assert next_line(process.stdout) == "train-2 is gone"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_a_watch_of_json_prints_one_object_a_line(fake, sessions):
    with subprocess.Popen(
        [*COMMAND, "queue", "-w", "--every", "0.05", "-o", "json"], stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert [json.loads(next_line(process.stdout))["id"] for _ in range(3)] == ["train-2", "train-10", "notes"]
        del sessions["notes"]
        assert json.loads(next_line(process.stdout)) == {"gone": "notes"}
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_a_watch_on_a_terminal_draws_in_place_until_q(fake, sessions):
    own, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "queue", "-w", "--every", "0.05s"],
        stdin=terminal,
        stdout=terminal,
        env={**os.environ, "COLUMNS": "100"},
    )
    os.close(terminal)
    seen = b""
    try:
        while b"notes" not in seen:
            seen += os.read(own, 4096)
        sessions["train-99"] = FakeSession(CreateSession(application="function"), "train-99")
        while b"train-99" not in seen:
            seen += os.read(own, 4096)
        os.write(own, b"q")
        assert process.wait(30) == 0
        seen += os.read(own, 65536)
    finally:
        process.kill()
        os.close(own)
    assert b"\x1b[?1049h" in seen
    assert b"q quits" in seen
    _, _, left = seen.rpartition(b"\x1b[?1049l")
    assert b"train-99" in left
