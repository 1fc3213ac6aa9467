"""`ullage.Executor` behaves as an executor of the standard library, against a server without a scheduler."""

import os
import threading
from concurrent.futures import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenExecutor,
    CancelledError,
    Executor,
    as_completed,
    wait,
)

import pytest

import ullage
from ullage.client.pickling import SessionPickles
from ullage.client.prepared import Initializer
from ullage.model.error import InvalidRequest
from ullage.worker.received import load

began = []


@pytest.fixture(autouse=True)
def _none_began():
    began.clear()


def square(number):
    return number * number


def invert(number):
    return 1 / number


async def double(number):
    return 2 * number


def begin(name):
    began.append(name)


def test_it_is_an_executor_and_its_workers_are_limited(fake):
    with ullage.Executor(3) as executor:
        assert isinstance(executor, Executor)
        assert executor.submit(square, 3).result() == 9
        assert executor.submit(double, 3).result() == 6
        assert fake.sessions[executor.session.id].spec.max_instances == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_workers": 0}, "max_workers: 0 is not valid"),
        ({"max_workers": "http://x"}, "an address is endpoint="),
        ({"max_workers": 1, "max_instances": 2}, "are the same"),
        ({"mp_context": None}, "mp_context: None is not valid"),
    ],
)
def test_wrong_arguments_are_refused_by_name(fake, given, message):
    with pytest.raises(InvalidRequest, match=message):
        ullage.Executor(**given)
    assert fake.sessions == {}


def test_map_gives_results_until_its_timeout_and_cancels_the_rest(fake):
    executor = ullage.Executor()
    assert list(executor.map(pow, [2, 3], [5, 2], chunksize=2)) == [32, 9]
    fake.hold = True
    with pytest.raises(TimeoutError):
        list(executor.map(square, [1, 2], timeout=0.01))
    executor.session.wait(60)
    executor.shutdown()
    assert [task.state for task in fake.sessions[executor.session.id].tasks[1:]] == ["cancelled"] * 2


def test_map_raises_the_exception_when_its_value_is_retrieved(fake):
    with ullage.Executor() as executor:
        results = executor.map(invert, [1, 0, 2])
        assert next(results) == 1
        with pytest.raises(ZeroDivisionError):
            next(results)


def test_wait_and_as_completed(fake):
    with ullage.Executor() as executor:
        futures = [executor.submit(invert, number) for number in (1, 2, 0)]
        assert wait(futures, return_when=FIRST_COMPLETED).done
        assert any(future.exception() for future in wait(futures, return_when=FIRST_EXCEPTION).done)
        done, left = wait(futures)
        assert (done, left) == (set(futures), set())
        assert set(as_completed(futures)) == set(futures)


def test_a_cancelled_future_raises_and_calls_back(fake):
    fake.hold = True
    with ullage.Executor() as executor:
        future = executor.submit(square, 3)
        called = []
        future.add_done_callback(called.append)
        assert future.cancel()
        assert (future.cancelled(), future.done(), future.running()) == (True, True, False)
        assert called == [future]
        with pytest.raises(CancelledError):
            future.result()


def test_shutdown_refuses_more_and_may_be_repeated(fake):
    executor = ullage.Executor()
    executor.shutdown()
    executor.shutdown(wait=False, cancel_futures=True)
    for use in (executor.submit, executor.map):
        with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
            use(square, [3])


def test_the_initializer_runs_once_in_a_process_before_its_calls(fake):
    with ullage.Executor(initializer=begin, initargs=("a",)) as executor:
        assert list(executor.map(square, range(5))) == [0, 1, 4, 9, 16]
        assert list(executor.map(square, range(5), chunksize=2)) == [0, 1, 4, 9, 16]
        assert executor.submit(double, 3).result() == 6
        assert began == ["a"]
    with ullage.Executor(initializer=begin, initargs=("b",)) as executor:
        executor.submit(square, 3).result()
    assert began == ["a", "b"]


def test_what_the_initializer_of_a_script_sets_is_seen_by_each_of_its_functions():
    names = {"__name__": "a_script", "state": None, "times": 0}
    source = """
def begin(value):
    global state, times
    state, times = value, times + 1

def seen(number):
    return state, times, number

def other(number):
    return state, times, -number
"""
    exec(source, names)  # functions that cannot be imported are sent by value
    initializer = Initializer(names["begin"], ("a",))
    pickles = SessionPickles()
    sent = [pickles.dump(names[name], initializer.prepare) for name in ("seen", "seen", "other")]
    assert [load(each).value(1) for each in sent] == [("a", 1, 1), ("a", 1, 1), ("a", 1, -1)]
    again = load(sent[0]).value
    assert (again(1), again(2)) == (("a", 1, 1), ("a", 1, 2))


def test_a_failed_initializer_breaks_the_executor(fake):
    with ullage.Executor(initializer=invert, initargs=(0,)) as executor:
        with pytest.raises(BrokenExecutor, match="the initializer failed") as caught:
            executor.submit(square, 3).result()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        with pytest.raises(BrokenExecutor):
            executor.submit(square, 3)
        with pytest.raises(BrokenExecutor):
            executor.map(square, [3])


def test_a_dropped_executor_closes_its_session(fake):
    future = ullage.Executor().submit(square, 3)
    assert future.result(60) == 9
    for thread in threading.enumerate():
        if thread.name == "ullage-shutdown":
            thread.join()
    assert [session.state for session in fake.sessions.values()] == ["closed"]


def test_the_number_of_calls_that_dask_submits_at_a_time(fake):
    with ullage.Executor(max_instances=7) as limited, ullage.Executor() as other:
        assert (limited._max_workers, other._max_workers) == (7, os.cpu_count())
