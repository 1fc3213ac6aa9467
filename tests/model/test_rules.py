"""Names, sessions, queues and applications: valid values, and messages about invalid ones."""

from __future__ import annotations

from functools import partial

import pytest

from ullage.model.application import COMMAND, FUNCTION, Application
from ullage.model.error import Conflict, InvalidRequest
from ullage.model.name import check_name
from ullage.model.queue import Limit, Queue, check_weight, parse_limit, parse_queue
from ullage.model.request import DEFAULT_REQUIREMENT
from ullage.model.resources import Resources
from ullage.model.session import SessionInfo, SessionSpec, SessionState, Setup

GIB = 2**30
a_spec = partial(SessionSpec, "function")
an_application = partial(Application, "app", command="/bin/app")


def assert_refused(build, field: str, shown: str) -> None:
    """The message names the field, shows the value and tells the fix."""
    with pytest.raises(InvalidRequest) as refusal:
        build()
    assert refusal.value.field == field
    assert refusal.value.message.startswith(f"{field}: {shown} is not valid: ")
    assert len(refusal.value.message) > len(f"{field}: {shown} is not valid: ")


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["my-app", "my_app", "my.app", "MyApp", "a", "0", "_x", "a.b-c_d", "x" * 253])
def test_a_valid_name_is_accepted(name):
    assert check_name("application", name) == name
    assert Application(name, command="/bin/x").name == name
    assert Queue(name).name == name
    assert SessionInfo(name, a_spec(), 0.0, 1).id == name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param(".", id="a point"),
        pytest.param("..", id="two points"),
        pytest.param("../etc", id="a way up"),
        pytest.param("a..b", id="two points inside"),
        pytest.param("-x", id="a leading dash"),
        pytest.param(".x", id="a leading point"),
        pytest.param("x" * 254, id="254 characters"),
        pytest.param("a/b", id="a slash"),
        pytest.param("a b", id="a blank"),
        pytest.param("a\n", id="a line end"),
        pytest.param("a\0", id="a zero"),
        pytest.param("\u00e9t\u00e9", id="letters outside ASCII"),
        pytest.param("a\u0663", id="digits outside ASCII"),
        pytest.param("a:b", id="a colon"),
        pytest.param(None, id="none"),
        pytest.param(7, id="a number"),
    ],
)
def test_an_invalid_name_is_refused_everywhere(name):
    for field, build in (
        ("application", lambda: Application(name)),
        ("application", lambda: SessionSpec(name)),
        ("queue", lambda: Queue(name)),
        ("queue", lambda: a_spec(queue=name)),
        ("session", lambda: SessionInfo(name, a_spec(), 0.0, 1)),
    ):
        with pytest.raises(InvalidRequest) as refusal:
            build()
        assert refusal.value.field == field
        assert "letters, digits" in refusal.value.message


# --- sessions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "batch", "bounds"),
    [
        pytest.param(0, None, 1, (0, None), id="no bounds"),
        pytest.param(2, 5, 1, (2, 5), id="batches of one change nothing"),
        pytest.param(1, 7, 4, (4, 4), id="the minimum up, the maximum down"),
        pytest.param(0, 4, 4, (0, 4), id="exactly a batch"),
        pytest.param(5, None, 4, (8, None), id="the minimum up without a maximum"),
        pytest.param(8, 11, 4, (8, 8), id="a minimum that is whole"),
    ],
)
def test_bounds_are_in_whole_batches(low, high, batch, bounds):
    assert a_spec(min_instances=low, max_instances=high, batch_size=batch).instance_bounds == bounds


@pytest.mark.parametrize(
    ("low", "high", "batch"),
    [
        pytest.param(3, 2, 1, id="the minimum above the maximum"),
        pytest.param(0, 3, 4, id="no whole batch within the maximum"),
        pytest.param(5, 7, 4, id="none between minimum and maximum once both are whole"),
    ],
)
def test_bounds_between_which_no_batch_fits_are_refused(low, high, batch):
    spec = partial(a_spec, min_instances=low, max_instances=high, batch_size=batch)
    assert_refused(spec, "max_instances", str(high))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", -1),
        ("priority", 2**31),
        ("weight", 0),
        ("weight", 1001),
        ("weight", -3),
        ("weight", 1.5),
        ("weight", True),
        ("batch_size", 0),
        ("batch_size", 4097),
        ("min_instances", -1),
        ("max_instances", 0),
        ("max_instances", -5),
        ("retries", -1),
        ("task_timeout_s", 0),
        ("task_timeout_s", -1.5),
    ],
    ids=str,
)
def test_a_session_out_of_range_is_refused(field, value):
    assert_refused(lambda: a_spec(**{field: value}), field, repr(value))


