"""Work under a session, against a server without a scheduler."""

import io
import os
import re
import sys
import threading
import warnings
from concurrent.futures import CancelledError, Future, as_completed, wait
from contextlib import suppress
from functools import partial

import pytest

import ullage
from tests.system.live_server import wait_until
from ullage.client import exchange, pickling
from ullage.client.outstanding import BATCH_TASKS
from ullage.model.error import DiskFull, InvalidRequest, NotFound
from ullage.model.request import ResourceRequirement
from ullage.wire.session import CancelTasks, UpdateSession


@pytest.fixture
def client(fake):
    with ullage.connect() as client:
        yield client


class Custom(Exception):
    def __init__(self, left, right):
        super().__init__(left, right)


class Unpicklable(Exception):
    def __init__(self):
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class OtherArguments(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")
        self.code = code


shared_lock = threading.Lock()


def square(number):
    return number * number


def fail_with(error):
    raise error


def test_a_function_returns_its_value(client):
    with client.session() as session:
        future = session.submit(divmod, 17, 5)
        assert isinstance(future, Future)
        assert future.result() == (3, 2)
        assert future.task == 1


def test_a_session_is_deleted_after_its_work(fake, client):
    session = client.session("s")
    future = session.submit(square, 3)
    session.delete()
    assert future.result() == 9
    assert fake.sessions == {}
    with pytest.raises(NotFound):
        client.delete_session("s")


def test_a_full_disk_of_the_server_is_reported_at_once(fake, client):
    session = client.session("s")
    fake.refuse = (507, "disk-full", "the disk of the server is full")
    with pytest.raises(DiskFull, match="disk of the server is full"):
        session.submit(square, 3).result()
    assert session.submit(square, 3).result() == 9
    fake.refuse = (507, "disk-full", "the disk of the server is full")
    with pytest.raises(DiskFull):
        client.delete_session("s")


def test_warnings_of_the_server_are_warnings_of_the_caller(fake, client):
    fake.warnings = ["no node here can align it"]
    for make in (client.session, client.open_session):
        with pytest.warns(UserWarning, match="no node here can align it") as caught:
            make(f"of-{make.__name__}", queue="default")
        assert [warning.filename for warning in caught] == [__file__]


def test_keyword_arguments_and_a_closure_travel(client):
    offset = 10
    with client.session() as session:
        assert session.submit(lambda a, *, b: a + b + offset, 1, b=2).result() == 13


def test_the_exception_of_a_task_keeps_its_type_and_its_traceback(client):
    with client.session() as session:
        future = session.submit(fail_with, Custom(1, 2))
        with pytest.raises(Custom) as caught:
            future.result()
    assert caught.value.args == (1, 2)
    assert "in fail_with" in caught.value.__notes__[0]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("stop"), BaseException("b"), GeneratorExit()])
def test_a_base_exception_of_a_function_is_raised_unchanged(client, error):
    with client.session() as session:
        future = session.submit(fail_with, error)
        with pytest.raises(type(error)) as caught:
            future.result()
        assert caught.value.args == error.args
        assert getattr(caught.value, "code", None) == getattr(error, "code", None)


def test_an_exception_that_cannot_travel_is_a_task_failed_with_its_text(client):
    with client.session() as session, pytest.raises(ullage.TaskFailed, match="Unpicklable") as caught:
        session.submit(lambda: fail_with(Unpicklable())).result()
    assert caught.value.code == 1


def fail_because_of(make_cause):
    try:
        fail_with(make_cause())
    except Exception as error:
        raise OtherArguments(code=7) from error


@pytest.mark.parametrize(
    ("make_cause", "kind", "args"),
    [
        (partial(ValueError, "deep"), ValueError, ("deep",)),
        (partial(OtherArguments, code=3), OtherArguments, ("code 3",)),
        (partial(Custom, 1, 2), Custom, (1, 2)),
    ],
)
def test_an_exception_comes_back_with_its_fields_and_its_cause(client, make_cause, kind, args):
    with client.session() as session, pytest.raises(OtherArguments, match="code 7") as caught:
        session.submit(fail_because_of, make_cause).result()
    error = caught.value
    assert error.code == 7
    assert "In the worker" in error.__notes__[0]
    assert (type(error.__cause__), error.__cause__.args) == (kind, args)
    assert error.__context__ is error.__cause__
    assert error.__suppress_context__


