"""Logs of programs on a real server: endless output and replaced files harm no other program."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest

from tests.system.live_server import LiveServer, wait_until
from ullage.client.stream import Message, read_messages
from ullage.wire.output_log import LogWriter

COMMAND = {"application": "command", "resreq": "cpu=1,mem=128m", "max_instances": 1}


def started(http: httpx2.Client, script: str, **body: object) -> str:
    """A session whose one program is this shell script."""
    answer = http.post("/v1/sessions", json={**COMMAND, **body})
    assert answer.status_code == 201, answer.text
    session = str(answer.json()["id"])
    program = {"argv": ["sh", "-c", script], "cwd": None, "env": {"PATH": "/usr/bin:/bin"}, "stdin": None}
    data = base64.b64encode(msgspec.msgpack.encode(program)).decode()
    http.post(f"/v1/sessions/{session}/tasks", json={"inputs": [data], "key": session}).raise_for_status()
    return session


def messages(http: httpx2.Client, session: str, follow: int = 1, **headers: str) -> list[Message]:
    answer = http.get(f"/v1/sessions/{session}/tasks/1/log?follow={follow}", headers=headers)
    answer.raise_for_status()
    return list(read_messages(answer.content.splitlines(keepends=True)))


def printed(found: list[Message]) -> bytes:
    return b"".join(base64.b64decode(message.data) for message in found if message.event == "stdout")


def ended(http: httpx2.Client, session: str) -> None:
    """The session has no task left, and is closed."""
    http.post(f"/v1/sessions/{session}/cancel").raise_for_status()

    def closed() -> bool:
        return http.get(f"/v1/sessions/{session}").json()["state"] == "closed"

    wait_until(closed, "the session closes")


def deleted(http: httpx2.Client, session: str) -> None:
    ended(http, session)
    wait_until(lambda: http.delete(f"/v1/sessions/{session}").status_code == 204, "the session is deleted")


def logs_of(server: LiveServer, session: str) -> list[Path]:
    return sorted((server.home / "logs/tasks").glob(f"{session}@*"))


@pytest.fixture
def endless(server: LiveServer, http: httpx2.Client) -> Iterator[tuple[str, list[Callable[[], object]]]]:
    """A program that prints for ever, and a reader that has seen a little of it and reads no more."""
    session = started(http, "exec yes")
    with (
        server.client() as reader,
        reader.stream("GET", f"/v1/sessions/{session}/tasks/1/log?follow=1") as answer,
    ):
        next(answer.iter_raw())
        yield session, [answer.close, reader.close]
    ended(http, session)


def test_a_stalled_reader_of_an_endless_log_blocks_no_other(http: httpx2.Client, endless):
    session, _ = endless
    for _ in range(50):
        assert http.get("/healthz").text == "ok"
        assert http.get(f"/v1/sessions/{session}").json()["running"] == 1


def test_a_reader_that_left_an_endless_log_blocks_no_other(http: httpx2.Client, endless):
    session, leave = endless
    for step in leave:
        step()
    for _ in range(50):
        assert http.get(f"/v1/sessions/{session}").json()["running"] == 1
    ended(http, session)
    assert messages(http, session, follow=0)[-1].event == "end"


def test_all_that_a_program_prints_is_streamed_once(http: httpx2.Client):
    session = started(http, "head -c 3000000 /dev/zero; echo last")
    found = messages(http, session)
    assert printed(found) == bytes(3_000_000) + b"last\n"
    assert found[-1].event == "end"


def test_a_log_is_resumed_at_the_position_of_any_message(http: httpx2.Client):
    session = started(http, "head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2")
    found = messages(http, session)
    for number, message in enumerate(found[:-1]):
        assert message.id is not None
        rest = messages(http, session, **{"Last-Event-ID": message.id})
        seen = [base64.b64decode(m.data) for m in [*found[: number + 1], *rest] if m.event in ("stdout", "stderr")]
        assert sum(map(len, seen)) == 400_000


def test_output_of_a_background_process_does_not_hold_a_reader(http: httpx2.Client):
    session = started(http, "yes & echo first")
    assert messages(http, session)[-1].event == "end"
    ended(http, session)


@pytest.mark.parametrize(
    "replace",
    ["mkfifo 1.out", "ln -s /dev/zero 1.out", "ln -s ../../../token 1.out"],
    ids=["fifo", "endless", "file of the server"],
)
def test_a_replacement_of_a_log_is_not_read(http: httpx2.Client, replace: str):
    name = f"replaces-{os.urandom(4).hex()}"
    session = started(http, f'cd "$ULLAGE_TASK_LOGS"/{name}@* && rm 1.out && {replace}', id=name)
    found = messages(http, session)
    assert [message.event for message in found] == ["note", "end"]
    assert found[0].data == "stdout is not shown: 1.out is not a regular file: what it was replaced by is not read"
    assert '"succeed"' in found[1].data


def test_a_log_that_its_program_made_huge_has_an_end(http: httpx2.Client):
    name = f"huge-{os.urandom(4).hex()}"
    session = started(http, f'cd "$ULLAGE_TASK_LOGS"/{name}@* && truncate -s 5T 1.out', id=name)
    found = messages(http, session)
    assert [message.event for message in found] == ["note", "end"]
    assert "more than a log has" in found[0].data


def test_a_reader_gets_the_number_of_bytes_that_a_log_dropped(server: LiveServer, http: httpx2.Client):
    session = started(http, "true")
    messages(http, session)
    (folder,) = logs_of(server, session)
    writer = LogWriter(folder, "1.out", limit=400)
    writer.write(b"x" * 1000 + b"last\n")
    writer.close()
    found = messages(http, session)
    assert found[0].event == "note"
    assert found[0].data == "700 bytes of stdout were dropped: a log has at most 1Gi"
    assert printed(found) == b"x" * 300 + b"last\n"


def test_the_logs_of_a_deleted_session_go_with_it(server: LiveServer, http: httpx2.Client):
    session = started(http, "echo secret", id="again")
    assert printed(messages(http, session)) == b"secret\n"
    assert len(logs_of(server, session)) == 1
    deleted(http, session)
    wait_until(lambda: not logs_of(server, session), "the logs are removed")


def test_a_new_session_of_an_id_shows_nothing_of_the_one_before(server: LiveServer, http: httpx2.Client):
    position = messages(http, started(http, "echo secret", id="twice"))[0].id
    assert position is not None
    kept = logs_of(server, "twice")[0]
    deleted(http, "twice")
    kept.mkdir(exist_ok=True)  # as if they could not be removed
    (kept / "1.out").write_text("secret\n")
    started(http, "echo new", id="twice")
    assert printed(messages(http, "twice")) == b"new\n"
    answer = http.get("/v1/sessions/twice/tasks/1/log", headers={"Last-Event-ID": position})
    assert answer.status_code == 404
    assert "another one has its id" in answer.json()["message"]


@pytest.mark.parametrize("position", ["x", "o1", "o-1e0", "o" + "9" * 5000 + "e0"])
def test_a_position_that_is_none_is_refused(http: httpx2.Client, position: str):
    session = started(http, "true")
    answer = http.get(f"/v1/sessions/{session}/tasks/1/log", headers={"Last-Event-ID": position})
    assert (answer.status_code, answer.json()["field"]) == (400, "Last-Event-ID")
