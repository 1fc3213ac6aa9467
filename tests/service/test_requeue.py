"""Work that runs again."""

from pathlib import Path

import pytest
from tests.lab import Lab, Machine, a_node

from ullage.model.error import Conflict, InvalidRequest
from ullage.model.session import SessionState
from ullage.model.task import TaskState
from ullage.service.requeue import Requeue
from ullage.service.store_port import Page

FAILED = (TaskState.FAILED,)


def again(lab: Lab, name: str, *tasks: int, states: tuple[TaskState, ...] = FAILED) -> str:
    requeue: Requeue = lab.service.requeue
    record = requeue.again(name, requeue.ended(name, states, tasks), lambda: None)
    lab.pump()
    return record.id


def test_running_tasks_wait_again_and_run_once_more_without_a_loss() -> None:
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=3)
        assert lab.service.requeue.running("s", (), lambda: None) == 2
        lab.pump()
        assert lab.counts("s") == {"pending": 1, "running": 2, "succeed": 0, "failed": 0, "cancelled": 0}
        assert {task.losses for task in lab.service.state.session("s").tasks.values()} == {0}
        assert len(lab.engine.launched) == 4
        lab.finish("s", 3)
        assert lab.counts("s")["succeed"] == 3


def test_one_task_of_several_is_requeued() -> None:
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2)
        before = set(lab.engine.workers)
        assert lab.service.requeue.running("s", {2}, lambda: None) == 1
        lab.pump()
        assert len(before - set(lab.engine.workers)) == 1


def test_a_gang_is_requeued_as_a_whole() -> None:
    with Lab(a_node(cpu=2)) as lab:
        lab.session("g", tasks=2, batch_size=2)
        lab.service.requeue.running("g", {1}, lambda: None)
        lab.pump()
        lab.finish("g", 2)
        assert lab.counts("g")["succeed"] == 2
        assert len(lab.engine.launched) == 4


def test_the_failed_tasks_of_a_closed_session_run_again_in_a_new_one(tmp_path: Path) -> None:
    with Machine(str(tmp_path / "db"), a_node(cpu=1)) as lab:
        lab.session("s", tasks=3, close_when_done=True, array="5,7,9", max_instances=1)
        for code in (0, 3, 4):
            lab.finish("s", code=code)
        lab.restart()
        new = again(lab, "s")
        spec = lab.service.state.session(new).session.spec
        assert (spec.array, spec.max_instances, spec.close_when_done) == ("7,9", 1, True)
        lab.restart()
        lab.finish(new, 2)
        assert lab.service.state.session(new).session.state is SessionState.CLOSED
        assert lab.counts(new)["succeed"] == 2
        assert lab.counts("s")["failed"] == 2


def test_cancelled_tasks_run_again_only_where_they_are_asked_for() -> None:
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=2)
        lab.finish("s", code=1)
        lab.service.sessions.cancel("s", lambda: None)
        lab.pump()
        assert len(lab.service.state.session(again(lab, "s")).tasks) == 1
        both = (TaskState.FAILED, TaskState.CANCELLED)
        assert len(lab.service.state.session(again(lab, "s", states=both)).tasks) == 2


def test_there_must_be_something_to_run_again() -> None:
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s")
        with pytest.raises(Conflict, match="session s has no running task") as refusal:
            lab.service.requeue.running("s", (), lambda: None)
        assert refusal.value.code == "nothing-to-requeue"
        lab.submit("s", 1)
        with pytest.raises(Conflict, match="of these numbers"):
            lab.service.requeue.running("s", {7}, lambda: None)
        lab.finish("s")
        with pytest.raises(InvalidRequest, match="it is open"):
            lab.service.requeue.again("s", [], lambda: None)
        lab.service.sessions.close("s", lambda: None)
        with pytest.raises(Conflict, match="session s has no failed task"):
            again(lab, "s")


def test_the_store_returns_the_inputs_of_ended_tasks_a_page_at_a_time(tmp_path: Path) -> None:
    with Machine(str(tmp_path / "db"), a_node(cpu=1)) as lab:
        lab.session("s")
        lab.service.tasks.submit("s", "k", [b"a", b"b" * 10_000, b"c"], b"shared", lambda *_: None)
        lab.pump()
        for code in (1, 1, 0):
            lab.finish("s", code=code)
        first = lab.store.ended("s", FAILED, Page(0, 1))
        assert [(task.task, task.submission, task.input) for task in first] == [(1, 1, b"a")]
        assert [task.input for task in lab.store.ended("s", FAILED, Page(1, 9))] == [b"b" * 10_000]
        assert lab.store.ended("nobody", FAILED, Page()) == []
        assert (lab.store.shared("s", 1), lab.store.shared("s", 2)) == (b"shared", None)