def test_a_cause_that_cannot_travel_leaves_its_text(client):
    with client.session() as session, pytest.raises(OtherArguments) as caught:
        session.submit(lambda: fail_because_of(Unpicklable)).result()
    assert isinstance(caught.value.__cause__, ullage.TaskFailed)
    assert str(caught.value.__cause__) == "Unpicklable: holds a lock"


def fail_together():
    first = OtherArguments(code=1)
    first.__cause__ = OtherArguments(code=2)
    raise Together([first, ValueError("x"), ExceptionGroup("within", [OtherArguments(code=3)])], code=7)


class Together(ExceptionGroup):
    """A group that is made with other arguments than its message and members."""

    def __new__(cls, members, code):
        return super().__new__(cls, "together", members)

    def __init__(self, members, code):
        super().__init__("together", members)
        self.code = code


def test_the_members_of_a_group_come_back_with_their_fields_and_causes(client):
    with client.session() as session, pytest.raises(Together) as caught:
        session.submit(fail_together).result()
    group = caught.value
    assert (group.message, group.code) == ("together", 7)
    first, second, within = group.exceptions
    assert (first.code, first.__cause__.code) == (1, 2)
    assert (type(second), second.args) == (ValueError, ("x",))
    assert within.exceptions[0].code == 3


def test_a_member_that_cannot_travel_leaves_its_text_and_the_others_come_whole(client):
    with client.session() as session, pytest.raises(ExceptionGroup) as caught:
        session.submit(lambda: fail_with(ExceptionGroup("two", [Unpicklable(), OtherArguments(code=4)]))).result()
    lost, other = caught.value.exceptions
    assert (type(lost), str(lost)) == (ullage.TaskFailed, "Unpicklable: holds a lock")
    assert other.code == 4


async def double(number):
    return 2 * number


def test_a_coroutine_function_runs_to_its_end(client):
    with client.session() as session:
        assert session.submit(double, 4).result() == 8
        assert list(session.map(double, range(3))) == [0, 2, 4]


def test_a_future_knows_whether_its_task_runs(fake, client):
    fake.hold = True
    with client.session() as session:
        future = session.submit(square, 3)
        assert not future.running()
        known(future)
        assert not future.running()
        fake.sessions[session.id].tasks[0].state = "running"
        assert future.running()
        fake.sessions[session.id].tasks[0].state = "pending"
        fake.release()
        assert future.result() == 9
        assert not future.running()


def test_an_unpicklable_argument_is_named(client):
    lock = threading.Lock()
    with client.session() as session:
        with pytest.raises(InvalidRequest, match=r"function: its global shared_lock \(lock\) cannot be sent"):
            session.submit(lambda: str(shared_lock))
        with pytest.raises(InvalidRequest, match=r"function: its variable lock \(lock\) cannot be sent"):
            session.submit(lambda: lock)
        with pytest.raises(InvalidRequest, match=r"arguments: argument 2 \(lock\) cannot be sent"):
            session.submit(divmod, 1, lock)
        with pytest.raises(InvalidRequest, match=r"arguments: key \(lock\) cannot be sent"):
            session.submit(sorted, [1], key=lock)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prioriti": 3}, "prioriti: 3 is not valid: did you mean priority?"),
        ({"resources": "gpu=1"}, "resources: 'gpu=1' is not valid: "),
        ({"queue": "default", "max_instance": 2}, "did you mean max_instances?"),
    ],
)
def test_an_unknown_option_is_refused_before_a_session_is_made(fake, client, options, message):
    for make in (client.session, lambda **given: client.open_session("x", **given), ullage.Executor):
        with pytest.raises(InvalidRequest, match=re.escape(message)) as refused:
            make(**options)
        assert "The options of a session are application, resreq, queue" in str(refused.value)
    assert fake.sessions == {}


def test_a_request_that_no_node_can_hold_is_refused_unless_one_waits_for_such_a_node(fake, client):
    fake.reason = "unplaceable"
    with pytest.raises(ullage.Unplaceable):
        client.session("large", resreq="gpu=9")
    assert "large" not in fake.sessions
    with pytest.raises(ullage.Unplaceable):
        client.open_session("shared", resreq="gpu=9")
    assert client.session("patient", resreq="gpu=9", wait=True).status().state == "open"
    assert client.open_session("shared").id == "shared"


