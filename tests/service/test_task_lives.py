"""Tasks and sessions from birth to end, through the real service on simulated nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest
from tests.lab import Lab, Machine, a_node

from ullage.core.placing.policy import Policy
from ullage.model.application import Application, ApplicationState
from ullage.model.error import AlreadyExists, Conflict, InvalidRequest, NotFound
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec, SessionState, Setup
from ullage.model.task import LOST, LOST_LIMIT, TIMED_OUT
from ullage.service import tasks
from ullage.service.engine_port import Completed, EngineEvent, ExecutorGone, Returned, TaskOutcome
from ullage.service.store_port import Page


class Held(deque):
    """Reports on their way: those for which `late` holds arrive when `arrive` is called."""

    def __init__(self, late: Callable[[EngineEvent], bool]) -> None:
        super().__init__()
        self._late = late
        self.waiting: list[EngineEvent] = []

    def append(self, event: EngineEvent) -> None:
        if self._late(event):
            self.waiting.append(event)
        else:
            super().append(event)

    def arrive(self, lab: Lab) -> None:
        self._late = lambda _: False
        self.extend(self.waiting)
        lab.pump()


def hold(lab: Lab, *kinds: type) -> Held:
    lab.engine.events = Held(lambda event: isinstance(event, kinds))
    return lab.engine.events


def nothing() -> None:
    pass


def spec(resreq: str = "cpu=1", **facts: object) -> SessionSpec:
    return SessionSpec("function", ResourceRequirement.from_string(resreq), **facts)


def codes(lab: Lab, name: str = "s") -> list[int]:
    return [r.code for r in lab.service.store.results(name, Page(0, 1000))]


def results(lab: Lab, name: str = "s") -> list[tuple[int, str, str]]:
    return [(r.task, r.state.value, r.message) for r in lab.service.store.results(name, Page(0, 1000))]


def at_work(lab: Lab, name: str = "s") -> dict[int, str]:
    """The task each worker is at, and the worker."""
    return {w.tasks[0].task: e for e, w in sorted(lab.engine.workers.items()) if lab._works_for(w, name)}


def kinds(lab: Lab, name: str = "s") -> list[str]:
    return [event.kind for event in lab.store.events(Page(0, 10_000), name)]


def close(lab: Lab, name: str = "s") -> None:
    lab.service.sessions.close(name, nothing)
    lab.pump()


def cancel_session(lab: Lab, name: str = "s") -> None:
    lab.service.sessions.cancel(name, nothing)
    lab.pump()


# --- ids, order, data -----------------------------------------------------------------------------


def test_tasks_are_numbered_from_one_in_each_session():
    with Lab(a_node()) as lab:
        lab.session("s")
        lab.session("t")
        assert [lab.submit("s", 2), lab.submit("t", 3), lab.submit("s", 1)] == [(1, 2), (1, 3), (3, 1)]


def test_a_repeated_submission_is_the_same_submission():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s")
        assert lab.submit("s", 2, "once") == lab.submit("s", 2, "once") == (1, 2)
        assert len(lab.states("s")) == 2


def test_tasks_are_served_in_order_of_their_ids_also_after_one_came_back():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=4, task_timeout_s=1000)
        lab.engine.kill(at_work(lab)[1])
        lab.pump()
        order = []
        while at_work(lab):
            order.extend(at_work(lab))
            lab.finish("s")
        assert order == [1, 2, 3, 4]


def test_each_worker_sees_the_common_data_of_its_own_session():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=1, common_data=b"of s")
        lab.session("t", tasks=1, common_data=b"of t")
        seen = {worker.bound.session: worker.bound.common_data for worker in lab.engine.workers.values()}
        assert seen == {"s": b"of s", "t": b"of t"}


def test_a_reused_worker_gets_the_data_of_its_new_session():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1, common_data=b"of s")
        lab.finish("s")
        close(lab)
        lab.session("t", tasks=1, common_data=b"of t")
        assert [w.bound.common_data for w in lab.engine.workers.values()] == [b"of t"]
        assert len(lab.engine.launched) == 1


@pytest.mark.parametrize("count", [0, 100_001])
def test_a_submission_has_1_to_100000_tasks(count):
    with Lab(a_node()) as lab:
        lab.session("s")
        with pytest.raises(InvalidRequest, match="inputs"):
            lab.service.tasks.submit("s", "k", [b""] * count, None, lambda *_: None)


# --- failures and losses --------------------------------------------------------------------------


def test_a_failing_task_fails_at_once_and_affects_no_other():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=2)
        lab.finish("s", code=3, message="division by zero")
        lab.finish("s")
        assert results(lab) == [(1, "failed", "division by zero"), (2, "succeed", "")]
        assert lab.counts("s") == {"pending": 0, "running": 0, "succeed": 1, "failed": 1, "cancelled": 0}
        assert lab.service.state.session("s").open


@pytest.mark.parametrize("own", [True, False], ids=["of the session", "of the application"])
def test_retries(own):
    with Lab(a_node(cpu=1)) as lab:
        app = Application("app", command="/bin/app", retries=0 if own else 2)
        lab.service.catalog.put_application(app, nothing)
        lab.service.sessions.create("s", SessionSpec("app", retries=2 if own else None), nothing)
        lab.pump()
        lab.submit("s", 1)
        for _ in range(2):
            lab.finish("s", code=1, message="again")
            assert lab.counts("s")["running"] == 1
        lab.finish("s", code=1, message="for good")
        assert results(lab) == [(1, "failed", "for good")]


def test_a_task_whose_executor_is_lost_again_and_again_fails_with_the_reason():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        for lost in range(1, LOST_LIMIT):
            lab.engine.kill(at_work(lab)[1], "out of memory")
            lab.pump()
            assert (lab.counts("s")["running"], lab.service.state.session("s").tasks[1].losses) == (1, lost)
        lab.engine.kill(at_work(lab)[1], "out of memory")
        lab.pump()
        assert results(lab) == [(1, "failed", "its executor was lost 3 times, last: out of memory")]
        assert codes(lab) == [LOST]


def test_only_the_task_in_progress_is_blamed_for_a_loss():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        lab.finish("s")
        lab.submit("s", 5)
        (executor,) = at_work(lab).values()
        assert len(lab.engine.workers[executor].tasks) > 1
        lab.engine.kill(executor)
        lab.pump()
        assert {task.id: task.losses for task in lab.service.state.session("s").tasks.values()} == {
            2: 1,
            3: 0,
            4: 0,
            5: 0,
            6: 0,
        }


def test_a_task_put_back_for_another_session_is_not_counted_as_lost():
    with Lab(a_node(cpu=2), policy=Policy(reclaim_grace_s=0)) as lab:
        lab.session("s", tasks=2)
        lab.session("t", tasks=2)
        lab.pass_time(1)
        assert (lab.held("s"), lab.held("t")) == (1, 1)
        assert [task.losses for task in lab.service.state.session("s").tasks.values()] == [0, 0]


def test_a_result_with_an_old_claim_changes_nothing():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        first = at_work(lab)[1]
        old = lab.engine.workers[first].tasks[0].claim
        lab.engine.kill(first)
        lab.pump()
        second = at_work(lab)[1]
        before = lab.counts("s")
        for executor in (first, second):
            late = TaskOutcome(1, old, 0, b"late", "", lab.now, lab.now)
            lab.service.on_engine_event(Completed(executor, (late,)))
            lab.service.on_engine_event(Returned(executor, (old,)))
            lab.pump()
            assert (lab.counts("s"), results(lab)) == (before, [])
        lab.finish("s")
        assert results(lab) == [(1, "succeed", "")]


def test_a_result_that_comes_twice_counts_once():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        (executor,) = at_work(lab).values()
        order = lab.engine.workers[executor].tasks[0]
        outcome = TaskOutcome(1, order.claim, 0, b"", "", lab.now, lab.now)
        for _ in range(2):
            lab.service.on_engine_event(Completed(executor, (outcome,)))
        lab.pump()
        assert lab.counts("s")["succeed"] == 1


def test_claims_grow_with_every_hand_out():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        claims = []
        for _ in range(2):
            (executor,) = at_work(lab).values()
            claims.append(lab.engine.workers[executor].tasks[0].claim)
            lab.engine.kill(executor)
            lab.pump()
        assert claims[0] < claims[1]


def test_a_task_that_a_worker_returns_goes_to_another_worker():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=1, max_instances=2)
        lab.finish("s")
        lab.submit("s", 6)
        executor, worker = next((e, w) for e, w in lab.engine.workers.items() if len(w.tasks) > 1)
        back = [worker.tasks.pop() for _ in range(len(worker.tasks) - 1)]
        lab.engine.events.append(Returned(executor, tuple(task.claim for task in back)))
        lab.pump()
        while at_work(lab):
            lab.finish("s")
        assert lab.counts("s")["succeed"] == 7


# --- time limits and cancelling -------------------------------------------------------------------


def test_a_task_that_runs_too_long_fails_and_the_others_go_on():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=2, task_timeout_s=10)
        lab.pass_time(9)
        assert lab.counts("s")["failed"] == 0
        lab.pass_time(1)
        assert results(lab) == [(1, "failed", "ran longer than its limit of 10 s")]
        assert codes(lab) == [TIMED_OUT]
        assert list(at_work(lab)) == [2]


def test_the_time_of_a_limit_begins_when_the_task_is_handed_out():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=2, task_timeout_s=10)
        lab.pass_time(8)
        lab.finish("s")
        lab.pass_time(8)
        assert lab.counts("s")["failed"] == 0
        assert lab.service.tick() == lab.now + 2


def test_a_pending_task_is_cancelled_at_once_and_a_running_one_with_its_executor():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=3)
        lab.service.tasks.cancel("s", 2)
        lab.pump()
        assert results(lab) == [(2, "cancelled", "cancelled")]
        lab.service.tasks.cancel("s", 1)
        lab.pump()
        assert results(lab)[1:] == [(1, "cancelled", "cancelled")]
        assert list(at_work(lab)) == [3]
        assert lab.service.state.session("s").tasks[3].losses == 0


def test_cancelling_what_has_ended_has_no_effect_and_what_never_was_is_unknown():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        lab.finish("s")
        lab.service.tasks.cancel("s", 1)
        assert results(lab) == [(1, "succeed", "")]
        for session, task in (("s", 2), ("s", 0), ("t", 1)):
            with pytest.raises(NotFound):
                lab.service.tasks.cancel(session, task)


def test_tasks_behind_a_cancelled_one_go_back_unblamed():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        lab.finish("s")
        lab.submit("s", 4)
        lab.service.tasks.cancel("s", 2)
        lab.pump()
        assert [task.losses for task in lab.service.state.session("s").tasks.values()] == [0, 0, 0]
        while at_work(lab):
            lab.finish("s")
        assert lab.counts("s") == {"pending": 0, "running": 0, "succeed": 4, "failed": 0, "cancelled": 1}


def test_a_cancelled_task_that_fails_while_it_is_stopped_is_not_retried():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1, retries=1)
        reports = hold(lab, ExecutorGone)
        lab.service.tasks.cancel("s", 1)
        lab.engine.finish(at_work(lab)[1] if at_work(lab) else next(iter(lab.engine.workers)), code=1)
        lab.pump()
        reports.arrive(lab)
        assert (lab.counts("s")["running"], lab.counts("s")["pending"]) == (0, 0)


def test_a_cancelled_session_closes_also_if_a_task_with_retries_fails_meanwhile():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1, retries=1)
        reports = hold(lab, ExecutorGone)
        cancel_session(lab)
        lab.engine.finish(next(iter(lab.engine.workers)), code=1)
        lab.pump()
        reports.arrive(lab)
        assert not lab.service.state.session("s").open


def test_a_session_of_many_tasks_is_cancelled_in_steps_also_over_a_restart(tmp_path, monkeypatch):
    """Between two steps others are answered; none of its tasks is handed out any more."""
    monkeypatch.setattr(tasks, "MOST_PER_WRITE", 10)
    with Machine(f"sqlite:///{tmp_path / 'state.db'}", a_node(cpu=2)) as lab:
        lab.session("s", tasks=30, max_instances=2)
        lab.service.sessions.cancel("s", nothing)
        lab.store.write().result()
        record = lab.service.state.session("s")
        assert (record.pending, record.open, record.takes_tasks) == (30 - 2 - 10, True, False)
        lab.restart()
        record = lab.service.state.session("s")
        assert not lab.claims()
        assert lab.counts("s") == {"pending": 0, "running": 0, "succeed": 0, "failed": 0, "cancelled": 30}
        assert not record.open


def test_each_turn_ends_some_tasks_of_a_cancelled_session(monkeypatch):
    monkeypatch.setattr(tasks, "MOST_PER_WRITE", 10)
    with Lab(a_node(cpu=2)) as lab:
        record = lab.session("s", tasks=30, max_instances=2)
        left = [record.pending]
        lab.service.sessions.cancel("s", nothing)
        left.append(record.pending)
        while record.pending:
            lab.service.tick()
            left.append(record.pending)
        assert [before - after for before, after in pairwise(left)] == [10, 10, 8]
        lab.pump()
        assert not record.open


def test_a_cancelled_session_closes_also_if_a_worker_gives_tasks_back_meanwhile():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        lab.finish("s")
        lab.submit("s", 10)
        ((executor, worker),) = lab.engine.workers.items()
        behind = tuple(order.claim for order in list(worker.tasks)[1:])
        reports = hold(lab, ExecutorGone)
        cancel_session(lab)
        lab.engine.events.append(Returned(executor, behind))
        lab.pump()
        reports.arrive(lab)
        assert not lab.service.state.session("s").open


# --- sessions -------------------------------------------------------------------------------------


def test_closing_cancels_what_is_pending_and_twice_is_fine():
    with Lab() as lab:
        lab.session("s", tasks=3)
        close(lab)
        close(lab)
        assert lab.states("s") == ["cancelled"] * 3
        assert lab.service.state.session("s").session.state is SessionState.CLOSED
        assert kinds(lab).count("session.closed") == 1


def test_closing_is_refused_while_a_task_runs_and_changes_nothing():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=2)
        with pytest.raises(Conflict, match="1 running") as refusal:
            lab.service.sessions.close("s", nothing)
        assert refusal.value.code == "tasks-running"
        assert lab.states("s") == ["running", "pending"]


def test_a_closed_session_takes_no_tasks_and_no_changes():
    with Lab(a_node()) as lab:
        lab.session("s")
        close(lab)
        for refused in (
            lambda: lab.submit("s", 1),
            lambda: lab.service.sessions.update("s", {"priority": 3}, nothing),
            lambda: lab.service.sessions.open("s", None, nothing),
        ):
            with pytest.raises(Conflict, match="closed"):
                refused()


def test_a_submission_known_before_the_close_is_still_answered_after_it():
    with Lab() as lab:
        lab.session("s")
        first = lab.submit("s", 2, "k")
        close(lab)
        assert lab.submit("s", 2, "k") == first


def test_cancelling_a_session_ends_all_its_tasks_and_closes_it():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=5)
        cancel_session(lab)
        assert lab.states("s") == ["cancelled"] * 5
        assert not lab.service.state.session("s").open
        assert not lab.executors
        cancel_session(lab)
        assert kinds(lab).count("session.cancelled") == 1


def test_a_session_being_cancelled_takes_no_tasks():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        reports = hold(lab, ExecutorGone)
        cancel_session(lab)
        with pytest.raises(Conflict, match="being cancelled"):
            lab.submit("s", 1)
        assert lab.service.state.session("s").open
        reports.arrive(lab)
        assert not lab.service.state.session("s").open


def test_an_open_session_is_not_deleted_and_a_closed_one_is_gone_with_all_it_had():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        lab.finish("s")
        with pytest.raises(Conflict, match="close it before"):
            lab.service.sessions.delete("s", nothing)
        close(lab)
        lab.pass_time(1)
        lab.service.sessions.delete("s", nothing)
        lab.pump()
        with pytest.raises(NotFound):
            lab.service.state.session("s")
        assert lab.store.tasks("s", Page()) == lab.store.results("s", Page()) == lab.store.events(Page(), "s") == []
        lab.session("s", tasks=1)
        assert lab.states("s") == ["running"]


def test_a_session_closed_with_pending_tasks_can_be_deleted():
    with Lab() as lab:
        lab.session("s", tasks=3)
        close(lab)
        lab.service.sessions.delete("s", nothing)
        lab.pump()
        assert not lab.service.state.sessions


def test_deleting_a_session_while_a_submission_is_on_its_way_is_survived():
    with Lab() as lab:
        lab.session("s")
        lab.service.tasks.submit("s", "k", [b"x"], None, lambda *_: None)
        lab.service.sessions.close("s", nothing)
        with suppress(Conflict):
            lab.service.sessions.delete("s", nothing)
        lab.pump()


def test_a_session_made_again_at_once_is_a_new_session():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=1, max_instances=1)
        lab.finish("s")
        lab.service.sessions.close("s", nothing)
        lab.service.sessions.delete("s", nothing)
        lab.session("s", tasks=1, max_instances=1)
        assert lab.states("s") == ["running"]


def test_the_same_id_twice_is_refused():
    with Lab() as lab:
        lab.session("s")
        with pytest.raises(AlreadyExists, match="session s exists already"):
            lab.session("s")


def test_a_session_without_an_id_gets_one_from_its_application():
    with Lab() as lab:
        ids = {lab.service.sessions.create(None, spec(), nothing).id for _ in range(20)}
        assert len(ids) == 20
        assert all(name.startswith("function-") for name in ids)


def test_opening_twice_gives_the_same_session():
    with Lab() as lab:
        first = lab.service.sessions.open("s", spec(weight=2), nothing)
        assert lab.service.sessions.open("s", spec(weight=2), nothing) is first
        assert lab.service.sessions.open("s", None, nothing) is first


@pytest.mark.parametrize("same", [{"priority": 0}, {"common_data": b"other"}, {"priority": 7}], ids=str)
def test_opening_does_not_compare(same):
    with Lab() as lab:
        first = lab.service.sessions.open("s", spec(priority=7, common_data=b"data"), nothing)
        assert lab.service.sessions.open("s", spec(**same), nothing) is first


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("resreq", spec("cpu=2")),
        ("min_instances", spec(min_instances=1)),
        ("max_instances", spec(max_instances=2)),
        ("batch_size", spec(batch_size=2)),
        ("weight", spec(weight=2)),
        ("priority", spec(priority=3)),
        ("application", SessionSpec("command", ResourceRequirement.from_string("cpu=1"))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_opening_with_another_spec_names_the_field(field, other):
    with Lab() as lab:
        lab.service.sessions.open("s", spec(priority=7), nothing)
        with pytest.raises(InvalidRequest) as refusal:
            lab.service.sessions.open("s", other, nothing)
        assert refusal.value.field == field
        assert field in refusal.value.message


def test_opening_an_unknown_session_without_a_spec_is_not_found():
    with Lab() as lab, pytest.raises(NotFound, match="session s does not exist"):
        lab.service.sessions.open("s", None, nothing)


def test_a_session_of_an_unknown_or_disabled_application_or_queue_is_refused():
    with Lab() as lab:
        lab.service.catalog.put_application(Application("off", "/bin/x", state=ApplicationState.DISABLED), nothing)
        with pytest.raises(Conflict, match="off is disabled"):
            lab.service.sessions.create("s", SessionSpec("off"), nothing)
        with pytest.raises(NotFound, match="application other does not exist"):
            lab.service.sessions.create("s", SessionSpec("other"), nothing)
        with pytest.raises(NotFound, match="queue none does not exist"):
            lab.service.sessions.create("s", spec(queue="none"), nothing)
        assert not lab.service.state.sessions


def test_an_application_with_open_sessions_stays_and_an_update_replaces_it():
    with Lab() as lab:
        catalog = lab.service.catalog
        catalog.put_application(Application("app", "/bin/x", labels=("old",), max_instances=3), nothing)
        lab.service.sessions.create("s", SessionSpec("app"), nothing)
        lab.pump()
        with pytest.raises(Conflict, match="open sessions"):
            catalog.drop_application("app", nothing)
        catalog.put_application(Application("app", "/bin/y", working_directory="/srv"), nothing)
        assert lab.service.state.application("app") == Application("app", "/bin/y", working_directory="/srv")
        close(lab)
        catalog.drop_application("app", nothing)
        assert "app" not in lab.service.state.applications


def test_a_change_of_priority_weight_or_bounds_takes_effect():
    with Lab(a_node(cpu=4)) as lab:
        lab.session("s", tasks=10, max_instances=1)
        lab.service.sessions.update("s", {"max_instances": 3, "weight": 2}, nothing)
        lab.pump()
        assert lab.held("s") == 3
        with pytest.raises(InvalidRequest, match="max_instances"):
            lab.service.sessions.update("s", {"min_instances": 4}, nothing)
        assert lab.service.state.session("s").session.spec.min_instances == 0


def test_a_lowered_maximum_lets_executors_go_after_their_task():
    with Lab(a_node(cpu=4)) as lab:
        lab.session("s", tasks=10, task_timeout_s=1000)
        lab.service.sessions.update("s", {"max_instances": 1}, nothing)
        lab.pump()
        assert (lab.held("s"), lab.counts("s")["running"]) == (1, 4)
        lab.finish("s", 4)
        assert lab.held("s") == 1


def test_a_setup_is_part_of_what_is_launched():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1, setup=Setup(python="/opt/python"))
        assert lab.engine.launched[0].setup == Setup(python="/opt/python")