def test_the_ends_of_every_range_are_accepted():
    spec = a_spec(priority=2**31 - 1, weight=1000, batch_size=4096, max_instances=4096, retries=0, task_timeout_s=1e-3)
    assert spec.instance_bounds == (0, 4096)


def test_a_session_without_settings_has_the_defaults():
    spec = a_spec()
    assert (spec.resreq, spec.queue, spec.priority, spec.weight) == (DEFAULT_REQUIREMENT, "default", 0, 1)
    assert (spec.batch_size, spec.min_instances, spec.max_instances) == (1, 0, None)


@pytest.mark.parametrize("name", ["python", "working_directory"])
def test_a_relative_path_in_the_setup_is_refused(name):
    assert_refused(lambda: Setup(**{name: "bin/python"}), f"setup.{name}", "'bin/python'")


def test_a_closed_session_refuses_work():
    session = SessionInfo("s", a_spec(), 0.0, 1)
    session.require_open()
    closed = SessionInfo("s", a_spec(), 0.0, 1, SessionState.CLOSED)
    with pytest.raises(Conflict, match="s is closed") as refusal:
        closed.require_open()
    assert refusal.value.code == "session-closed"


# --- queues ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        pytest.param("gpu=8,mem=1t", Limit(memory_bytes=1024 * GIB, gpu_milli=8000), id="two of three"),
        pytest.param("cpu=4", Limit(cpu_milli=4000), id="cpus"),
        pytest.param(" MEMORY = 1g ", Limit(memory_bytes=GIB), id="the long key, blanks, case"),
        pytest.param("cpu=8,gpu=0", Limit(cpu_milli=8000, gpu_milli=0), id="no cards at all"),
    ],
)
def test_a_limit_binds_only_the_dimensions_that_it_names(text, limit):
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["gpu=0", "cpu=0,gpu=0", "mem=0"])
def test_a_limit_of_none_is_a_limit(text):
    named = {entry.partition("=")[0] for entry in text.split(",")}
    expected = {"cpu_milli": "cpu", "memory_bytes": "mem", "gpu_milli": "gpu"}
    assert parse_limit(text) == Limit(**{key: 0 for key, name in expected.items() if name in named})


@pytest.mark.parametrize("text", ["gpu=eight", "disk=1", "cpu=1,cpu=2", "cpu=-1"])
def test_a_limit_that_does_not_parse_is_refused(text):
    with pytest.raises(InvalidRequest):
        parse_limit(text)
    with pytest.raises(InvalidRequest):
        parse_queue("team", "root", 1, text, None)


def test_a_queue_is_parsed_from_text():
    with pytest.raises(InvalidRequest, match=r"guarantee: 'gpu=4,cpu=1' is not valid: its gpu is above .*\(gpu=2\)"):
        parse_queue("team", "root", 1, "gpu=4,cpu=1", "gpu=2")
    queue = parse_queue("team", "root", 3, "gpu=2", "cpu=10")
    assert queue == Queue("team", "root", 3, Resources(gpu_milli=2000), Limit(cpu_milli=10_000))
    assert parse_queue("team", "root", 1, None, None) == Queue("team")


@pytest.mark.parametrize("weight", [0, 1001, -1, 2.0, "2", True, None], ids=repr)
def test_a_weight_is_a_whole_number_from_1_to_1000(weight):
    assert_refused(lambda: check_weight("weight", weight), "weight", repr(weight))
    assert_refused(lambda: parse_queue("team", "root", weight, None, None), "weight", repr(weight))


@pytest.mark.parametrize(("name", "parent"), [("root", "other"), ("team", "team")], ids=["the root", "its own parent"])
def test_an_invalid_queue_is_refused(name, parent):
    assert_refused(lambda: Queue(name, parent), "queue", repr(name))


# --- applications ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("working_directory", "tmp"),
        ("max_instances", 0),
        ("retries", -1),
        ("delay_release_s", -0.1),
        ("task_timeout_s", 0),
        ("task_timeout_s", -1),
    ],
    ids=str,
)
def test_an_application_out_of_range_is_refused(field, value):
    assert_refused(lambda: an_application(**{field: value}), field, repr(value))


@pytest.mark.parametrize(("field", "value"), [("default_priority", -1), ("default_weight", 0)], ids=str)
def test_defaults_for_sessions_are_checked_with_the_application(field, value):
    assert_refused(lambda: an_application(**{field: value}), field, repr(value))


def test_an_application_without_settings_has_the_defaults():
    application = an_application()
    assert (application.max_instances, application.delay_release_s) == (1_000_000, 60.0)
    assert (application.retries, application.task_timeout_s) == (0, None)


def test_the_built_in_applications_need_no_command():
    assert (FUNCTION.command, COMMAND.command) == ("", "")