def test_map_keeps_the_order_and_ends_with_the_shortest_iterable(client):
    with client.session() as session:
        assert list(session.map(pow, [2, 3, 4], [5, 2])) == [32, 9]


def test_map_sends_many_tasks_in_few_requests(fake, client):
    count = 3 * BATCH_TASKS
    with client.session() as session:
        assert list(session.map(square, range(count))) == [n * n for n in range(count)]
    submissions = [path for method, path in fake.seen if method == "POST" and path.endswith("/tasks")]
    assert len(submissions) < count / 10
    assert len(fake.sessions[session.id].tasks) == count


def test_map_in_chunks_makes_fewer_tasks(fake, client):
    with client.session() as session:
        assert list(session.map(square, range(10), chunksize=4)) == [n * n for n in range(10)]
    assert len(fake.sessions[session.id].tasks) == 3


def test_unordered_map_gives_every_result_once(client):
    with client.session() as session:
        assert sorted(session.map(square, range(50), ordered=False)) == [n * n for n in range(50)]


def test_map_raises_the_first_failure_in_its_place(client):
    with client.session() as session:
        results = session.map(lambda n: 1 // n, [1, 0, 1])
        assert next(results) == 1
        with pytest.raises(ZeroDivisionError):
            next(results)


@pytest.mark.parametrize("ordered", [True, False])
def test_map_with_a_timeout_gives_up(fake, client, ordered):
    fake.hold = True
    with client.session() as session:
        with pytest.raises(TimeoutError):
            next(session.map(square, [1], ordered=ordered, timeout=0))
        fake.release()


@pytest.mark.parametrize("wrong", [{"chunksize": 0}, {"chunksize": "2"}, {"chunksize": 1.5}, {"timeout": "1"}])
def test_a_chunksize_or_a_timeout_that_is_none_is_refused(client, wrong):
    with client.session() as session, pytest.raises(ullage.InvalidRequest, match=next(iter(wrong))):
        session.map(square, [1], **wrong)


def test_progress_draws_nothing_where_there_is_no_terminal(client, capfd):
    with client.session() as session:
        assert list(session.map(square, range(3), progress=True)) == [0, 1, 4]
    assert capfd.readouterr() == ("", "")


def test_progress_counts_in_a_terminal(client, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    with client.session() as session:
        assert list(session.map(square, range(3), progress=True)) == [0, 1, 4]
    assert "3/3" in terminal.getvalue()


def test_raw_tasks_carry_bytes_both_ways(client):
    with client.session(application="shout") as session:
        assert session.invoke(b"\x00abc") == b"\x00ABC"
        assert session.run(b"x").result() == b"X"


def test_a_raw_task_that_fails_shows_code_text_and_output(fake, client):
    fake.hold = True
    with client.session(application="shout") as session:
        future = session.run(b"x")
        known(future)
        stored = fake.sessions[session.id]
        fake.end(stored, stored.tasks[0], "failed", 9, b"half", "out of paper")
        with pytest.raises(ullage.TaskFailed, match="out of paper") as caught:
            future.result()
    assert (caught.value.code, caught.value.output) == (9, b"half")


def known(future):
    """Wait until the server has taken the task of `future`."""
    assert future._server._outstanding.task_of(future) is not None


def test_futures_work_with_the_standard_helpers(client):
    with client.session() as session:
        futures = [session.submit(square, n) for n in range(5)]
        assert {future.result() for future in as_completed(futures)} == {0, 1, 4, 9, 16}


def test_cancelling_a_future_cancels_its_task_at_the_server(fake, client):
    fake.hold = True
    with client.session() as session:
        future = session.submit(square, 1)
        assert future.cancel()
        assert future.cancelled()
        wait([future], timeout=60)
        with pytest.raises(CancelledError):
            future.result()
    assert all(task.state == "cancelled" for task in fake.sessions[session.id].tasks)


def test_a_future_that_has_ended_cannot_be_cancelled(client):
    with client.session() as session:
        future = session.submit(square, 3)
        assert future.result() == 9
        assert not future.cancel()


def test_a_task_cancelled_by_another_client_is_a_cancelled_future(fake, client):
    fake.hold = True
    session = client.session()
    future = session.submit(square, 1)
    known(future)
    client._api.cancel_session(session.id)
    with pytest.raises((CancelledError, ullage.Conflict)):
        future.result(60)
    session.cancel()


def test_leaving_the_block_waits_for_submitted_tasks_and_closes(fake, client):
    with client.session() as session:
        futures = [session.submit(square, n) for n in range(20)]
    assert all(future.done() for future in futures)
    assert fake.sessions[session.id].state == "closed"


def test_an_exception_in_the_block_cancels_the_session(fake, client):
    fake.hold = True
    futures = []
    with pytest.raises(LookupError), client.session() as session:
        fail_with(futures.append(session.submit(square, 1)) or LookupError())
    assert futures[0].cancelled()
    assert ("POST", f"/v1/sessions/{session.id}/cancel") in fake.seen


def test_an_exception_in_the_block_is_not_hidden_by_the_server(fake, client):
    with pytest.raises(LookupError), client.session():
        fail_with(setattr(fake, "refuse", (409, "conflict", "not now")) or LookupError())


def test_a_closed_session_takes_no_more_work(client):
    with client.session() as session:
        pass
    with pytest.raises(ullage.Conflict, match="closed"):
        session.submit(square, 1)


@pytest.mark.parametrize("chunksize", [1, 2])
def test_an_uncallable_argument_is_refused_before_it_is_sent(fake, client, chunksize):
    session = client.session()
    with pytest.raises(ullage.InvalidRequest, match="function: 9 is not valid: give the function itself"):
        session.submit(square(3))
    with pytest.raises(ullage.InvalidRequest, match="function: 9 is not valid"):
        session.map(square(3), [1, 2], chunksize=chunksize)
    assert not fake.sessions[session.id].tasks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task_timeout_s": float("nan")}, "task_timeout_s: nan is not valid: a number of seconds is needed"),
        ({"task_timeout_s": float("inf")}, "task_timeout_s: inf is not valid: .* omit it for no limit"),
        ({"common_data": "text"}, "common_data: 'text' is not valid: bytes are needed, not str"),
    ],
)
def test_values_that_would_come_as_others_are_refused(fake, client, options, message):
    with pytest.raises(ullage.InvalidRequest, match=message):
        client.session(**options)
    with client.session() as session, pytest.raises(ullage.InvalidRequest, match="data: 'x' is not valid: bytes"):
        session.run("x")
    assert len(fake.sessions) == 1


