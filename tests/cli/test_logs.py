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
