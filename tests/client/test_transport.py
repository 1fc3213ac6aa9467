"""Requests, their errors and their repetition."""

import socket
import threading

import pytest

from tests.fake_api import TOKEN
from ullage.client import transport as transport_module
from ullage.client.allocations import Allocations
from ullage.client.answer import error_of
from ullage.client.api import Api
from ullage.client.endpoint import ServerEndpoint
from ullage.client.patience import Patience
from ullage.client.silence import Silence
from ullage.client.transport import Transport
from ullage.model.error import AlreadyExists, Conflict, InvalidRequest, NotFound, UllageError, Unavailable
from ullage.wire.session import CreateSession, SubmitTasks


class Pauses:
    """Stands for `time.sleep`, and does something at the n-th pause."""

    def __init__(self, **at):
        self.taken = []
        self.at = at

    def __call__(self, seconds):
        self.taken.append(seconds)
        self.at.get(f"pause_{len(self.taken)}", lambda: None)()


@pytest.fixture
def api(fake):
    transport = Transport(lambda: ServerEndpoint(fake.url, TOKEN), sleep=Pauses())
    yield Api(transport)
    transport.close()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid-request", InvalidRequest),
        (422, "invalid-request", InvalidRequest),
        (404, "not-found", NotFound),
        (409, "already-exists", AlreadyExists),
        (409, "tasks-running", Conflict),
    ],
)
def test_each_status_has_its_error(fake, api, status, code, kind):
    fake.refuse = (status, code, "the text")
    with pytest.raises(kind, match="the text") as caught:
        api.server()
    assert (type(caught.value), caught.value.code) == (kind, code)


def test_a_wrong_token_gets_a_hint(fake):
    transport = Transport(lambda: ServerEndpoint(fake.url, "wrong"))
    with pytest.raises(InvalidRequest, match="ULLAGE_TOKEN") as caught:
        Api(transport).server()
    transport.close()
    assert caught.value.code == "unauthorized"


def test_an_expired_token_is_called_so_and_nothing_else(fake, api):
    fake.refuse = (401, "token-expired", "the token t of ann has expired")
    with pytest.raises(InvalidRequest) as caught:
        api.server()
    assert (caught.value.code, caught.value.message) == ("token-expired", "the token t of ann has expired")


def test_an_answer_that_is_not_from_ullage_is_shown():
    error = error_of(500, "text/html", b"<h1>boom</h1>")
    assert type(error) is UllageError
    assert "boom" in error.message


def test_a_busy_server_is_asked_again(fake, api):
    fake.refuse = (503, "unavailable", "starting")
    assert api.server().version == "0.1.0"


def test_a_lost_answer_is_asked_for_again(fake, api):
    fake.drop_answers = 2
    assert api.queues()[0].name == "default"
    assert len(fake.seen) == 3


def test_a_request_that_must_not_repeat_is_not_repeated_after_a_lost_answer(fake, api):
    fake.drop_answers = 1
    with pytest.raises(Unavailable, match="lost"):
        api.create_session(CreateSession(application="function"))
    assert len(fake.sessions) == 1


def test_a_connection_is_kept_and_one_that_broke_is_replaced(fake, api):
    api.server()
    own = api.transport._own.connection
    api.server()
    assert api.transport._own.connection is own
    own.sock.close()
    own.sock = None
    assert api.server().version == "0.1.0"


def test_a_server_that_comes_back_elsewhere_is_found(fake):
    place = [ServerEndpoint("http://127.0.0.1:1", TOKEN)]
    pauses = Pauses(pause_2=lambda: place.append(ServerEndpoint(fake.url, TOKEN)))
    transport = Transport(lambda: place[-1], sleep=pauses)
    assert Api(transport).server().version == "0.1.0"
    transport.close()
    assert len(pauses.taken) == 2


def test_patience_ends():
    patience = Patience(0.0, sleep=Pauses())
    with pytest.raises(Unavailable, match="gone"):
        patience.wait(Unavailable("gone"))


def test_pauses_grow():
    pauses = Pauses()
    patience = Patience(1e9, sleep=pauses)
    for _ in range(9):
        patience.wait(Unavailable("gone"))
    assert pauses.taken == sorted(pauses.taken)
    assert pauses.taken[0] < pauses.taken[-1] <= 1