def test_a_refusal_has_a_fitting_request_as_a_note(fake, client):
    fake.reason = "unplaceable"
    with pytest.raises(ullage.Unplaceable) as caught:
        client.session(resreq="gpu=8")
    assert caught.value.__notes__ == [f"what would help: {'; '.join(caught.value.suggestions)}"]


def test_more_than_a_request_holds_is_refused_before_it_is_sent(fake, client, monkeypatch):
    monkeypatch.setattr(pickling, "MOST_INPUT", 5000)
    session = client.session()
    with pytest.raises(
        ullage.InvalidRequest, match=r"take 6,\d+ bytes, at most 5,000 can be sent; write them to a file"
    ):
        session.submit(len, b"x" * 6000)
    with pytest.raises(ullage.InvalidRequest, match="can be sent"):
        session.run(b"x" * 6000)
    assert session.submit(len, b"x" * 4000).result() == 4000


def test_a_result_that_cannot_be_sent_is_named_as_the_result(client):
    with client.session() as session, pytest.raises(TypeError, match=r"the result \(lock\) cannot be sent back: "):
        session.submit(threading.Lock).result()


@pytest.mark.parametrize("reason", ["bind-failures", "unplaceable"])
def test_who_waits_for_results_is_warned_of_a_reason_that_does_not_pass(fake, client, monkeypatch, reason):
    monkeypatch.setattr(exchange, "POLL_S", 0.0)
    fake.hold, fake.reason = True, reason
    session = client.session(wait=True)
    warned = threading.Event()
    monkeypatch.setattr(warnings, "warn", lambda text, **_: (shown.append(text), warned.set()))
    shown = []
    future = session.submit(square, 2)
    assert warned.wait(30)
    fake.hold = False
    fake.reason = None
    assert shown[0].startswith(f"session {session.id} waits: ")
    assert future.cancel() or future.result(30) == 4
    session.cancel()


