"""Executors that fail to start are tried again after growing pauses, then no more; why repeats the last failure."""

import pytest
from tests.lab import Lab, a_node

from ullage.model.error import Conflict, InvalidRequest
from ullage.model.executor import BindCode
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.session import RETRY_LIMIT, memory_warning


def failures(lab):
    return lab.service.state.session("s").session.bind_failures


def die(lab, reason="the worker exceeded its memory limit of 2Mi"):
    """All executors end by themselves."""
    for executor in list(lab.engine.workers):
        lab.engine.kill(executor, reason)
    lab.pump()


def test_attempts_follow_each_other_after_pauses_that_double_until_there_are_no_more():
    with Lab(a_node(cpu=1)) as lab:
        lab.engine.bind_code["s"] = BindCode.ENTER_FAILED
        lab.session("s", tasks=1)
        first_at = {}
        for step in range(40):
            first_at.setdefault(len(lab.engine.launched), step / 2)
            lab.pass_time(0.5)
        assert first_at == {2: 0.0, 3: 1.0, 4: 3.0, 5: 7.0}


def test_the_service_wakes_when_the_pause_is_over():
    with Lab(a_node(cpu=1)) as lab:
        lab.engine.bind_code["s"] = BindCode.ENTER_FAILED
        lab.session("s", tasks=1)
        assert lab.service.tick() == lab.now + 1.0


def test_why_repeats_the_last_failure_with_how_often_and_what_helps():
    with Lab(a_node(cpu=1)) as lab:
        lab.engine.bind_code["s"] = BindCode.ENTER_FAILED
        lab.session("s", tasks=1)
        why = lab.why("s")
        assert why.code is Code.BIND_FAILURES
        assert why.summary.startswith("its executors fail to start, 2 of 5 times so far; the last: executor ")
        assert why.summary.endswith(" on node n1 failed with code 12: no such model")
        for _ in range(RETRY_LIMIT):
            lab.pass_time(10)
        why = lab.why("s")
        assert why.summary.startswith("its executors fail to start, 5 times so far; the last: executor ")
        assert why.suggestions[0] == "mend the cause, then `ullage retry s`"


def test_too_little_memory_comes_with_the_hint_to_ask_for_more():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", "cpu=1,mem=2m", min_instances=1)
        die(lab)
        die(lab)
        assert lab.why("s").suggestions[0] == "ask for more memory than mem=2Mi"


def test_a_retry_starts_at_once():
    with Lab(a_node(cpu=1)) as lab:
        lab.engine.bind_code["s"] = BindCode.ENTER_FAILED
        lab.session("s", tasks=1)
        lab.engine.bind_code.clear()
        lab.service.sessions.clear_failures("s", lambda: None)
        lab.pump()
        assert lab.states("s") == ["running"]


def test_a_closed_session_is_not_retried():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s")
        lab.service.sessions.close("s", lambda: None)
        with pytest.raises(Conflict, match="session s is closed"):
            lab.service.sessions.clear_failures("s", lambda: None)


def test_executors_that_end_before_their_first_task_are_given_up_too():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", min_instances=1)
        for _ in range(20):
            die(lab)
            lab.pass_time(60)
        assert len(lab.engine.launched) == RETRY_LIMIT
        assert lab.why("s").code is Code.BIND_FAILURES


def test_an_executor_that_did_a_task_and_ends_later_is_no_failed_start():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1, min_instances=1)
        lab.finish("s")
        die(lab)
        assert failures(lab) == 0
        assert lab.held("s") == 1


def test_a_task_that_kills_its_executor_is_blamed_itself():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=4)
        for _ in range(7):
            die(lab)
        assert failures(lab) == 0
        assert lab.counts("s")["failed"] == 2


def test_the_end_of_the_server_is_no_failure_of_a_session():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=1, min_instances=2)
        lab.service.executors.expect_end()
        die(lab, "stopped")
        assert failures(lab) == 0
        assert lab.service.state.session("s").tasks[1].losses == 0


@pytest.mark.parametrize("amount", ["1", "4096", "1023k"])
def test_memory_in_which_no_process_starts_is_refused(amount):
    with Lab(a_node(cpu=1)) as lab, pytest.raises(InvalidRequest) as caught:
        lab.session("s", f"cpu=1,mem={amount}")
    assert caught.value.field == "resreq.mem"
    assert "it counts bytes, and a process needs at least 1Mi; write mem=1g" in str(caught.value)


@pytest.mark.parametrize(
    ("amount", "warned"), [("0", False), ("2m", True), ("31m", True), ("32m", False), ("1g", False)]
)
def test_memory_in_which_python_may_not_start_is_warned_of(amount, warned):
    text = memory_warning(ResourceRequirement.from_string(f"cpu=1,mem={amount}"))
    assert (text is not None) is warned


def test_an_executor_that_leaves_a_session_at_its_end_is_an_event():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("old", tasks=1, close_when_done=True)
        lab.session("new", tasks=1)
        lab.finish("old")
        reported = [event.message for event in lab.service.events.recent if event.kind == "executor.reclaimed"]
        assert reported == ["gives way to new: its own session has nothing left to run"]
        assert lab.states("new") == ["running"]
