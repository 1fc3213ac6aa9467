"""Defaults and maxima of queues."""

from pathlib import Path

import pytest
from tests.lab import Lab, Machine, a_node

from ullage.bootstrap.settings import read_settings
from ullage.model.application import Application
from ullage.model.error import InvalidRequest
from ullage.model.queue import Queue, QueueBounds, parse_bounds
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec


def bounds(resreq: str | None = None, most: str | None = None, **times: float) -> QueueBounds:
    return parse_bounds(resreq, most, times.get("default_time_s"), times.get("max_time_s"))


def a_lab(*queues: Queue) -> Lab:
    return Lab(a_node(gpus=4), queues=queues)


def timeout(lab: Lab, **spec: object) -> float | None:
    name = f"s{len(lab.service.state.sessions)}"
    return lab.session(name, queue="team", **spec).session.spec.task_timeout_s


@pytest.mark.parametrize(
    ("times", "stated", "effective"),
    [
        ({}, None, None),
        ({}, 5.0, 5.0),
        ({"default_time_s": 60.0}, None, 60.0),
        ({"default_time_s": 60.0}, 90.0, 90.0),
        ({"max_time_s": 60.0}, None, 60.0),
        ({"max_time_s": 60.0}, 60.0, 60.0),
        ({"default_time_s": 30.0, "max_time_s": 60.0}, None, 30.0),
    ],
)
def test_a_task_has_the_time_that_it_states_or_that_of_its_queue(
    times: dict[str, float], stated: float | None, effective: float | None
) -> None:
    with a_lab(Queue("team", bounds=bounds(**times))) as lab:
        assert timeout(lab, task_timeout_s=stated) == effective


def test_a_task_is_ended_at_the_default_time_of_its_queue() -> None:
    with a_lab(Queue("team", bounds=bounds(default_time_s=60.0))) as lab:
        lab.session("s", tasks=1, queue="team")
        lab.pass_time(61)
        assert lab.counts("s")["failed"] == 1


@pytest.mark.parametrize(
    ("request_", "spec", "text"),
    [
        ("gpu=3,mem=1g", {}, r"queue all allows an executor at most gpu=2 \(max_resreq\); ask for less gpu"),
        ("cpu=5,mem=1g", {}, r"queue team allows an executor at most cpu=4,mem=8Gi \(max_resreq\); ask for less cpu"),
        ("cpu=1", {}, r"and mem=0 is no limit; write mem=8Gi or less"),
        ("cpu=1,mem=1g", {"task_timeout_s": 61.0}, r"queue all allows a task at most 60 s \(max_time_s\)"),
    ],
)
def test_a_session_above_a_maximum_of_its_queue_or_one_above_is_refused(
    request_: str, spec: dict[str, object], text: str
) -> None:
    tree = (
        Queue("all", bounds=bounds(most="gpu=2", max_time_s=60.0)),
        Queue("team", parent="all", bounds=bounds(most="cpu=4,mem=8g")),
    )
    with a_lab(*tree) as lab:
        with pytest.raises(InvalidRequest, match=text) as refusal:
            lab.session("s", request_, queue="team", **spec)
        assert refusal.value.code == "above-queue-maximum"
        assert not lab.service.state.sessions


def test_the_limit_of_an_application_counts_against_the_maximum_of_a_queue() -> None:
    with a_lab(Queue("team", bounds=bounds(max_time_s=60.0))) as lab:
        lab.service.catalog.put_application(Application("slow", command="true", task_timeout_s=90.0), lambda: None)
        spec = SessionSpec("slow", ResourceRequirement.from_string("cpu=1"), queue="team")
        with pytest.raises(InvalidRequest, match="task_timeout_s: '90' is not valid: queue team allows"):
            lab.service.sessions.create("s", spec, lambda: None)


def test_the_default_request_is_that_of_the_nearest_queue_above() -> None:
    tree = (Queue("all", bounds=bounds("cpu=2")), Queue("team", parent="all"), Queue("other", bounds=bounds("gpu=1")))
    with a_lab(*tree) as lab:
        default = lab.service.sessions.default_for
        assert [str(default(name)) for name in ("team", "other", "default")] == [
            "cpu=2,mem=0,gpu=0",
            "cpu=0,mem=0,gpu=1",
            "cpu=1,mem=1Gi,gpu=0",
        ]


def test_bounds_survive_a_restart(tmp_path: Path) -> None:
    with Machine(str(tmp_path / "db"), a_node()) as lab:
        queue = Queue("team", bounds=bounds("cpu=1,mem=1g", "cpu=4,mem=8g", default_time_s=5.0, max_time_s=60.0))
        lab.service.catalog.put_queue(queue, lambda: None)
        lab.restart()
        assert lab.service.state.queues["team"] == queue


def test_a_settings_file_states_bounds_and_an_error_names_the_queue(tmp_path: Path) -> None:
    file = tmp_path / "ullage.toml"
    file.write_text('[queues.team]\ndefault_resreq = "cpu=1"\nmax_resreq = "cpu=4"\nmax_time_s = 60\n')
    (queue,) = read_settings(file).share_tree()
    assert queue == Queue("team", bounds=bounds("cpu=1", "cpu=4", max_time_s=60.0))
    file.write_text("[queues.team]\nmax_time_s = -1\n")
    with pytest.raises(InvalidRequest, match=r"queues.team: max_time_s: -1"):
        read_settings(file).share_tree()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("cpu=5", "cpu=4", None, None), "default_resreq: 'cpu=5,mem=0,gpu=0' is not valid: its cpu is above"),
        ((None, None, 90.0, 60.0), "default_time_s: 90.0 is not valid: it is above max_time_s"),
        ((None, None, 0.0, None), "default_time_s: 0.0 is not valid: more than 0 seconds"),
        ((None, None, None, float("nan")), "max_time_s: nan is not valid: more than 0 seconds"),
    ],
)
def test_bounds_that_contradict_themselves_are_refused(given: tuple, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        parse_bounds(*given)