def test_who_waits_for_results_is_warned_once_of_why_nothing_runs(fake, client, monkeypatch):
    monkeypatch.setattr(exchange, "POLL_S", 0.0)
    fake.hold, fake.reason = True, "insufficient-gpu"
    shown = []
    monkeypatch.setattr(warnings, "warn", lambda text, **_: shown.append(text))
    session = client.session()
    results = session.map(square, [2, 3])
    wait_until(lambda: shown, "the warning")
    before = len(fake.seen)
    wait_until(lambda: len(fake.seen) > before + 20, "it waits on")
    assert shown == [f"session {session.id} waits: 0 of 4 gpus are free; ask for gpu=0"]
    session.cancel()
    with pytest.raises(CancelledError):
        next(results)


def test_a_program_that_makes_warnings_errors_still_gets_its_results(fake, client, monkeypatch, capfd):
    monkeypatch.setattr(exchange, "POLL_S", 0.0)
    fake.hold, fake.reason = True, "insufficient-gpu"
    session = client.session()
    future = session.submit(square, 2)
    before = len(fake.seen)
    wait_until(lambda: len(fake.seen) > before + 20, "it waits on")
    assert not future.done()
    session.cancel()
    assert f"warning: session {session.id} waits: 0 of 4 gpus are free" in capfd.readouterr().err


def test_a_session_that_runs_something_gives_no_warning(fake, client, monkeypatch):
    monkeypatch.setattr(exchange, "POLL_S", 0.0)
    fake.hold = True
    shown = []
    monkeypatch.setattr(warnings, "warn", lambda text, **_: shown.append(text))
    session = client.session()
    future = session.submit(square, 2)
    wait_until(lambda: fake.sessions[session.id].tasks, "the task arrives")
    fake.sessions[session.id].tasks[0].state = "running"
    fake.reason = "insufficient-gpu"
    before = len(fake.seen)
    wait_until(lambda: len(fake.seen) > before + 20, "it polls")
    assert shown == []
    session.cancel()
    assert future.cancelled()


def test_a_closed_client_takes_no_more_work(fake, client):
    session = client.session()
    client.close()
    for ask in (lambda: session.submit(square, 1), session.status, session.close, client.nodes, client.session):
        with pytest.raises(ullage.Conflict, match="the client is closed"):
            ask()
    assert len(fake.sessions) == 1