@pytest.mark.parametrize("name", ["", "x/1", "../x", "a/../b?c", "x/", ".", 5, None])
def test_an_invalid_name_is_refused_before_it_is_part_of_a_path(fake, api, name):
    allocations = Allocations(api.transport)
    calls = (
        *(api.session, api.why, api.cancel_session, api.application, api.delete_application, api.topology, api.cordon),
        *(allocations.free, allocations.commit, allocations.gang, allocations.quota),
    )
    for call in calls:
        with pytest.raises(InvalidRequest, match="use 1 to 253 letters"):
            call(name)
    assert fake.seen == []


def test_a_value_that_json_cannot_carry_is_named(fake, api):
    with pytest.raises(InvalidRequest, match=r"priority: .* is not valid: a value of the type object cannot be sent"):
        api.create_session(CreateSession(application="function", priority=object()))
    assert fake.seen == []


def test_an_endpoint_does_not_show_its_token():
    assert "secret" not in repr(ServerEndpoint("http://h", "secret"))


def test_a_closed_transport_makes_no_connection_again(fake, api):
    api.server()
    api.transport.close()
    api.transport.close()
    before = len(fake.seen)
    for ask in (api.server, api.queues, lambda: list(api.log("s", 1, follow=True))):
        with pytest.raises(Conflict, match=r"the client is closed; create a new one with ullage\.connect") as caught:
            ask()
        assert caught.value.code == "client-closed"
    assert len(fake.seen) == before


class Clock:
    """Stands for the module `time`: a pause is the only thing that takes time."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def messages(monkeypatch):
    """Return the list of the messages about a server that does not answer."""
    messages = []
    monkeypatch.setattr(Silence, "show", messages.append)
    return messages


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("ullage.client.patience.time", clock)
    return clock


def test_a_wait_for_a_server_is_reported_once_within_a_second(home, messages, clock):
    transport = Transport(lambda: None, sleep=clock.sleep)
    with pytest.raises(Unavailable):
        Api(transport).server()
    assert messages == ["no server answers; waiting up to 59 s"]
    assert clock.now > 55


def test_a_new_wait_is_reported_again(fake, messages, clock):
    places = [None] * 7 + [ServerEndpoint(fake.url, TOKEN)] + [None] * 1000
    transport = Transport(lambda: places.pop(0), sleep=clock.sleep)
    api = Api(transport)
    api.server()
    transport.close_own()
    with pytest.raises(Unavailable):
        api.server()
    assert len(messages) == 2
    transport.close()


def test_a_server_of_tls_that_was_asked_in_plain_http_is_named_with_the_cure():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def alert() -> None:
            for _ in range(2):
                caller, _ = listener.accept()
                with caller:
                    caller.recv(65536)
                    caller.sendall(bytes.fromhex("15030100020246"))  # what OpenSSL answers: an alert

        thread = threading.Thread(target=alert)
        thread.start()
        transport = Transport(lambda: ServerEndpoint(f"http://127.0.0.1:{port}", TOKEN), 60.0)
        for ask in (Api(transport).server, lambda: list(Api(transport).log("s", 1, follow=True))):
            with pytest.raises(InvalidRequest, match=f"uses TLS; try https://127.0.0.1:{port}") as caught:
                ask()
            assert caught.value.code == "tls-needed"
        transport.close()
        thread.join()


def test_a_server_that_takes_a_request_and_does_not_answer_is_named_with_its_process(messages, monkeypatch):
    monkeypatch.setattr(transport_module, "UNANSWERED_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        url = f"http://127.0.0.1:{stopped.getsockname()[1]}"
        transport = Transport(lambda: ServerEndpoint(url, TOKEN, 7), 0.0, answer_s=0.01)
        with pytest.raises(Unavailable, match=r"\(process 7\) does not answer"):
            Api(transport).server()
        with pytest.raises(Unavailable, match=r"\(process 7\) does not answer"):
            list(Api(transport).log("s", 1, follow=True))
        transport.close()
    assert messages == [f"the server at {url} (process 7) does not answer; waiting up to 1 s"]


def test_closing_wakes_a_thread_that_follows_a_log(fake, api):
    released = threading.Event()
    api.create_session(CreateSession(application="command", id="s"))
    api.submit("s", SubmitTasks(inputs=[b""], key="k"))
    fake.logs["command"] = [("stdout", b"x", "1"), lambda *_: released.wait(60)]
    messages = (message for message in api.log("s", 1, follow=True) if message.event)
    next(messages)
    threading.Timer(0, api.transport.close).start()
    assert list(messages) == []
    assert not released.is_set()
    released.set()


def test_a_connection_that_the_server_ended_is_let_go(fake, api):
    api.server()
    api.transport._own.connection.close()
    api.server()
    assert len(api.transport._all) == 1
