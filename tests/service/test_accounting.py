"""Who held what, when: rows that are stored with what they are about, and outlive it."""

from __future__ import annotations

from pathlib import Path

from tests.lab import Lab, Machine, a_node

from ullage.model.claim import Claim, Request
from ullage.model.history import HistoryQuery, PastSession, Stay, UsageQuery
from ullage.model.past_state import PastState
from ullage.service.store_port import AddEvent, Drop, PutExecutor, PutStay, Record

HOUR = 3600.0


def history(lab: Lab) -> list[PastSession]:
    return lab.store.history(HistoryQuery(), lab.now)


def stays(lab: Lab) -> list[Stay]:
    return lab.store.stays(HistoryQuery())


def end(lab: Lab, name: str) -> None:
    lab.finish(name)
    lab.service.sessions.close(name, lambda: None)
    lab.pump()


def test_a_session_is_accounted_from_its_first_task_to_its_end() -> None:
    with Lab(a_node(cpu=1)) as lab:
        lab.session("first", tasks=1, owner="ann")
        lab.session("second", "cpu=1,mem=1g", owner="bob", close_when_done=True)
        lab.pass_time(50)
        lab.submit("second", 2)
        lab.pass_time(7)
        assert [each.history.state for each in history(lab)] == [PastState.RUNNING, PastState.PENDING]
        lab.finish("first")
        lab.service.sessions.close("first", lambda: None)
        lab.pass_time(100)
        lab.finish("second", code=1)
        lab.pass_time(20)
        lab.finish("second")
        lab.pass_time(1)
        first, second = history(lab)
        assert (first.history.state, first.history.waited_s(lab.now)) == (PastState.SUCCEED, 0.0)
        reported = second.history
        assert (reported.owner, reported.queue, reported.application, reported.resreq) == (
            "bob",
            "default",
            "function",
            "cpu=1,mem=1Gi,gpu=0",
        )
        assert (reported.state, reported.succeed, reported.failed, reported.cancelled) == (PastState.FAILED, 1, 1, 0)
        assert reported.waited_s(lab.now) == (reported.started_at or 0.0) - 1050.0
        assert second.core_s == second.ran_s


def test_the_rows_stay_when_the_session_is_deleted_and_its_number_is_never_used_again(tmp_path: Path) -> None:
    with Machine(str(tmp_path / "state.db"), a_node()) as machine:
        machine.session("gone", tasks=1)
        end(machine, "gone")
        machine.service.sessions.delete("gone", lambda: None)
        machine.pump()
        before = history(machine)
        machine.restart()
        assert history(machine) == before
        assert machine.session("next").session.number == 2


def test_an_executor_is_charged_to_each_session_that_it_works_for_and_to_none_while_it_is_idle() -> None:
    with Lab(a_node(cpu=1, gpus=2)) as lab:
        lab.session("one", "cpu=1,gpu=0.5", tasks=1, owner="ann")
        lab.pass_time(10)
        end(lab, "one")
        lab.pass_time(5)
        lab.session("two", "cpu=1,gpu=0.5", tasks=1, owner="bob")
        lab.pass_time(20)
        end(lab, "two")
        lab.pass_time(5)
        first, second = stays(lab)
        assert first.holder == second.holder
        assert [(each.owner, each.cards, each.cores) for each in (first, second)] == [("ann", 0.5, 1), ("bob", 0.5, 1)]
        assert [(each.ended_at or 0) - each.started_at for each in (first, second)] == [10, 20]


def test_a_request_for_cards_is_charged_from_its_reservation_until_it_is_freed_over_restarts(tmp_path: Path) -> None:
    with Machine(str(tmp_path / "state.db"), a_node(gpus=4)) as machine:
        asked = Request.of("pod-1", "gpu=2", Claim("research", "web"))
        machine.service.allocations.alloc(asked, lambda: None)
        machine.pump()
        machine.pass_time(30)
        machine.restart()
        machine.pass_time(30)
        machine.service.allocations.dealloc("pod-1", None, lambda: None)
        machine.pump()
        (stay,) = stays(machine)
        assert (stay.session, stay.owner, stay.application, stay.cards) == (None, "research", "web", 2.0)
        assert (stay.ended_at or 0) - stay.started_at == 60


def test_an_executor_that_ran_when_the_server_was_killed_is_charged_until_the_last_known_moment(tmp_path: Path) -> None:
    with Machine(str(tmp_path / "state.db"), a_node(cpu=1)) as machine:
        machine.session("s", tasks=2)
        machine.pass_time(100)
        machine.service.accounting.heartbeat()
        machine.pump()
        machine.now += HOUR
        machine.restart()
        lost, again = stays(machine)
        assert (lost.started_at, lost.ended_at) == (1000.0, 1100.0)
        assert (again.started_at, again.ended_at) == (machine.now, None)
        (past,) = history(machine)
        assert (past.history.started_at, past.core_s) == (1000.0, 100.0)


def test_a_stay_begins_and_ends_in_the_write_of_its_executor() -> None:
    with Lab(a_node(cpu=1)) as lab:
        written: list[tuple[Record, ...]] = []
        write = lab.store.write
        lab.store.write = lambda *records: (written.append(records), write(*records))[1]
        lab.session("s", tasks=1)
        lab.engine.kill(lab.engine.busy[0])
        lab.pump()
        for kind in (PutExecutor, Drop):
            for records in written:
                about = [each for each in records if isinstance(each, kind)]
                begins = {each.stay.ended_at is None for each in records if isinstance(each, PutStay)}
                assert not about or (kind is PutExecutor) in begins
        assert any(isinstance(record, AddEvent) for records in written for record in records)


def test_the_capacity_is_known_for_the_time_that_the_server_ran() -> None:
    with Lab(a_node(cpu=4, gpus=2)) as lab:
        lab.service.accounting.heartbeat()
        for _ in range(10):
            lab.pass_time(30)
            lab.service.accounting.heartbeat()
        lab.service.nodes.cordon("n1", True, lambda: None)
        lab.pass_time(100)
        lab.service.accounting.heartbeat()
        lab.pass_time(100)
        lab.pump()
        (offered,) = lab.store.usage(UsageQuery(0.0, lab.now, lab.now), lab.now).offered
        assert (offered.card_s, offered.core_s) == (800.0, 1600.0)


def test_what_was_offered_until_a_restart_covers_what_was_used_until_then(tmp_path: Path) -> None:
    with Machine(str(tmp_path / "state.db"), a_node(cpu=1)) as machine:
        machine.service.accounting.heartbeat()
        machine.session("s", tasks=1)
        machine.pass_time(20)  # less than the time between two heartbeats
        end(machine, "s")
        machine.now += HOUR
        machine.restart()
        machine.service.accounting.heartbeat()
        machine.pump()
        (offered,) = machine.store.usage(UsageQuery(0.0, machine.now, machine.now), machine.now).offered
        used = sum(past.core_s for past in history(machine))
        assert (used, offered.core_s) == (20.0, 20.0)