def in_a_fork(work):
    """Return as text what `work` returns in a fork of this process, or the exception that it raises."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            text = repr(work())
        except BaseException as error:  # noqa: BLE001 - a fork must not go on with the test
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.waitpid(child, 0)
    return text


def test_a_fork_cannot_use_the_client_of_its_parent_and_does_not_wait(fake, client):
    fake.hold = True
    with client.session() as session:
        future = session.submit(square, 3)
        uses = (
            lambda: session.submit(square, 4),
            future.result,
            future.exception,
            future.cancel,
            session.wait,
            session.close,
            session.cancel,
            session.cancel_pending,
            session.status,
            client.sessions,
            lambda: wait([future]),
            lambda: list(as_completed([future])),
        )
        for use in uses:
            assert "created before a fork" in in_a_fork(use)
        fake.release()
        assert future.result(60) == 9


def test_the_end_of_a_fork_leaves_the_session_and_the_connections_of_its_parent(fake, client):
    with client.session() as session:
        assert session.submit(square, 3).result(60) == 9

        def leave():
            with session:
                pass
            with suppress(SystemExit), session:
                raise SystemExit
            client.close()
            client._api.transport.__del__()
            return "left"

        assert in_a_fork(leave) == "'left'"
        assert fake.sessions[session.id].state == "open"
        assert session.submit(square, 4).result(60) == 16


def test_the_end_of_a_fork_leaves_the_executor_of_its_parent(fake):
    with ullage.Executor() as executor:
        assert in_a_fork(executor.shutdown) == "None"
        assert executor.submit(square, 4).result(60) == 16


def test_futures_of_a_client_that_is_closed_end_at_once(fake, client):
    fake.hold = True
    session = client.session()
    future = session.submit(square, 1)
    known(future)
    client.close()
    with pytest.raises(ullage.Conflict, match="the client is closed"):
        future.result(10)


def test_a_session_closed_by_another_client_refuses_through_the_future(fake, client):
    session = client.session()
    fake.cancel(fake.sessions[session.id])
    with pytest.raises(ullage.Conflict) as caught:
        session.submit(square, 1).result(60)
    assert caught.value.code == "session-closed"
    session.cancel()


def test_a_lost_answer_submits_nothing_twice(fake, client):
    session = client.session()
    fake.drop_answers = 1
    assert session.submit(square, 7).result() == 49
    assert len(fake.sessions[session.id].tasks) == 1
    session.close()


def test_lost_result_requests_are_repeated(fake, client):
    session = client.session()
    fake.drop_answers = 4
    assert list(session.map(square, range(10))) == [n * n for n in range(10)]
    session.close()


def test_an_opened_session_stays_open_and_ignores_earlier_results(fake, client):
    with client.open_session("shared", application="function") as first:
        assert first.submit(square, 2).result() == 4
    with client.open_session("shared") as second:
        assert second.submit(square, 3).result() == 9
        assert [task.task for task in second.tasks()] == [1, 2]
    assert fake.sessions["shared"].state == "open"


def test_two_clients_of_one_session_get_their_own_results(client):
    with client.open_session("shared", priority=1) as first, client.open_session("shared") as second:
        mine, theirs = first.map(square, range(100)), second.map(str, range(100))
        assert list(mine) == [n * n for n in range(100)]
        assert list(theirs) == [str(n) for n in range(100)]


def test_opening_an_unknown_session_without_options_is_not_found(client):
    with pytest.raises(ullage.NotFound):
        client.open_session("nowhere")


def test_a_name_that_is_taken_is_refused(client):
    with client.session("mine"), pytest.raises(ullage.AlreadyExists):
        client.session("mine")


@pytest.mark.parametrize(
    "resreq",
    [ResourceRequirement.of(cpu=2, memory="4g", gpu=1), "cpu=2,mem=4g,gpu=1", {"cpu": 2, "memory": "4g", "gpu": 1}],
)
def test_a_requirement_is_an_object_a_text_or_a_mapping(fake, client, resreq):
    with client.session(resreq=resreq):
        assert fake.bodies[-1].resreq == "cpu=2,mem=4Gi,gpu=1"


def test_functions_run_with_the_callers_interpreter_and_scripts(fake, client, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setattr(sys, "path", ["/scripts", *sys.path])
    with client.session(environment={"A": "b"}):
        setup = fake.bodies[-1].setup
    assert setup.python == sys.executable
    assert setup.environment == {"A": "b", "PYTHONPATH": f"/scripts{os.pathsep}/elsewhere"}


def test_other_applications_are_left_to_their_own_set_up(fake, client):
    with client.session(application="shout"):
        assert (fake.bodies[-1].setup.python, fake.bodies[-1].setup.environment) == (None, {})


def test_an_update_sends_only_changed_fields(fake, client):
    with client.session() as session:
        session.update(priority=5, max_instances=None)
        assert fake.bodies[-1] == UpdateSession(priority=5, max_instances=None)


def test_what_an_update_can_never_satisfy_is_a_warning_of_the_caller(fake, client):
    with client.session() as session:
        fake.warnings = ["min_instances 9 is more than that"]
        with pytest.warns(UserWarning, match="min_instances 9 is more than that") as caught:
            session.update(min_instances=9)
        assert [warning.filename for warning in caught] == [__file__]


def test_why_and_status_are_asked_of_the_server(client):
    with client.session() as session:
        assert session.why().session == session.id
        assert session.status().state == "open"


def test_the_executor_facade_is_a_drop_in(fake):
    with ullage.Executor(max_instances=2) as executor:
        assert executor.submit(square, 4).result() == 16
        assert list(executor.map(square, range(5), chunksize=2)) == [0, 1, 4, 9, 16]
    assert fake.sessions[executor.session.id].state == "closed"
    with pytest.raises(RuntimeError):
        executor.submit(square, 1)


def test_shutdown_of_the_executor_can_cancel_waiting_tasks(fake):
    fake.hold = True
    executor = ullage.Executor()
    futures = [executor.submit(square, n) for n in range(3)]
    executor.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)


def test_shutdown_without_waiting_leaves_the_rest_to_a_thread(fake):
    fake.hold = True
    executor = ullage.Executor()
    future = executor.submit(square, 5)
    executor.shutdown(wait=False)
    assert not future.done()
    known(future)
    fake.release()
    assert future.result() == 25
    next(thread for thread in threading.enumerate() if thread.name == "ullage-shutdown").join()


def test_a_cancelled_future_ends_once(fake, client, caplog):
    fake.hold = True
    with client.session("s") as session:
        cancelled, other = session.submit(square, 2), session.submit(square, 3)
        assert cancelled.cancel()
        fake.release()
        assert other.result() == 9
        assert wait([cancelled]).done == {cancelled}
    assert caplog.messages == []


def take_one_and_leave(results):
    for _ in results:
        break


def take_a_failure(results):
    with pytest.raises(ZeroDivisionError):
        list(results)


def take_none_in_time(results):
    with pytest.raises(TimeoutError):
        list(results)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("chunksize", [1, 2])
@pytest.mark.parametrize(
    ("first", "take", "timeout"),
    [(1, take_one_and_leave, None), (0, take_a_failure, None), (None, take_none_in_time, 0.01)],
)
def test_remaining_calls_are_cancelled_after_a_failure_a_timeout_or_a_break(
    fake, client, ordered, chunksize, first, take, timeout
):
    fake.hold = True
    with client.session("s") as session:
        numbers = [1 if first is None else first] * chunksize + [1] * 6
        results = session.map(invert, numbers, ordered=ordered, chunksize=chunksize, timeout=timeout)
        tasks = fake.sessions["s"].tasks
        session._exchange._outstanding.task_of(session._exchange._outstanding.futures()[0])
        if first is not None:
            fake.work(fake.sessions["s"], tasks[0])
        take(results)
        del results
        assert session.wait(60)
    assert {task.state for task in tasks[0 if first is None else 1 :]} <= {"cancelled"}


def cancelled_together(fake):
    """Return the tasks of each request that cancels several."""
    return [body.tasks for body in fake.bodies if isinstance(body, CancelTasks)]


def test_remaining_calls_are_cancelled_in_few_requests_the_last_ones_first(fake, client, monkeypatch):
    monkeypatch.setattr("ullage.client.api.MOST_CANCELLED", 4)
    fake.hold = True
    with client.session("s") as session:
        results = session.map(square, range(10))
        session._exchange._outstanding.task_of(session._exchange._outstanding.futures()[-1])
        fake.work(fake.sessions["s"], fake.sessions["s"].tasks[0])
        take_one_and_leave(results)
        del results
        assert session.wait(60)
    assert cancelled_together(fake) == [[7, 8, 9, 10], [3, 4, 5, 6], [2]]
    assert not [path for _, path in fake.seen if re.search(r"/tasks/[0-9]+/cancel", path)]


def test_pending_calls_are_cancelled_in_one_request(fake, client):
    fake.hold = True
    with client.session("s") as session:
        futures = [session.submit(square, n) for n in range(5)]
        for future in futures:
            known(future)
        fake.sessions["s"].tasks[1].state = "running"
        session.cancel_pending()
        assert [future.cancelled() for future in futures] == [True, False, True, True, True]
        fake.work(fake.sessions["s"], fake.sessions["s"].tasks[1])
        assert futures[1].result() == 1
    assert cancelled_together(fake) == [[1, 3, 4, 5]]


def invert(number):
    return 1 // number


def fail_without_a_server(client, fake):
    with client.session("mine"):
        fake.close()
        client._api.transport.close_own()
        raise ZeroDivisionError


def test_a_failure_while_the_server_is_gone_is_raised_and_the_lost_cancellation_is_warned_of(fake, client, monkeypatch):
    monkeypatch.setattr("ullage.client.session._GIVE_UP_S", 0.0)
    with pytest.warns(UserWarning, match="session mine is not cancelled") as warned, pytest.raises(ZeroDivisionError):
        fail_without_a_server(client, fake)
    assert warned[0].filename == __file__


def test_a_fork_may_wait_for_ended_tasks(fake, client):
    with client.session() as session:
        future = session.submit(square, 3)
        assert future.result(60) == 9
        assert in_a_fork(lambda: [each.result() for each in as_completed([future])]) == "[9]"


@pytest.mark.filterwarnings("error")
def test_a_callback_that_ends_its_thread_keeps_no_later_result(fake, client, caplog):
    fake.hold = True
    with client.session() as session:
        first = session.submit(square, 2)
        first.add_done_callback(lambda _: sys.exit(3))
        fake.release()
        assert first.result(60) == 4
        assert session.submit(square, 3).result(60) == 9
    assert "exception calling callback" in caplog.text
