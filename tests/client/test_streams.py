"""Server-sent events, and the log of a task read through them."""

import threading

import pytest

from tests.fake_api import TOKEN
from ullage.client.api import Api
from ullage.client.endpoint import ServerEndpoint
from ullage.client.log import LogPiece, TaskLog
from ullage.client.stream import COMMENT, Message, read_messages
from ullage.client.transport import Transport
from ullage.model.error import NotFound, Unavailable
from ullage.wire.session import CreateSession, SubmitTasks


class Clock:
    """Stands for the module `time`."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def api(fake):
    transport = Transport(lambda: ServerEndpoint(fake.url, TOKEN), sleep=lambda _: None)
    yield Api(transport)
    transport.close()


@pytest.fixture
def session(api):
    session = api.create_session(CreateSession(application="command")).id
    api.submit(session, SubmitTasks(inputs=[b""], key="k"))
    return session


def lines(text):
    return [f"{line}\n".encode() for line in text.split("\n")]


def test_fields_comments_and_several_lines_of_data_are_read():
    text = ": ping\nevent: a\ndata: one\ndata:two\nid: 7\n\ndata: x\n\n"
    assert list(read_messages(lines(text))) == [
        Message(COMMENT, "", None),
        Message("a", "one\ntwo", "7"),
        Message("message", "x", "7"),
    ]


def test_windows_line_ends_are_read():
    assert list(read_messages([b"data: x\r\n", b"\r\n"])) == [Message("message", "x", None)]


def test_a_message_that_is_cut_off_is_not_given():
    assert list(read_messages([b"data: x\n"])) == []


def test_a_log_gives_exact_bytes_of_both_streams(fake, api, session):
    fake.logs["command"] = [("stdout", b"\xff\x00\n", "o3e0"), ("stderr", b"oops", "o3e4")]
    log = TaskLog(api, session, 1, follow=True)
    assert list(log) == [LogPiece("stdout", b"\xff\x00\n"), LogPiece("stderr", b"oops")]
    assert log.ended is not None
    assert log.ended.task == 1


def test_a_log_goes_on_where_the_connection_broke(fake, api, session):
    fake.logs["command"] = [("stdout", b"one", "o3e0"), None, None, ("stdout", b"two", "o6e0")]
    assert [piece.data for piece in TaskLog(api, session, 1, follow=True)] == [b"one", b"two"]
    assert fake.last_event_ids == [None, "o3e0", "o3e0"]


def test_a_log_that_was_quiet_for_long_goes_on_after_a_restart(fake, api, session, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("ullage.client.log.time", clock)
    monkeypatch.setattr("ullage.client.patience.time", clock)
    fake.logs["command"] = [lambda *_: clock.sleep(1000), None, ("stdout", b"two", "o3e0")]
    assert [piece.data for piece in TaskLog(api, session, 1, follow=True)] == [b"two"]


def test_a_server_that_falls_silent_within_a_log_is_noticed_and_said_and_the_log_goes_on(
    fake, api, session, monkeypatch
):
    clock, awake, notes = Clock(), threading.Event(), []
    monkeypatch.setattr("ullage.client.patience.time", clock)
    monkeypatch.setattr("ullage.client.transport.STALLED_S", 0.05)

    def fall_silent(*_):
        fake.logs["command"].append(("stdout", b"two", "o6e0"))  # for the next connection
        awake.wait(60)

    fake.logs["command"] = [("stdout", b"one", "o3e0"), fall_silent]
    log = TaskLog(api, session, 1, follow=True, on_note=notes.append)
    assert [piece.data for piece in log] == [b"one", b"two"]
    assert not awake.is_set()
    awake.set()
    assert fake.last_event_ids == [None, "o3e0"]
    assert notes == [f"the server at {fake.url} does not answer; waiting up to 60 s"]


def test_a_caller_hears_at_once_that_the_server_of_a_log_is_gone(fake, api, session, monkeypatch):
    clock, notes = Clock(), []
    monkeypatch.setattr("ullage.client.patience.time", clock)
    transport = Transport(api.transport._locate, sleep=clock.sleep)
    log = iter(TaskLog(Api(transport), session, 1, follow=True, on_note=notes.append))
    fake.logs["command"] = [("stdout", b"one", "o3e0"), None]
    assert next(log).data == b"one"
    monkeypatch.setattr(transport, "_locate", lambda: None)
    with pytest.raises(Unavailable, match="no server is running"):
        next(log)
    assert notes == ["no server answers; waiting up to 59 s"]


def test_the_log_of_an_unknown_task_is_not_found(api, session):
    with pytest.raises(NotFound):
        list(TaskLog(api, session, 9, follow=False))
