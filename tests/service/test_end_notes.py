"""The line in the log of a task on why its run ended, and how long it may clean up."""

from __future__ import annotations

import pytest
from tests.lab import Lab, a_node

from ullage.model.task import LOST_LIMIT


@pytest.fixture
def lab():
    with Lab(a_node(cpu=4)) as found:
        yield found


def notes(lab):
    return [(task, text) for _, task, text in lab.engine.notes]


def test_an_evicted_task_says_for_whom_and_why(lab):
    lab.session("a", tasks=4)
    lab.session("b", tasks=4)
    lab.pass_time(30)
    share = "its session holds more than it deserves, and the other less"
    assert {text for _, text in notes(lab)} == {f"evicted for session b: {share}; the task waits again"}


def test_a_lost_task_waits_again_until_it_was_lost_too_often(lab):
    lab.session("a", "cpu=1", tasks=1)
    for _ in range(LOST_LIMIT):
        lab.engine.kill(lab.engine.busy[0], "killed by a test\nits traceback")
        lab.pump()
    again, last = "its executor ended: killed by a test; the task waits again", "its executor ended: killed by a test"
    assert notes(lab) == [(1, again)] * (LOST_LIMIT - 1) + [(1, last)]


def test_an_idle_executor_that_ends_leaves_no_note(lab):
    lab.session("a", "cpu=1", tasks=1)
    lab.finish("a")
    lab.engine.kill(lab.engine.alive[0])
    lab.pump()
    assert notes(lab) == []


def test_a_task_has_the_grace_of_its_session_and_others_the_usual_one(lab):
    for name, spec in (("own", {"grace_s": 60.0}), ("usual", {})):
        lab.session(name, "cpu=1", tasks=1, **spec)
        lab.service.tasks.cancel(name, 1)
    assert list(lab.engine.graces.values()) == [60.0, 5.0]
