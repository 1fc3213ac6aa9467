"""When a program gets the signal of its session, and what its log says."""

from __future__ import annotations

import signal

import pytest
from tests.lab import Lab, a_node

from ullage.core.placing.policy import Policy
from ullage.model.application import FUNCTION
from ullage.model.error import InvalidRequest
from ullage.model.queue import Queue, QueueBounds


@pytest.fixture
def lab():
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=30)) as found:
        yield found


def sent(lab):
    return [(order.number, order.text) for _, order in lab.engine.signals]


def test_a_program_gets_its_signal_once_before_its_time_limit(lab):
    lab.session("a", tasks=1, task_timeout_s=100.0, signal="USR1@60")
    lab.pass_time(39)
    assert sent(lab) == []
    assert lab.service.tick() == pytest.approx(lab.now + 1), "the service wakes for it"
    lab.pass_time(1)
    lab.pass_time(30)
    assert sent(lab) == [(signal.SIGUSR1, "USR1, 60 s before its time limit of 100 s")]
    executor, order = lab.engine.signals[0]
    assert order.claim == lab.engine.workers[executor].tasks[0].claim
    lab.pass_time(30)
    assert lab.states("a") == ["failed"]


def test_the_limit_may_be_that_of_a_queue():
    bounds = QueueBounds(default_time_s=100.0)
    with Lab(a_node(cpu=4), queues=[Queue("short", bounds=bounds)]) as lab:
        lab.session("a", tasks=1, queue="short", signal="TERM@10")
        lab.pass_time(90)
        assert sent(lab) == [(signal.SIGTERM, "TERM, 10 s before its time limit of 100 s")]
        with pytest.raises(InvalidRequest, match="its time limit is 100 s"):
            lab.session("b", queue="short", signal="TERM@100")


def test_an_evicted_program_gets_it_before_the_end_of_the_grace(lab):
    lab.session("a", tasks=4, signal="USR1@10")
    lab.session("b", tasks=4)
    assert sent(lab) == []
    lab.pass_time(20)
    share = "its session holds more than it deserves, and the other less"
    assert sent(lab) == [(signal.SIGUSR1, f"USR1, 10 s before its eviction for session b: {share}")] * 2
    lab.pass_time(10)
    assert len(sent(lab)) == 2, "their end is no further signal"


def test_an_evicted_program_gets_it_at_once_if_the_grace_is_short(lab):
    lab.session("a", tasks=4, signal="USR1@60")
    lab.session("b", tasks=4)
    lab.pass_time(0)
    assert {text.partition(":")[0] for _, text in sent(lab)} == {"USR1, 30 s before its eviction for session b"}


def test_a_program_that_nothing_ends_gets_none():
    with Lab(a_node(cpu=4), policy=Policy(reclaim_grace_s=None)) as lab:
        lab.session("a", tasks=4, signal="USR1@60")
        lab.session("b", tasks=4)
        lab.pass_time(1000)
        assert sent(lab) == []


def test_a_task_that_runs_again_gets_it_again(lab):
    lab.session("a", tasks=1, task_timeout_s=100.0, signal="USR1@60")
    lab.pass_time(40)
    lab.engine.kill(lab.engine.busy[0])
    lab.pump()
    lab.pass_time(39)
    assert len(sent(lab)) == 1
    lab.pass_time(1)
    assert len(sent(lab)) == 2


def test_a_task_that_was_kept_gets_it_before_its_limit_too(lab):
    lab.session("a", tasks=4, task_timeout_s=100.0, signal="USR1@60")
    lab.session("b", tasks=1)
    lab.pass_time(0)
    first = len(sent(lab))
    assert first == 1, "one gives way, and the grace is shorter than asked for"
    lab.service.sessions.cancel("b", lambda: None)
    lab.pump()
    lab.pass_time(40)
    assert len(sent(lab)) == first + 4


def test_a_cancelled_task_gets_none(lab):
    lab.session("a", tasks=1, task_timeout_s=100.0, signal="USR1@60", grace_s=60.0)
    lab.pass_time(39)
    lab.service.tasks.cancel("a", 1)
    lab.service.tick()
    lab.now += 1
    lab.service.tick()
    assert sent(lab) == []


def test_a_signal_before_the_start_is_refused(lab):
    with pytest.raises(InvalidRequest, match="its time limit is 30 s"):
        lab.session("a", task_timeout_s=30.0, signal="USR1@60")
    assert FUNCTION.task_timeout_s is None
