"""Estimates of starts: the cycle run forward on a copy of the books, compared with what really happens."""

from __future__ import annotations

import pytest
from tests.lab import Lab, a_node

from ullage.core.placing.policy import Policy
from ullage.core.verdict.sentences import MEANINGS
from ullage.model.history import PastSession
from ullage.model.rejection import Code
from ullage.service.foresight import CONFIDENCE, RUNS, Estimate, Judge
from ullage.service.future import FutureStarts
from ullage.service.starts import PAST


def past(lab: Lab) -> list[PastSession]:
    return lab.store.history(PAST, lab.now)


def estimate(lab: Lab, name: str) -> Estimate:
    return lab.service.starts.estimating([name], past(lab))()[name]


def work(lab: Lab, name: str, seconds: float, **spec: object) -> None:
    """Run one task of that many seconds, and close its session."""
    lab.session(name, tasks=1, **spec)
    lab.pass_time(seconds)
    lab.finish(name)
    lab.service.sessions.close(name, lambda: None)
    lab.pump()
    lab.pass_time(61)


def test_a_session_starts_when_those_before_it_have_ended_as_long_ones_as_before() -> None:
    with Lab(a_node(cpu=1)) as lab:
        for number in range(5):
            work(lab, f"past-{number}", 100)
        lab.session("runs", tasks=1, close_when_done=True)
        lab.session("next", tasks=1, close_when_done=True)
        lab.session("last", tasks=1, close_when_done=True)
        lab.pass_time(40)
        found = lab.service.starts.estimating(["next", "last"], past(lab))()
        assert found["next"].at == pytest.approx(lab.now + 60, abs=1)
        assert found["last"].at == pytest.approx(lab.now + 160, abs=1)
        assert "as long as those of 5 sessions before" in found["next"].text


def test_the_range_is_that_of_the_past() -> None:
    with Lab(a_node(cpu=1)) as lab:
        for number, seconds in enumerate(5 * (50, 100, 150, 200)):
            work(lab, f"past-{number}", seconds)
        lab.session("runs", tasks=1, close_when_done=True)
        lab.session("next", tasks=1)
        found = estimate(lab, "next")
        assert found.at is not None
        assert found.earliest is not None
        assert found.latest is not None
        assert lab.now + 50 <= found.earliest <= found.at <= found.latest <= lab.now + 200
        assert found.confidence == CONFIDENCE


