"""Sessions that run after others, or at a time."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab import Lab, Machine, a_node

from ullage.model.dependency import parse_dependencies
from ullage.model.error import Conflict, InvalidRequest, NotFound
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec, SessionState
from ullage.model.session_state import NEVER
from ullage.service.engine_port import NodeReported


def after(*texts: str) -> dict:
    return {"after": parse_dependencies(list(texts)), "close_when_done": True}


def state(lab: Lab, name: str) -> tuple[SessionState, bool]:
    session = lab.service.state.session(name).session
    return session.state, session.cancelled


def cancel(lab: Lab, name: str) -> None:
    lab.service.sessions.cancel(name, lambda: None)
    lab.pump()


def delete(lab: Lab, name: str) -> None:
    lab.service.sessions.delete(name, lambda: None)
    lab.pump()


OPEN, CANCELLED, ENDED = (SessionState.OPEN, False), (SessionState.CLOSED, True), (SessionState.CLOSED, False)


@pytest.mark.parametrize(
    ("kind", "code", "runs"),
    [("ok", 0, True), ("ok", 1, False), ("fail", 0, False), ("fail", 1, True), ("end", 0, True), ("end", 1, True)],
)
def test_a_session_runs_or_is_cancelled_by_how_the_other_ends(kind: str, code: int, runs: bool) -> None:
    with Lab(a_node()) as lab:
        lab.session("prep", tasks=1, close_when_done=True)
        lab.session("train", tasks=1, **after(f"{kind}:prep"))
        assert (lab.held("prep"), lab.held("train")) == (1, 0)
        lab.finish("prep", code=code)
        assert state(lab, "prep") == ENDED
        assert lab.held("train") == runs
        assert state(lab, "train") == (OPEN if runs else CANCELLED)


def test_why_names_the_sessions_that_it_waits_for_and_how_far_they_are() -> None:
    with Lab(a_node(cpu=1)) as lab:
        lab.session("prep", tasks=3, close_when_done=True)
        lab.session("train", tasks=1, **after("ok:prep"))
        why = lab.why("train")
        assert why.code is Code.DEPENDENCY
        assert why.summary == "it waits for the success of prep, which has 1 running task and 2 pending"


def test_a_dependency_that_cannot_be_fulfilled_any_more_is_the_reason_of_the_cancellation() -> None:
    with Lab(a_node()) as lab:
        lab.session("prep", tasks=2, close_when_done=True)
        lab.session("train", tasks=1, **after("ok:prep"))
        lab.finish("prep", count=2, code=3)
        reason = "it was to run after ok:prep, which cannot happen any more: prep ended with 2 tasks failed"
        assert lab.service.state.session("train").session.cancel_reason == reason
        assert lab.why("train").summary == f"the session is closed: {reason}; of 1 task 1 cancelled"
        with pytest.raises(Conflict, match=r"closed \(it was to run after ok:prep"):
            lab.submit("train", 1)


def test_a_chain_of_dependents_is_cancelled_to_its_end() -> None:
    with Lab(a_node()) as lab:
        lab.session("s0", tasks=1, close_when_done=True)
        for number in range(1, 1200):  # deeper than Python's stack
            lab.service.sessions.create(f"s{number}", _like(lab, f"ok:s{number - 1}"), lambda: None)
        cancel(lab, "s0")
        assert {state(lab, f"s{number}") for number in range(1200)} == {CANCELLED}


def _like(lab: Lab, dependency: str) -> SessionSpec:
    return replace(lab.service.state.session("s0").session.spec, after=parse_dependencies([dependency]))


def test_all_of_several_dependencies_must_be_fulfilled() -> None:
    with Lab(a_node()) as lab:
        lab.session("a", tasks=1, close_when_done=True)
        lab.session("b", tasks=1, close_when_done=True)
        lab.session("c", tasks=1, **after("ok:a", "end:b"))
        lab.finish("a")
        assert [str(each) for each in lab.service.state.session("c").session.awaits] == ["end:b"]
        assert lab.held("c") == 0
        lab.finish("b", code=1)
        assert lab.held("c") == 1


def test_a_session_starts_after_the_start_of_another_one() -> None:
    with Lab() as lab:
        lab.session("server", tasks=1)
        lab.session("client", tasks=1, **after("start:server"))
        assert lab.why("client").code is Code.DEPENDENCY
        lab.service.on_engine_event(NodeReported(a_node()))
        lab.pump()
        assert (lab.held("server"), lab.held("client")) == (1, 1)


def test_a_session_that_ends_without_a_start_cancels_those_that_wait_for_its_start() -> None:
    with Lab() as lab:
        lab.session("server", tasks=1)
        lab.session("client", tasks=1, **after("start:server"))
        cancel(lab, "server")
        assert state(lab, "client") == CANCELLED


def test_dependencies_survive_a_restart_and_the_deletion_of_the_other_session(tmp_path: Path) -> None:
    with Machine(str(tmp_path / "db"), a_node()) as lab:
        lab.session("prep", tasks=1, close_when_done=True)
        lab.session("more", tasks=1, close_when_done=True)
        lab.session("train", tasks=1, **after("ok:prep", "ok:more"))
        lab.restart()
        lab.finish("prep")
        delete(lab, "prep")
        lab.restart()
        assert lab.held("train") == 0
        lab.finish("more")
        assert lab.held("train") == 1


def test_a_session_of_the_same_id_is_another_one() -> None:
    with Lab(a_node()) as lab:
        lab.session("prep", tasks=1, close_when_done=True)
        lab.session("train", tasks=1, **after("ok:prep"))
        lab.finish("prep")
        delete(lab, "prep")
        lab.session("prep", tasks=1, **after("ok:train"))
        assert (lab.held("train"), lab.held("prep")) == (1, 0)
        lab.finish("train")
        assert lab.held("prep") == 1


def test_a_session_may_only_name_other_sessions_that_exist() -> None:
    with Lab(a_node()) as lab:
        lab.session("prep", tasks=1)
        with pytest.raises(NotFound, match="session prap does not exist; did you mean prep"):
            lab.session("train", **after("ok:prap"))
        with pytest.raises(InvalidRequest, match="a session cannot wait for itself"):
            lab.session("train", **after("ok:train"))
        with pytest.raises(InvalidRequest, match="the session exists with other dependencies"):
            lab.service.sessions.open("prep", _spec(after=parse_dependencies(["ok:prep"])), lambda: None)
        assert set(lab.service.state.sessions) == {"prep"}


def _spec(**fields: object) -> SessionSpec:
    return SessionSpec("function", ResourceRequirement.from_string("cpu=1"), **fields)


def test_what_can_never_happen_is_refused_at_once() -> None:
    with Lab(a_node()) as lab:
        lab.session("prep", tasks=1, close_when_done=True)
        lab.finish("prep", code=1)
        with pytest.raises(Conflict, match="ok:prep can never be fulfilled: prep ended with 1 task failed"):
            lab.session("train", **after("ok:prep"))
        lab.session("cleanup", tasks=1, **after("fail:prep"))
        assert lab.held("cleanup") == 1


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("prep", "write ok:ID"),
        ("okay:prep", "did you mean ok"),
        ("afterok:prep", "did you mean ok:prep"),
        ("ok:", "letters, digits"),
    ],
)
def test_a_malformed_dependency_is_refused_with_its_form(text: str, fix: str) -> None:
    with pytest.raises(InvalidRequest, match=fix):
        parse_dependencies([text])


def test_a_session_begins_at_its_time_also_after_a_restart(tmp_path: Path) -> None:
    with Machine(str(tmp_path / "db"), a_node()) as lab:
        lab.session("night", tasks=1, begin_at=lab.now + 100)
        assert lab.why("night").code is Code.BEGIN_TIME
        assert lab.why("night").summary.startswith("it begins at 1970-01-01 ")
        assert lab.service.tick() == pytest.approx(lab.now + 100)
        lab.restart()
        lab.pass_time(99)
        assert lab.held("night") == 0
        lab.pass_time(1)
        assert lab.held("night") == 1


def test_a_session_that_is_held_starts_no_further_task_and_one_that_is_let_go_does(tmp_path: Path) -> None:
    with Machine(str(tmp_path / "db"), a_node()) as lab:
        lab.session("runs", tasks=1)
        lab.session("waits", tasks=1, begin_at=NEVER)
        lab.pass_time(1)
        assert (lab.held("runs"), lab.held("waits")) == (1, 0)
        assert lab.why("waits").summary == "it is held until its begin is changed"
        lab.service.sessions.update("runs", {"begin_at": NEVER}, lambda: None)
        lab.pass_time(1)
        assert lab.held("runs") == 1
        lab.restart()
        lab.service.sessions.update("waits", {"begin_at": lab.now + 10}, lambda: None)
        lab.pass_time(9)
        assert lab.held("waits") == 0
        lab.pass_time(1)
        assert lab.held("waits") == 1


@pytest.mark.parametrize("at", [-1.0, float("nan"), float("inf")])
def test_a_begin_that_is_no_time_is_refused(at: float) -> None:
    with pytest.raises(InvalidRequest, match="begin_at"):
        _spec(begin_at=at)
