"""Context variables and traces of the caller, in its tasks."""

import asyncio
import logging
import re
import subprocess
import sys
import threading
from contextvars import Context, ContextVar, copy_context

import pytest

import ullage
from ullage.client import carrying
from ullage.worker import carried

request_id = ContextVar("request_id")
with_default = ContextVar("with_default", default=(7,))
state = ContextVar("state")


@pytest.fixture(autouse=True)
def _nothing_reported():
    carrying._reported.clear()


@pytest.fixture
def session(fake):
    with ullage.connect() as client, client.session() as session:
        yield session


def read():
    return request_id.get("none"), with_default.get()


async def read_later():
    await asyncio.sleep(0)
    return read()


def within(function, *args):
    """Call `function` in a context of its own."""
    return copy_context().run(function, *args)


@pytest.mark.parametrize("function", [read, read_later])
def test_a_task_sees_the_variables_of_its_caller(session, function):
    def calls():
        request_id.set("r1")
        found = [session.submit(function).result()]
        with_default.set({"a": 1})
        found.append(session.submit(function).result())
        found += session.map(lambda _: function() if function is read else read(), range(3), chunksize=2)
        return found

    assert within(calls) == [("r1", (7,)), *[("r1", {"a": 1})] * 4]
    assert session.submit(function).result() == ("none", (7,))


def test_what_a_task_sets_ends_with_it(session):
    def change():
        request_id.set("other")
        return read()

    def calls():
        request_id.set("r1")
        return [session.submit(change).result(), session.submit(read).result(), read()]

    assert within(calls) == [("other", (7,)), ("r1", (7,)), ("r1", (7,))]


def test_an_asyncio_task_carries_its_own_variables(fake):
    async def one(session, name):
        request_id.set(name)
        first = await session.submit(read)
        return first, [value async for value in session.map(abs_and_read, [1])]

    async def main():
        async with ullage.aconnect() as client, client.session() as session:
            return await asyncio.gather(*(one(session, name) for name in ("a", "b")))

    assert asyncio.run(main()) == [(((name), (7,)), [(1, (name, (7,)))]) for name in ("a", "b")]


def abs_and_read(number):
    return abs(number), read()


def test_nothing_is_carried_where_one_does_not_want_it(fake):
    with ullage.connect() as client, client.session(carry_context=False) as session:

        def call():
            request_id.set("r1")
            return session.submit(read).result()

        assert within(call) == ("none", (7,))
    with ullage.connect() as client:
        client.open_session("shared", priority=1)
        with client.open_session("shared", carry_context=False) as session:
            assert within(call) == ("none", (7,))


def test_a_variable_of_the_program_that_cannot_be_carried_is_warned_of_once(session):
    def call():
        request_id.set("r1")
        state.set(threading.Lock())
        return [session.submit(read).result() for _ in range(2)]

    text = re.escape(f"the context variable {__name__}.state (lock) is not carried to tasks: ")
    with pytest.warns(UserWarning, match=text) as caught:
        assert within(call) == [("r1", (7,))] * 2
    assert len(caught) == 1


def test_a_variable_of_a_library_that_cannot_be_carried_is_a_debug_message(session, caplog, monkeypatch):
    monkeypatch.setattr(logging, "its_state", state, raising=False)
    monkeypatch.setattr(carrying, "_homes", {id(state): (state, ("logging", "its_state"))})

    def call():
        state.set(threading.Lock())
        return session.submit(read).result()

    with caplog.at_level(logging.DEBUG, "ullage"):
        assert within(call) == ("none", (7,))
    assert [record.getMessage()[:46] for record in caplog.records if record.name == "ullage"] == [
        "the context variable logging.its_state (lock) "
    ]


def test_a_variable_that_no_module_has_is_left_out_and_a_function_that_uses_it_is_refused(session):
    local = ContextVar("local")

    def call():
        local.set(3)
        return session.submit(read).result()

    assert within(call) == ("none", (7,))
    with pytest.raises(ullage.InvalidRequest, match=r"its variable local \(ContextVar\) cannot be sent"):
        session.submit(lambda: local.get("none"))


def test_a_value_whose_class_the_worker_lacks_leaves_the_others(capsys):
    wrong = carried.CarriedVariable(__name__, "state", b"no pickle")
    right = carried.CarriedVariable(__name__, "request_id", b"\x80\x04K\x05.")
    assert carried.run_within(carried.Carried((wrong, right), {}), request_id.get) == 5
    assert f"the context variable {__name__}.state is not set: " in capsys.readouterr().err
    assert Context().run(read) == ("none", (7,))


PROGRAM = """
import contextvars
import ullage

user = contextvars.ContextVar("user")
level = contextvars.ContextVar("level", default=1)


def work(n):
    before = level.get()
    level.set(before + n)
    return user.get("nobody"), before, level.get()


with ullage.connect() as client, client.session(resreq="cpu=0.25,mem=64m", max_instances=1) as session:
    print(session.submit(work, 1).result())
    user.set("ann")
    level.set(10)
    print(session.submit(work, 1).result(), *session.map(work, [2, 3]))
"""


def test_variables_of_a_program_are_known_in_another_process(server, tmp_path, monkeypatch):
    monkeypatch.setenv("ULLAGE_HOME", str(server.home))
    monkeypatch.delenv("ULLAGE_ENDPOINT", raising=False)
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == [
        "('nobody', 1, 2)",
        "('ann', 10, 11) ('ann', 10, 12) ('ann', 10, 13)",
    ], done.stderr


TRACED = """
import ullage
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())


def work():
    from opentelemetry import baggage, trace

    span = trace.get_current_span().get_span_context()
    return span.trace_id, span.span_id, span.is_remote, baggage.get_baggage("user")


with ullage.connect() as client, client.session(resreq="cpu=0.25,mem=64m", max_instances=1) as session:
    print(session.submit(work).result())
    with trace.get_tracer("test").start_as_current_span("outer") as span:
        context.attach(baggage.set_baggage("user", "ann"))
        expected = span.get_span_context().trace_id, span.get_span_context().span_id, True, "ann"
        print(session.submit(work).result() == expected, list(session.map(lambda _: work(), [1])) == [expected])
"""


def test_a_span_of_opentelemetry_is_the_parent_of_spans_in_its_tasks(server, tmp_path, monkeypatch):
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    monkeypatch.setenv("ULLAGE_HOME", str(server.home))
    monkeypatch.delenv("ULLAGE_ENDPOINT", raising=False)
    file = tmp_path / "program.py"
    file.write_text(TRACED)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["(0, 0, False, None)", "True True"], done.stderr
