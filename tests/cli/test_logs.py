"""`ullage logs` of programs and functions on a real server."""

from __future__ import annotations

import sys
import time

import cloudpickle
import pytest

import ullage
from tests.server.test_task_logs import started
from tests.system.live_server import wait_until

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests


@pytest.fixture
def client(http):
    with ullage.connect() as found:
        yield found


def ended(http, session):
    wait_until(lambda: http.get(f"/v1/sessions/{session}/tasks/1").json()["state"] == "succeed", "the program ends")
    return session


def test_tail_shows_the_last_lines_of_each_stream(ran, http):
    session = ended(http, started(http, "seq 100; echo error >&2; printf unfinished"))
    assert ran(f"logs --tail 3 {session}") == (0, "99\n100\nunfinished", "error\n")
    assert ran(f"logs --tail 0 {session}") == (0, "", "")
    assert ran(f"logs --tail 1000 {session}")[1].startswith("1\n2\n")


def test_since_shows_what_was_printed_lately(ran, http, server):
    session = ended(http, started(http, "echo old; sleep 2.2; echo new"))
    assert ran(f"logs --since 1h {session}")[1] == "old\nnew\n"
    printed = (server.home / "logs/tasks").glob(f"{session}@*/1.out")
    new = next(printed).stat().st_mtime
    assert ran(f"logs --since {int(time.time() - new) + 1} {session}")[1] == "new\n"


def test_a_part_that_makes_no_sense_is_refused_by_name(ran, http):
    assert "--tail" in ran("logs --tail -1 x")[2]
    assert "--since" in ran("logs --since yesterday x")[2]


def greet(name):
    print(f"hello {name}")  # noqa: T201  # its purpose
    print("careful", file=sys.stderr)  # noqa: T201  # its purpose
    return len(name)


def test_what_functions_print_is_read_by_task(ran, client):
    with client.session(resreq="cpu=1") as session:
        futures = [session.submit(greet, name) for name in ("Ada", "Bo")]
        assert [future.result() for future in futures] == [3, 2]
    assert ran(f"logs {session.id}/2") == (0, "hello Bo\n", "careful\n")
    assert b"".join(piece.data for piece in session.log(1) if piece.stream == "stdout") == b"hello Ada\n"
    assert [piece.data for piece in futures[1].log()] == [b"hello Bo\n", b"careful\n"]


@pytest.mark.parametrize("follow", ["", "-f "])
def test_logs_of_a_session_have_the_number_of_the_task_before_each_line(ran, client, follow):
    with client.session(resreq="cpu=1") as session:
        list(session.map(greet, ["a", "b", "c"]))
    code, out, error = ran(f"logs {follow}{session.id}")
    assert code == 0
    assert sorted(out.splitlines()) == ["[1] hello a", "[2] hello b", "[3] hello c"]
    assert sorted(error.splitlines()) == ["[1] careful", "[2] careful", "[3] careful"]


def test_a_map_shows_prints_while_it_runs(client, capsys):
    with client.session(resreq="cpu=1") as session:
        list(session.map(greet, ["earlier"]))
        assert list(session.map(greet, ["a", "bb"], logs=True)) == [1, 2]
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == ["[2] hello a", "[3] hello bb"]
    assert sorted(shown.err.splitlines()) == ["[2] careful", "[3] careful"]


def test_prints_arrive_before_the_task_ends(client, tmp_path):
    gate = tmp_path / "gate"

    def wait(path):
        print("waiting")  # noqa: T201  # its purpose
        while not path.exists():
            time.sleep(0.01)

    with client.session(resreq="cpu=1") as session:
        future = session.submit(wait, gate)
        for piece in session.logs(follow=True):
            assert (piece.task, piece.data) == (1, b"waiting\n")
            break
        assert not future.done()
        gate.touch()


def test_the_reason_of_an_end_is_in_the_log_and_the_program_may_clean_up_before(ran, http):
    script = "trap 'sleep 0.3; echo cleaned; exit 0' TERM; echo started; while :; do sleep 0.05; done"
    session = started(http, script, grace_s=30)
    wait_until(lambda: ran(f"logs {session}")[1] == "started\n", "the program starts")
    http.post(f"/v1/sessions/{session}/cancel").raise_for_status()
    wait_until(lambda: http.get(f"/v1/sessions/{session}").json()["state"] == "closed", "the session is closed")
    _, out, error = ran(f"logs {session}")
    assert out == "started\ncleaned\n"
    assert error.endswith("ullage: cancelled with its session\n")  # shells print that `sleep` was terminated


def test_a_program_that_ignores_the_signal_is_killed_after_the_grace_of_its_session(ran, http):
    script = "trap '' TERM; printf unfinished >&2; while :; do sleep 0.05; done"
    session = started(http, script, grace_s=0.2, task_timeout_s=1.0)
    wait_until(lambda: http.get(f"/v1/sessions/{session}/tasks/1").json()["state"] == "failed", "its time is over")
    assert ran(f"logs {session}")[2] == "unfinished\nullage: ran longer than its limit of 1 s\n"


def test_an_evicted_function_says_for_whom_and_waits_again(ran, http, client, tmp_path):
    def work():
        print("working")  # noqa: T201  # its purpose
        while not (tmp_path / "gate").exists():
            time.sleep(0.01)

    with client.session(resreq="gpu=4,cpu=0", retries=0) as session:
        future = session.submit(work)
        wait_until(lambda: ran(f"logs {session.id}")[1] == "working\n", "the function runs")
        http.post(f"/v1/sessions/{session.id}/requeue", json={}).raise_for_status()
        wait_until(lambda: "waits again" in ran(f"logs {session.id}")[2], "the reason is in the log")
        (tmp_path / "gate").touch()
        assert future.result(60) is None
    assert ran(f"logs {session.id}")[1] == "working\nworking\n"


def test_a_grace_above_the_most_is_refused_by_name(ran):
    code, _, error = ran("submit --grace 2h -- true")
    assert code == 2
    assert "grace_s" in error
    assert "policy.most_grace_s" in error


def test_logs_of_an_array_have_the_index_before_each_line(ran, http):
    code, out, error = ran("submit --array 5-7 --cpus 1 -- printenv ULLAGE_ARRAY_INDEX")
    assert code == 0, error
    session = out.strip()
    code, out, _ = ran(f"logs -f {session}")
    assert code == 0
    assert sorted(out.splitlines()) == ["[:5] 5", "[:6] 6", "[:7] 7"]
