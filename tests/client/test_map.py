"""Retries, kept failures and resumed runs of `map`, against a server without a scheduler."""

import asyncio
import re
import threading

import pytest

import ullage
from ullage.client import exchange, outstanding
from ullage.model.error import InvalidRequest

tries = {}
"""How often each item was tried: the fake server runs functions in this process."""


@pytest.fixture(autouse=True)
def _no_tries(monkeypatch):
    tries.clear()
    monkeypatch.setattr(exchange, "POLL_S", 0.05)  # a session that is left waits up to a second for its poll


@pytest.fixture
def client(fake):
    with ullage.connect() as client:
        yield client


def succeed_at(attempt, item):
    tries[item] = tries.get(item, 0) + 1
    if tries[item] < attempt:
        raise OSError(f"try {tries[item]}")
    return item


def third_time(item):
    return succeed_at(3, item)


def square(item):
    tries[item] = tries.get(item, 0) + 1
    return item * item


def invert(item):
    tries[item] = tries.get(item, 0) + 1
    return 1 / item


class NeedsArguments(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")
        self.code = code


class Unpicklable(Exception):
    def __init__(self):
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def fail_in_its_way(item):
    raise [NeedsArguments(code=7), Unpicklable(), SystemExit(3)][item]


@pytest.mark.parametrize("chunksize", [1, 3])
@pytest.mark.parametrize("ordered", [True, False])
def test_failed_items_are_tried_again(fake, client, chunksize, ordered):
    with client.session() as session:
        found = list(session.map(third_time, range(7), retries=2, chunksize=chunksize, ordered=ordered))
    assert sorted(found) == list(range(7))
    assert set(tries.values()) == {3}


@pytest.mark.parametrize("chunksize", [1, 3])
def test_the_failure_of_the_last_attempt_is_raised(client, chunksize):
    with client.session() as session, pytest.raises(OSError, match="try 2"):
        list(session.map(third_time, [1], retries=1, retry_on=(OSError,), chunksize=chunksize))
    assert tries == {1: 2}


@pytest.mark.parametrize("chunksize", [1, 3])
def test_only_the_named_exceptions_are_tried_again(client, chunksize):
    with client.session() as session, pytest.raises(OSError, match="try 1"):
        list(session.map(third_time, [1], retries=5, retry_on=(KeyError, ValueError), chunksize=chunksize))
    assert tries == {1: 1}


def test_a_cancelled_call_is_not_tried_again(fake, client):
    fake.hold = True
    with client.session() as session:
        results = session.map(third_time, [1, 2], retries=9)
        results.close()  # not begun: nothing is cancelled
        for future in session._exchange._outstanding.futures():
            session._exchange._outstanding.task_of(future)
            assert future.cancel()
        fake.release()
    assert tries == {}


@pytest.mark.parametrize("chunksize", [1, 2, 5])
def test_failures_are_returned_in_the_places_of_results(client, chunksize):
    with client.session() as session:
        found = list(session.map(invert, [1, 0, 2, 0, 4], return_exceptions=True, chunksize=chunksize))
    assert [each for each in found if not isinstance(each, Exception)] == [1, 0.5, 0.25]
    assert [type(found[place]) for place in (1, 3)] == [ZeroDivisionError] * 2
    assert "in invert" in found[1].__notes__[0]


@pytest.mark.parametrize("chunksize", [1, 2])
def test_returned_failures_are_themselves_or_have_their_text(client, chunksize):
    with client.session() as session:
        own, lost, left = session.map(fail_in_its_way, range(3), return_exceptions=True, chunksize=chunksize)
    assert (type(own), own.code) == (NeedsArguments, 7)
    assert isinstance(lost, ullage.TaskFailed)
    assert str(lost).startswith("Unpicklable: holds a lock")
    assert (type(left), left.code) == (SystemExit, 3)


def test_a_lost_chunk_is_a_failure_of_each_of_its_calls(fake, client):
    fake.hold = True
    with client.session() as session:
        results = session.map(square, range(5), chunksize=3, return_exceptions=True)
        for future in session._exchange._outstanding.futures():
            session._exchange._outstanding.task_of(future)
        stored = fake.sessions[session.id]
        fake.end(stored, stored.tasks[0], "failed", 1, None, "its executor was lost")
        fake.release()
        found = list(results)
    assert [str(each) for each in found[:3]] == ["its executor was lost"] * 3
    assert found[3:] == [9, 16]


def test_a_timeout_is_raised_also_where_failures_are_returned(fake, client):
    fake.hold = True
    with client.session() as session:
        with pytest.raises(TimeoutError):
            next(session.map(square, [1], timeout=0.01, return_exceptions=True))
        fake.release()


@pytest.mark.parametrize("chunksize", [1, 2])
def test_a_coroutine_function_is_mapped_in_chunks_too(client, chunksize):
    async def double(item):
        await asyncio.sleep(0)
        return 2 * item

    with client.session() as session:
        assert list(session.map(double, range(5), chunksize=chunksize)) == [0, 2, 4, 6, 8]


async def count_up(number):
    yield number


def count_down(number):
    yield number


def test_a_generator_function_is_refused_by_name(client):
    with client.session() as session:
        for submit in (session.submit, session.map):
            with pytest.raises(InvalidRequest, match="function: count_up is an async generator function"):
                submit(count_up, [1])
            with pytest.raises(InvalidRequest, match=r"function: count_down is a generator function.*return a list"):
                submit(count_down, [1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retrys": 2}, "retrys: 2 is not valid: did you mean retries? The options of map are ordered, chunksize"),
        ({"retries": -1}, "retries: -1 is not valid: a whole number from 0"),
        ({"buffersize": 0}, "buffersize: 0 is not valid: a whole number from 1 is needed, or None"),
        ({"retries": True}, "retries: True is not valid"),
        ({"retries": 1, "retry_on": "OSError"}, "retry_on: 'OSError' is not valid: give exception classes"),
        ({"retries": 1, "retry_on": (OSError, 3)}, "retry_on: "),
        ({"key": "a/b"}, "key: 'a/b' is not valid: use 1 to 253 letters"),
    ],
)
def test_wrong_options_of_map_are_refused_by_name(fake, client, options, message):
    session = client.open_session("s", priority=1)
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        session.map(square, [1], **options)
    assert not fake.sessions["s"].tasks


def test_an_argument_that_cannot_be_sent_cancels_the_calls_before_it(fake, client):
    fake.hold = True
    with client.session() as session:
        with pytest.raises(InvalidRequest, match="argument 1"):
            session.map(square, [1, 2, threading.Lock()])
        assert session.wait(60)
    assert {task.state for task in fake.sessions[session.id].tasks} <= {"cancelled"}


# --- keys ---


def test_a_key_needs_a_session_that_stays_open(fake, client):
    with client.session() as session, pytest.raises(InvalidRequest, match=re.escape("use client.open_session(NAME")):
        session.map(square, [1], key="run-7")


@pytest.mark.parametrize("chunksize", [1, 3])
@pytest.mark.parametrize("ordered", [True, False])
def test_the_same_call_in_a_new_client_runs_nothing_twice(fake, client, chunksize, ordered):
    options = {"key": "run-7", "chunksize": chunksize, "ordered": ordered}
    with client.open_session("s", priority=1) as session:
        before = sorted(session.map(square, range(10), **options))
        assert session.submit(square, 99).result() == 99 * 99
    for _ in range(2):
        with ullage.connect() as other, other.open_session("s") as session:
            assert session.submit(square, 98).result() == 98 * 98
            assert sorted(session.map(square, range(10), **options)) == before
            assert sorted(session.map(square, range(10), **options)) == before  # and in the same client
    assert {tries[item] for item in range(10)} == {1}


def test_a_longer_call_goes_on_where_the_shorter_one_ended(client):
    with client.open_session("s", priority=1) as session:
        for count in (3, 5, 5000, 2):
            assert list(session.map(square, range(count), key="k")) == [n * n for n in range(count)]
    assert (len(tries), set(tries.values())) == (5000, {1})


def test_the_cuts_between_submissions_may_differ(client, monkeypatch):
    for batch in (3, 7, 1000, 2):
        monkeypatch.setattr(outstanding, "BATCH_TASKS", batch)
        with ullage.connect() as other, other.open_session("s", priority=1) as session:
            assert list(session.map(square, range(60), key="k")) == [n * n for n in range(60)]
    assert (len(tries), set(tries.values())) == (60, {1})


def test_another_function_chunk_size_or_key_is_another_run(client):
    with client.open_session("s", priority=1) as session:
        assert list(session.map(square, [1, 2], key="k")) == [1, 4]
        assert list(session.map(invert, [1, 2], key="k")) == [1, 0.5]
        assert list(session.map(square, [1, 2], key="k", chunksize=2)) == [1, 4]
        assert list(session.map(square, [1, 2], key="other")) == [1, 4]
    assert tries == {1: 4, 2: 4}


def test_failures_are_found_again_and_more_retries_run_only_them_again(client):
    with client.open_session("s", priority=1) as session:
        first = list(session.map(third_time, range(3), key="k", return_exceptions=True))
        assert [str(each) for each in first] == ["try 1"] * 3
        tries[1] = 2  # so that one succeeds
    for retries, expected in ((0, ["try 1"] * 3), (1, ["try 2", "1", "try 2"]), (1, ["try 2", "1", "try 2"])):
        with ullage.connect() as other, other.open_session("s") as session:
            found = session.map(third_time, range(3), key="k", retries=retries, return_exceptions=True)
            assert [str(each) for each in found] == expected
    assert tries == {0: 2, 1: 3, 2: 2}


def test_two_maps_with_one_key_at_the_same_time_share_their_tasks(fake, client):
    fake.hold = True
    with client.open_session("s", priority=1) as session:
        maps = [session.map(square, range(20), key="k") for _ in range(2)]
        session.submit(square, 99)
        for future in session._exchange._outstanding.futures():
            session._exchange._outstanding.task_of(future)
        assert len(fake.sessions["s"].tasks) == 21
        fake.release()
        for results in maps:
            assert list(results) == [n * n for n in range(20)]
    assert set(tries.values()) == {1}


def leave_by_failing(session):
    with pytest.raises(ZeroDivisionError):
        list(session.map(invert, [0, *range(1, 20)], key="k"))


def leave_by_break(session):
    for _ in session.map(invert, [0, *range(1, 20)], key="k", return_exceptions=True):
        break


@pytest.mark.parametrize("leave", [leave_by_failing, leave_by_break])
def test_a_run_with_a_key_goes_on_without_its_loop(fake, client, leave):
    fake.hold = True
    with client.open_session("s", priority=1) as session:
        threading.Thread(target=fake.work_first, args=("s",), daemon=True).start()
        leave(session)
        session._exchange.stop()
    assert {task.state for task in fake.sessions["s"].tasks[1:]} == {"pending"}
    fake.release()
    with ullage.connect() as other, other.open_session("s") as session:
        found = list(session.map(invert, [0, *range(1, 20)], key="k", return_exceptions=True))
    assert found[1:] == [1 / n for n in range(1, 20)]


def test_an_interrupted_client_leaves_its_run_and_cancels_the_rest(fake, client):
    fake.hold = True

    def interrupted():
        with client.open_session("s", priority=1) as session:
            session.map(square, range(5), key="k")
            session.submit(square, 99)
            for future in session._exchange._outstanding.futures():
                session._exchange._outstanding.task_of(future)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [task.state for task in fake.sessions["s"].tasks] == ["pending"] * 5 + ["cancelled"]


def test_a_run_is_resumed_by_an_asyncio_client(fake, client):
    with client.open_session("s", priority=1) as session:
        assert list(session.map(square, range(10), key="k")) == [n * n for n in range(10)]

    async def main():
        async with ullage.aconnect() as other, other.open_session("s") as session:
            return [value async for value in session.map(square, range(12), key="k", ordered=False)]

    assert sorted(asyncio.run(main())) == [n * n for n in range(12)]
    assert set(tries.values()) == {1}