def test_a_few_futures_that_end_before_make_the_chance_less_and_most_of_them_leave_no_estimate() -> None:
    with Lab(a_node(cpu=1)) as lab:
        for number in range(5):
            work(lab, f"past-{number}", 100)
        lab.session("runs", tasks=1, close_when_done=True)
        lab.session("next", tasks=1)
        present = lab.service.starts.present(past(lab))()

    def judged(known: int) -> Estimate:
        futures = [FutureStarts(started={"next": lab.now + number}) for number in range(known)]
        cut = [FutureStarts(cut_at=lab.now + 600) for _ in range(RUNS - known)]
        return Judge(present, [*cut, *futures], 0).estimate("next")

    every, most, half, few = judged(RUNS), judged(RUNS - 3), judged(RUNS // 2 + 1), judged(RUNS // 2)
    assert (every.confidence, "never" in every.text) == (CONFIDENCE, False)
    assert (most.earliest, most.at, most.latest) == (lab.now, lab.now + RUNS // 2, lab.now + RUNS - 4)
    assert most.confidence == 0.7
    assert "in 3 of them it starts later than that, or never" in most.text
    assert (half.at, half.confidence) == (half.latest, 0.4)
    assert few.at is None
    assert f"in {RUNS - RUNS // 2} of {RUNS} futures it does not start within the 10 minutes" in few.text


def test_without_a_past_the_time_limit_counts_and_without_both_there_is_no_estimate() -> None:
    with Lab(a_node(cpu=1)) as lab:
        lab.session("runs", tasks=1, close_when_done=True, task_timeout_s=300.0)
        lab.session("next", tasks=1)
        found = estimate(lab, "next")
        assert found.latest is not None
        assert found.latest <= lab.now + 300
        assert "time limit" in found.text
    with Lab(a_node(cpu=1), policy=Policy(reclaim_grace_s=None)) as lab:
        lab.session("runs", tasks=1)
        lab.session("next", tasks=1)
        found = estimate(lab, "next")
        assert (found.at, found.earliest, found.latest) == (None, None, None)
        assert "nothing is known of how long the tasks of 2 sessions run" in found.text


def test_some_sessions_at_once_are_not_expected_to_go_on_arriving_so() -> None:
    """A script submits twenty in two seconds, of small ones that pass the wide one while it waits."""
    with Lab(a_node(cpu=2)) as lab:
        lab.session("runs", "cpu=2", tasks=1, task_timeout_s=600.0)
        for number in range(20):
            lab.session(f"of-a-script-{number}", tasks=1, close_when_done=True, task_timeout_s=30.0)
            lab.pass_time(0.1)
        lab.session("wide", "cpu=2", tasks=1, close_when_done=True, task_timeout_s=600.0)
        found = estimate(lab, "wide")
        assert found.latest is not None, found.text
        assert found.latest <= lab.now + 600 + 20 * 30


def test_what_does_not_wait_or_can_never_start_has_a_reason_and_no_time() -> None:
    with Lab(a_node(cpu=1)) as lab:
        lab.session("runs", tasks=1)
        lab.session("idle")
        lab.session("wide", "cpu=5", tasks=1)
        assert estimate(lab, "runs").text == "it has an executor already"
        assert estimate(lab, "idle").text == "no estimate: it has no tasks that wait"
        assert estimate(lab, "wide").text.startswith("no estimate: ")
        assert {estimate(lab, name).at for name in ("runs", "idle", "wide")} == {None}


def test_what_ended_tasks_of_open_sessions_tell_is_named() -> None:
    with Lab(a_node(cpu=1), policy=Policy(reclaim_grace_s=None)) as lab:
        lab.session("array", tasks=3)
        lab.pass_time(10)
        lab.finish("array")
        lab.session("next", tasks=1)
        assert "tasks as long as those of 1 session before" in estimate(lab, "next").text


def test_an_estimate_changes_nothing() -> None:
    with Lab(a_node(cpu=2, gpus=2), a_node("n2", cpu=2)) as lab:
        work(lab, "past", 10)
        for number in range(6):
            lab.session(f"s{number}", "cpu=1,gpu=1" if number % 2 else "cpu=2", tasks=2)
        before = lab.service.loop.world()
        held = dict(before.fleet.ledger)
        lab.service.starts.estimating(lab.service.starts.waiting(), past(lab))()
        lab.check()
        assert (lab.service.loop.world().executors, dict(lab.service.state.fleet.ledger)) == (before.executors, held)


def test_how_long_a_task_has_run_alone_tells_nothing() -> None:
    with Lab(a_node(cpu=1)) as lab:
        lab.session("runs", tasks=1, close_when_done=True)
        lab.session("next", tasks=1)
        lab.pass_time(40)
        found = estimate(lab, "next")
        assert found.at is None
        assert "nothing is known of how long the tasks of" in found.text


def test_a_begin_that_is_far_away_is_not_foreseen_and_costs_no_more() -> None:
    """Others come every second: all that come in a hundred years are not looked at."""
    with Lab(a_node(cpu=1)) as lab:
        for number in range(10):
            lab.session(f"past-{number}", tasks=1)
            lab.pass_time(1)
        lab.session("night", tasks=1, begin_at=lab.now + 100 * 365 * 86_400)
        found = estimate(lab, "night")
        assert found.at is None
        assert found.text == f"no estimate: {MEANINGS[Code.BEGIN_TIME]}"
        assert "night" in lab.service.starts.waiting(), "who lists the waiting sessions sees the reason"
        lab.session("evening", tasks=1, begin_at=lab.now + 86_400)
        assert "futures it does not start within the" in estimate(lab, "evening").text
