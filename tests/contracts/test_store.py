"""The contract of every store, on each adapter."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.alignment import Alignment, AlignmentStage, ContainerNeeds
from ullage.model.allocation import Allocation, Charge
from ullage.model.application import Application
from ullage.model.claim import Claim, Request
from ullage.model.error import InvalidRequest, Unavailable
from ullage.model.event import Event
from ullage.model.history import CapacitySpan, Expiry, HistoryQuery, SessionHistory, Stay, UsageQuery
from ullage.model.nomination import Nomination
from ullage.model.past_state import PastState
from ullage.model.quantity import MAX_INT64
from ullage.model.queue import Limit, Queue
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources
from ullage.model.session import SessionInfo, SessionSpec, SessionState, Setup
from ullage.model.task import TaskResult, TaskState
from ullage.model.topology import ZonePolicy
from ullage.model.victim import FreedAmounts, Victim
from ullage.model.zone_placement import Rank, ZonePlacement
from ullage.service.store_port import (
    AddClaims,
    AddEvent,
    AddResults,
    AddTasks,
    Drop,
    DropExpired,
    DropSession,
    Page,
    PutAllocation,
    PutApplication,
    PutAttempts,
    PutCapacity,
    PutExecutor,
    PutHistory,
    PutNomination,
    PutQueue,
    PutSession,
    PutStay,
    PutWait,
    Store,
    StoredSession,
    StoredSubmission,
    StoredTask,
    TaskView,
    WonPlace,
)
from ullage.storage.open import open_store

Opener = Callable[[str], Store]

HUGE = ResourceRequirement(MAX_INT64 * 1000, MAX_INT64, 3)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "state.db")


@pytest.fixture
def opened() -> Iterator[Opener]:
    stores: list[Store] = []

    def open_(url: str) -> Store:
        store = open_store(url)
        stores.append(store)
        store.load()
        return store

    yield open_
    for store in stores:
        store.close()


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, url: str, opened: Opener) -> Store:
    return opened(url if request.param == "file" else "memory://")


@pytest.fixture
def durable(url: str, opened: Opener) -> Store:
    """Return a function that reopens a store, for stores that outlive their process."""
    return opened(url)


@pytest.fixture
def reopened(durable: Store, url: str, opened: Opener) -> Callable[[], Store]:
    def again() -> Store:
        durable.close()
        return opened(url)

    return again


def session(name: str = "s", number: int = 1, **changes: Any) -> SessionInfo:
    return SessionInfo(name, SessionSpec("function"), 10.0, number, **changes)


def add_tasks(
    first: int = 1, count: int = 3, submission: int = 1, key: str = "k", *, name: str = "s", shared: bytes | None = None
) -> AddTasks:
    inputs = tuple(b"in%d" % task for task in range(first, first + count))
    return AddTasks(name, submission, key, first, inputs, 20.0, shared)


def result(
    task: int, sequence: int, state: TaskState = TaskState.SUCCEED, name: str = "s", **changes: Any
) -> TaskResult:
    values: dict[str, Any] = {
        "code": 0,
        "output": b"out%d" % task,
        "message": "",
        "executor": "e",
        "started_at": 1.5,
        "ended_at": 2.5,
    }
    return TaskResult(name, task, sequence, state, **(values | changes))


def add_results(*results: TaskResult) -> AddResults:
    return AddResults(tuple(results))


def only_session(store: Store) -> StoredSession:
    (stored,) = store.load().sessions
    return stored


def refused(future: Future[None]) -> str:
    error = future.exception(30)
    assert isinstance(error, Unavailable)
    return error.code


def test_a_new_store_is_empty_and_in_its_first_epoch(url: str) -> None:
    for where in (url, "memory://"):
        store = open_store(where)
        snapshot = store.load()
        store.close()
        assert (snapshot.epoch, snapshot.sessions, snapshot.applications, snapshot.last_event) == (1, (), (), 0)


def test_each_loading_begins_a_new_epoch(store: Store) -> None:
    assert [store.load().epoch, store.load().epoch] == [2, 3]


def test_the_epoch_survives_a_restart(reopened: Callable[[], Store]) -> None:
    assert reopened().load().epoch == 3


def test_nothing_is_kept_in_memory_after_close(opened: Opener) -> None:
    opened("memory://").write(PutSession(session())).result()
    assert opened("memory://").load().sessions == ()


def test_values_come_back_as_they_were_written(store: Store) -> None:
    application = Application("app", "run", ("a", "é"), {"K": "v"}, "/w", labels=("l",), task_timeout_s=1.25)
    queue = Queue("q", weight=3, guarantee=Resources(1, 2, 3), limit=Limit(gpu_milli=4000))
    spec = SessionSpec("app", HUGE, "q", common_data=b"\x00\xff", setup=Setup(python="/p", environment={"A": "b"}))
    full = SessionInfo("s", spec, 1.25, 7, SessionState.CLOSED, 2.5, 4)
    executor = PutExecutor("e", "n", None, 12, HUGE, ("GPU-1",), 3.5)
    records = PutApplication(application), PutQueue(queue), PutSession(full), executor
    store.write(*records).result()
    snapshot = store.load()
    assert (snapshot.applications, snapshot.queues, snapshot.executors) == ((application,), (queue,), (executor,))
    assert snapshot.sessions[0].session == full


@pytest.mark.parametrize(
    "text",
    [
        "cpu=1,gpu=0.3333",
        "gpu=2,vram=20g,tflops=60,gpu_model=A100|H100,gpu_vendor=NVIDIA,gpu_index=0|3,pool=p,isolation=hard",
        "percent=14.2857,partition=1g.10gb",
        "gpu=1,gpu_uuid=GPU-a|GPU-b,not_gpu_uuid=GPU-b,gpu_model_like=a100|h100,not_gpu_model_like=pcie",
    ],
)
def test_parts_of_cards_come_back_as_they_were_written(store: Store, text: str) -> None:
    asked = ResourceRequirement.from_string(text)
    store.write(PutSession(SessionInfo("s", SessionSpec("app", asked), 1.0, 1))).result()
    found = store.load().sessions[0].session.spec.resreq
    assert (found, str(found)) == (asked, str(asked))


def test_the_placement_of_an_allocation_comes_back_as_it_was_written(store: Store) -> None:
    alignment = Alignment(
        ZonePolicy.SINGLE_ZONE, (ContainerNeeds("c", AlignmentStage.INIT, 2, 5, (("gpu", 1),), ((2**21, 7),)),)
    )
    placement = ZonePlacement(
        (1, 3),
        (8, 9, 40),
        (("gpu", ("GPU-1",)), ("nic", ("n", "m"))),
        ((1, 2**40),),
        Rank.BOUND,
        "kubelet",
        ((1, "cpu", 2),),
    )
    held = Allocation("a", "n", replace(HUGE, alignment=alignment), claim=Claim(), placement=placement)
    plain = Allocation("b", "n", HUGE, claim=Claim())
    store.write(PutAllocation(held), PutAllocation(plain)).result()
    assert store.load().allocations == (held, plain)


def test_a_nomination_comes_back_with_its_victims_and_can_be_dropped(store: Store) -> None:
    reason = Rejection(Code.GPU_COMPUTE, Cure.CAPACITY, 80, 20, "n", "GPU-1")
    victim = Victim("low", "team", "web", 3, (FreedAmounts("GPU-1", 50, 2**40),), reason)
    request = Request("high", HUGE, Claim("team", priority=10))
    kept = Nomination(request, "n", 1.5, ("GPU-1",), (Charge(80, 2**41),), (victim,))
    store.write(PutNomination(kept), PutNomination(replace(kept, request=replace(request, uid="other")))).result()
    store.write(Drop(PutNomination, "other")).result()
    assert store.load().nominations == (kept,)


def test_a_second_put_replaces_the_first(store: Store) -> None:
    store.write(PutSession(session()), PutApplication(Application("a")), add_tasks()).result()
    store.write(PutSession(session(bind_failures=2)), PutApplication(Application("a", "new"))).result()
    snapshot = store.load()
    assert (snapshot.sessions[0].session, len(snapshot.sessions[0].tasks)) == (session(bind_failures=2), 3)
    assert snapshot.applications == (Application("a", "new"),)


def test_the_last_of_several_records_in_one_write_wins(store: Store) -> None:
    gone = PutExecutor("gone", "n", "s", 1, HUGE, (), 0.0)
    back = PutExecutor("back", "n", "s", 1, HUGE, (), 0.0)
    store.write(
        gone, Drop(PutExecutor, "gone"), back, Drop(PutExecutor, "back"), back, PutApplication(Application("a"))
    ).result()
    store.write(Drop(PutApplication, "a")).result()
    snapshot = store.load()
    assert (snapshot.executors, snapshot.applications) == ((back,), ())


def test_writes_become_durable_in_order_and_come_back_after_a_restart(
    durable: Store, reopened: Callable[[], Store]
) -> None:
    futures = [durable.write(PutSession(session()))]
    futures += [durable.write(add_tasks(first, 1, first, f"k{first}")) for first in range(1, 301)]
    futures += [durable.write(add_results(result(task, task))) for task in range(1, 300)]
    durable.close()
    assert [future.exception(0) for future in futures] == [None] * len(futures)
    stored = only_session(reopened())
    assert [task.task for task in stored.tasks] == [300]
    assert stored.counts == {"pending": 1, "succeed": 299, "failed": 0, "cancelled": 0}


def test_unfinished_tasks_come_back_with_their_inputs_and_attempts(store: Store) -> None:
    store.write(PutSession(session()), add_tasks(), PutAttempts("s", 2, 1, 0)).result()
    store.write(add_results(result(1, 1)), PutAttempts("s", 2, 2, 1)).result()
    assert only_session(store).tasks == (StoredTask(2, 1, b"in2", 20.0, 2, 1), StoredTask(3, 1, b"in3", 20.0))


def test_tasks_are_counted_by_state_and_the_last_sequence_is_known(store: Store) -> None:
    store.write(PutSession(session()), add_tasks(count=6)).result()
    endings = result(4, 1, TaskState.FAILED), result(1, 2), result(2, 3), result(6, 4, TaskState.CANCELLED)
    store.write(add_results(*endings)).result()
    stored = only_session(store)
    assert stored.counts == {"pending": 2, "succeed": 2, "failed": 1, "cancelled": 1}
    assert stored.last_sequence == 4


def test_keys_of_finished_submissions_are_kept_without_their_shared_data(store: Store) -> None:
    store.write(
        PutSession(session()), add_tasks(1, 2, 1, "done", shared=b"x"), add_tasks(3, 2, 2, "open", shared=b"y")
    ).result()
    store.write(add_results(result(1, 1), result(2, 2), result(3, 3))).result()
    assert only_session(store).submissions == (
        StoredSubmission(1, "done", 1, 2, None),
        StoredSubmission(2, "open", 3, 2, b"y"),
    )


def test_a_key_names_one_submission_of_a_session(store: Store) -> None:
    both = PutSession(session()), PutSession(session("t", 2))
    store.write(*both, add_tasks(), add_tasks(name="t")).result()
    assert refused(store.write(add_tasks(4, 1, 2))) == "storage-failed"


def test_an_empty_key_may_be_repeated(store: Store) -> None:
    store.write(PutSession(session()), add_tasks(key=""), add_tasks(4, 1, 2, key="")).result()
    assert len(only_session(store).tasks) == 4


def test_ids_are_counted_in_each_session(store: Store) -> None:
    both = PutSession(session()), PutSession(session("t", 2))
    store.write(*both, add_tasks(), add_tasks(name="t")).result()
    assert [[task.task for task in stored.tasks] for stored in store.load().sessions] == [[1, 2, 3]] * 2


def test_a_task_ends_once(store: Store) -> None:
    store.write(PutSession(session()), add_tasks(), add_results(result(1, 1))).result()
    assert refused(store.write(add_results(result(1, 2)))) == "storage-failed"
    assert [ending.sequence for ending in store.results("s", Page())] == [1]


def test_a_write_is_atomic(store: Store) -> None:
    store.write(PutSession(session()), add_tasks()).result()
    wrong = store.write(add_tasks(4, 2, 2, "new"), PutApplication(Application("a")), add_results(result(99, 1)))
    assert refused(wrong) == "storage-failed"
    assert len(store.tasks("s", Page())) == 3


def test_a_record_of_an_unknown_session_is_refused(store: Store) -> None:
    assert refused(store.write(add_tasks())) == "storage-failed"


def test_after_a_failure_writes_are_refused_and_acknowledged_ones_stay(store: Store) -> None:
    store.write(PutSession(session()), add_tasks()).result()
    assert refused(store.write(add_results(result(99, 1)))) == "storage-failed"
    assert refused(store.write(add_results(result(1, 1)))) == "storage-failed"
    assert len(store.tasks("s", Page())) == 3


def test_two_sessions_cannot_have_the_same_id(store: Store) -> None:
    store.write(PutSession(session()), add_tasks()).result()
    assert refused(store.write(PutSession(session(number=2)))) == "storage-failed"


def test_a_dropped_session_leaves_nothing_and_others_stay(store: Store) -> None:
    for name, number in (("s", 1), ("t", 2)):
        claims = AddClaims(name, (1, 2), (1, 2), "e", 5.0)
        event = AddEvent(Event(number, 1.0, "session.created", name))
        endings = add_results(result(1, 1, name=name))
        attempts = PutAttempts(name, 2, 1, 1)
        store.write(PutSession(session(name, number)), add_tasks(name=name), claims, attempts, endings, event).result()
    store.write(DropSession("s")).result()
    assert (store.tasks("s", Page()), store.results("s", Page()), store.events(Page(), "s")) == ([], [], [])
    assert [stored.session.id for stored in store.load().sessions] == ["t"]
    assert (len(store.tasks("t", Page())), len(store.results("t", Page())), len(store.events(Page()))) == (3, 1, 1)


def test_a_dropped_session_may_be_created_again_in_the_same_write(store: Store) -> None:
    store.write(PutSession(session()), add_tasks()).result()
    store.write(add_results(result(1, 1)), DropSession("s"), PutSession(session(number=2)), add_tasks(count=1)).result()
    assert [task.task for task in only_session(store).tasks] == [1]


def test_a_large_session_is_gone_at_once_and_its_name_is_free_while_its_rows_go(store: Store) -> None:
    count = 25_000
    large = [
        PutSession(session()),
        AddTasks("s", 1, "k", 1, (b"x",) * (count - 1), 20.0, b"shared" * 1000),
        AddTasks("s", 2, "l", count, (b"y" * 5000,), 20.0),
        AddClaims("s", (1, count), (1, 2), "e", 5.0),
        PutAttempts("s", 2, 1, 1),
        add_results(*(result(task, task) for task in range(1, 100))),
    ]
    store.write(*large).result()
    store.write(DropSession("s")).result()
    assert (store.tasks("s", Page()), store.results("s", Page()), store.shared("s", 1)) == ([], [], None)
    store.write(PutSession(session(number=2)), add_tasks(count=1), add_results(result(1, 1))).result()
    assert [task.task for task in store.tasks("s", Page())] == [1]
    (stored,) = store.load().sessions
    assert (stored.session.number, stored.counts["succeed"], stored.tasks) == (2, 1, ())


def test_dropping_a_missing_record_does_nothing(store: Store) -> None:
    store.write(DropSession("s"), Drop(PutApplication, "a"), Drop(PutExecutor, "e")).result()
    assert store.load().sessions == ()


def test_event_numbers_of_a_dropped_session_are_not_reused(store: Store) -> None:
    store.write(PutSession(session()), AddEvent(Event(8, 1.0, "session.created", "s"))).result()
    store.write(DropSession("s")).result()
    assert store.load().last_event == 8


def test_events_come_by_number_of_one_session_or_of_all(store: Store) -> None:
    events = [
        Event(1, 1.0, "a", "s", 1001, "words", {"n": 1, "x": 1.5, "t": "é", "none": None}),
        Event(2, 2.0, "b", "t"),
        Event(3, 3.0, "c"),
        Event(4, 4.0, "d", "s"),
    ]
    store.write(*map(AddEvent, reversed(events))).result()
    assert store.events(Page()) == events
    assert store.events(Page(after=1, limit=2)) == events[1:3]
    assert store.events(Page(after=1), "s") == events[3:]
    assert store.load().last_event == 4


def test_evictions_of_a_session_come_newest_first(store: Store) -> None:
    kinds = ("executor.evicted", "executor.evicted", "executor.kept", "executor.evicted")
    events = [Event(n, 1.0, kind, "t" if n == 2 else "s", 1004) for n, kind in enumerate(kinds, 1)]
    store.write(*map(AddEvent, events)).result()
    assert store.events(Page(), "s", evictions=True) == [events[3], events[0]]
    assert store.events(Page(0, 1), "s", evictions=True) == [events[3]]
    assert store.events(Page(), "none", evictions=True) == []


def test_waits_of_sessions_come_back_and_are_dropped_with_them(store: Store) -> None:
    place = Allocation("promised/0", "n", HUGE, ("g",), charges=(Charge(80, 2**41),), placement=ZonePlacement((0,)))
    full = PutWait("s", 1.5, 2.5, (place,), True, (WonPlace(place, 3.5), WonPlace(place)))
    others = [PutWait(name, 1.0) for name in ("t", "u")]
    store.write(PutSession(session()), PutSession(session("t", 2)), full, *others).result()
    store.write(Drop(PutWait, "u")).result()
    assert store.load().waits == (full, others[0])
    store.write(DropSession("s")).result()
    assert store.load().waits == (others[0],)


def test_the_time_of_the_newest_event_is_known(store: Store) -> None:
    assert store.load().alive_at == 0
    store.write(AddEvent(Event(1, 5.0, "a")), AddEvent(Event(2, 7.0, "b"))).result()
    assert store.load().alive_at == 7


def test_results_come_by_sequence_a_page_at_a_time(store: Store) -> None:
    endings = [result(5 - n, n, message=f"m{n}", output=None, started_at=None, executor=None) for n in range(1, 5)]
    store.write(PutSession(session()), add_tasks(count=5), add_results(*reversed(endings))).result()
    assert store.results("s", Page(limit=3)) == endings[:3]
    assert store.results("s", Page(after=3)) == endings[3:]
    assert store.results("s", Page(after=4)) == []


def test_tasks_show_their_latest_hand_out_their_losses_and_their_ending_without_output(store: Store) -> None:
    store.write(PutSession(session()), add_tasks()).result()
    store.write(AddClaims("s", (1, 2), (11, 12), "e1", 5.0)).result()
    store.write(AddClaims("s", (1,), (13,), "e2", 6.0), PutAttempts("s", 1, 1, 0)).result()
    store.write(add_results(result(2, 1))).result()
    assert store.tasks("s", Page()) == [
        TaskView("s", 1, 20.0, None, "e2", 6.0, 1),
        TaskView("s", 2, 20.0, result(2, 1, output=None), "e1", 5.0),
        TaskView("s", 3, 20.0),
    ]
    assert [view.task for view in store.tasks("s", Page(after=1, limit=1))] == [2]


@pytest.mark.parametrize("page", [Page(after=-1), Page(limit=0), Page(limit=2**63), Page(after=True)])
def test_an_invalid_page_is_refused(store: Store, page: Page) -> None:
    for read in (lambda: store.results("s", page), lambda: store.tasks("s", page), lambda: store.events(page)):
        with pytest.raises(InvalidRequest):
            read()


def test_an_invalid_session_name_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRequest, match="session"):
        store.events(Page(), "../x")


def test_a_message_with_invalid_text_is_stored_readably(store: Store) -> None:
    store.write(PutSession(session()), add_tasks(), add_results(result(1, 1, message="bad \udcff é"))).result()
    assert store.results("s", Page())[0].message == "bad ? é"


@pytest.mark.parametrize("count", [1, 2, 3, 1000, 4097])
def test_any_number_of_tasks_is_stored_exactly(store: Store, count: int) -> None:
    store.write(PutSession(session()), add_tasks(count=count)).result()
    store.write(AddResults(tuple(result(task, task) for task in range(1, count + 1)))).result()
    assert [r.output for r in store.results("s", Page(limit=count + 1))] == [b"out%d" % n for n in range(1, count + 1)]


def test_large_inputs_are_stored_exactly(store: Store) -> None:
    inputs = tuple(bytes([n]) * (n * 400_000) for n in range(30))
    store.write(PutSession(session()), AddTasks("s", 1, "k", 1, inputs, 20.0)).result()
    assert tuple(task.input for task in only_session(store).tasks) == inputs


def test_an_empty_write_is_durable_at_once(store: Store) -> None:
    assert store.write().exception(30) is None


def test_an_acknowledged_write_is_seen_by_the_next_read(store: Store) -> None:
    store.write(PutSession(session()), add_tasks(count=50)).result()
    for task in range(1, 51):
        store.write(add_results(result(task, task))).result()
        assert len(store.results("s", Page())) == task


def test_closing_flushes_queued_writes_and_refuses_later_ones(store: Store) -> None:
    queued = store.write(PutSession(session()))
    store.close()
    store.close()
    assert queued.exception(0) is None
    assert refused(store.write(DropSession("s"))) == "storage-closed"
    with pytest.raises(Unavailable):
        store.load()


def test_nothing_can_be_written_or_read_before_loading(url: str) -> None:
    store = open_store(url)
    assert refused(store.write(PutSession(session()))) == "storage-closed"
    with pytest.raises(Unavailable):
        store.events(Page())
    store.close()


# --- the history ---


def past(number: int = 1, **changes: Any) -> SessionHistory:
    return replace(SessionHistory(number, f"s{number}", "ann", "q", "function", "cpu=1", 10.0, 10.0), **changes)


def stay(number: int, started_at: float, ended_at: float | None = None, **changes: Any) -> Stay:
    held = Stay(
        number, f"e{number}", 1, "ann", "q", "function", node="n", gpus=("g",), cards=0.5, cores=2.0, memory_bytes=10,
        started_at=started_at, ended_at=ended_at,
    )  # fmt: skip
    return replace(held, **changes)


def test_the_history_outlives_its_session_and_what_is_open_comes_back(store: Store) -> None:
    ended = stay(1, 12.0, 14.0, memory_peak_bytes=99)
    store.write(PutSession(session()), PutHistory(past()), PutStay(stay(1, 12.0)), PutStay(stay(2, 13.0))).result()
    store.write(PutStay(ended), PutHistory(past(2)), PutCapacity(CapacitySpan(3, 8.0, 64.0, 2**40, 1.0, 9.0))).result()
    store.write(DropSession("s"), PutHistory(past(started_at=12.0, ended_at=15.0, state=PastState.FAILED))).result()
    found = store.load()
    assert (found.history, found.stays, found.alive_at) == ((past(2),), (stay(2, 13.0),), 9.0)
    assert (found.last_session, found.last_stay) == (2, 2)
    assert found.capacity == CapacitySpan(3, 8.0, 64.0, 2**40, 1.0, 9.0)
    assert store.stays(HistoryQuery()) == [ended, stay(2, 13.0)]
    first, second = store.history(HistoryQuery(), 20.0)
    assert (first.history.state, first.history.started_at) == (PastState.FAILED, 12.0)
    assert (first.ran_s, first.core_s, first.card_s, first.memory_peak_bytes) == (9.0, 18.0, 4.5, 99)
    assert (second.ran_s, second.core_s, second.card_s, second.memory_peak_bytes) == (0.0, 0.0, 0.0, None)


def test_the_history_is_filtered_by_time_owner_queue_and_state_and_comes_in_pages(store: Store) -> None:
    rows = [past(n, created_at=float(n), ended_at=n + 1.5 if n < 5 else None) for n in range(1, 6)]
    rows[1] = replace(rows[1], owner="bob", state=PastState.FAILED)
    store.write(*map(PutHistory, rows)).result()

    def numbers(**query: Any) -> list[int]:
        return [each.history.number for each in store.history(HistoryQuery(**query), 9.0)]

    assert numbers() == [1, 2, 3, 4, 5]
    assert numbers(since=4.0) == [3, 4, 5]
    assert numbers(since=4.0, until=4.0) == [3]
    assert (numbers(owner="bob"), numbers(queue="none")) == ([2], [])
    assert numbers(states=(PastState.FAILED, PastState.CANCELLED)) == [2]
    assert (numbers(limit=2), numbers(limit=2, after=2), numbers(after=5)) == ([1, 2], [3, 4], [])


def test_huge_amounts_of_a_stay_are_stored_as_the_largest_that_fit(store: Store) -> None:
    store.write(PutStay(stay(1, 1.0, memory_bytes=2**70))).result()
    assert [each.memory_bytes for each in store.stays(HistoryQuery())] == [MAX_INT64]


def brute_usage(stays: list[Stay], query: UsageQuery, now: float) -> dict[tuple[str, float], tuple[float, float]]:
    """Add up a second of a stay at a time."""
    sums: dict[tuple[str, float], tuple[float, float]] = {}
    for each in stays:
        end = now if each.ended_at is None else each.ended_at
        for second in range(int(each.started_at), int(end)):
            if query.since <= second < query.until:
                at = query.since + (second - query.since) // query.step * query.step
                cores, cards = sums.get((each.owner, at), (0.0, 0.0))
                sums[each.owner, at] = cores + each.cores, cards + each.cards
    return sums


def offers() -> tuple[PutCapacity, PutCapacity]:
    """Two cards from 10 to 50, and eight since 53, until now."""
    return (
        PutCapacity(CapacitySpan(1, 2.0, 4.0, 8, 10.0, 50.0)),
        PutCapacity(CapacitySpan(2, 8.0, 4.0, 8, 53.0, 54.0)),
    )


@pytest.mark.parametrize("step", [1.0, 7.0, 10.0, 100.0])
@pytest.mark.parametrize("since", [0.0, 13.0])
def test_usage_is_cut_at_the_steps_and_equals_the_sum_over_seconds(store: Store, step: float, since: float) -> None:
    spans = [(0, 3), (3, 30), (5, None), (12, 14), (29, 31), (30, 60), (55, None), (13, 13)]
    stays = [
        stay(n, float(start), None if end is None else float(end), owner="ann" if n % 3 else "bob")
        for n, (start, end) in enumerate(spans, 1)
    ]
    store.write(*map(PutStay, stays), *offers()).result()
    query = UsageQuery(since, 57.0, step, ("owner",))
    found = store.usage(query, 56.0)
    used = {(each.owner, each.at): (each.core_s, each.card_s) for each in found.used}
    assert used == brute_usage(stays, query, 56.0)
    assert sum(each.card_s for each in found.offered) == pytest.approx(2.0 * (50 - max(10, since)) + 8.0 * 3)
    whole = store.usage(replace(query, by=()), 56.0).used
    assert sum(each.core_s for each in whole) == pytest.approx(sum(core for core, _ in used.values()))
    (bob,) = store.usage(replace(query, owner="bob", step=57.0 - since, by=("queue",)), 56.0).used
    assert (bob.owner, bob.queue, bob.core_s) == (
        "",
        "q",
        pytest.approx(sum(c for (o, _), (c, _) in used.items() if o == "bob")),
    )


@given(
    used=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50), st.integers(0, 20), st.integers(0, 3)), max_size=30),
    limit=st.integers(1, 12),
)
def test_groups_that_used_least_are_one_sum_and_nothing_is_lost(used: list[tuple[int, ...]], limit: int) -> None:
    with closing(open_store("memory://")) as store:
        store.load()
        stays = [
            stay(n, float(begin), float(begin + lasted), owner=f"user-{user}", cards=float(cards))
            for n, (user, begin, lasted, cards) in enumerate(used, 1)
        ]
        if stays:
            store.write(*map(PutStay, stays)).result()
        query = UsageQuery(0.0, 60.0, 20.0, ("owner",), limit=1000)
        whole, found = store.usage(query, 60.0), store.usage(replace(query, limit=limit), 60.0)
        groups = {each.owner for each in whole.used}
        assert (whole.rest, whole.left_out) == ((), 0)
        assert found.left_out == max(0, len(groups) - limit)
        assert [each for each in whole.used if each.owner in {row.owner for row in found.used}] == list(found.used)
        cards = Counter[str]()
        for each in whole.used:
            cards[each.owner] += each.card_s
        shown = {each.owner for each in found.used}
        assert all(cards[few] <= cards[many] for few in groups - shown for many in shown)
        for at in (0.0, 20.0, 40.0):
            sums = [
                sum(each.core_s for each in rows if each.at == at) for rows in (whole.used, (*found.used, *found.rest))
            ]
            assert sums[0] == pytest.approx(sums[1])


def test_usage_counts_waiting_from_the_first_task_to_the_first_executor_and_sessions_once(store: Store) -> None:
    store.write(
        PutHistory(past(1, created_at=5.0, asked_at=10.0, started_at=25.0)),
        PutHistory(past(2, created_at=12.0, asked_at=12.0, ended_at=14.0)),
        PutHistory(past(3, created_at=20.0, asked_at=None)),
        PutHistory(past(4, created_at=1.0, asked_at=28.0)),
    ).result()
    found = store.usage(UsageQuery(0.0, 40.0, 20.0, ("owner", "queue")), 30.0)
    assert [(each.at, each.waited_s, each.sessions) for each in found.used] == [(0.0, 12.0, 3), (20.0, 7.0, 1)]


def test_expired_rows_of_the_history_are_dropped_some_at_a_time_and_what_goes_on_stays(store: Store) -> None:
    rows = [past(n, created_at=float(n), ended_at=float(n) if n != 2 else None) for n in range(1, 9)]
    stays = [stay(n, float(n), float(n)) for n in range(1, 9)]
    store.write(*map(PutHistory, rows), *map(PutStay, stays)).result()

    def numbers() -> tuple[list[int], list[int]]:
        return (
            [each.history.number for each in store.history(HistoryQuery(), 9.0)],
            [each.number for each in store.stays(HistoryQuery())],
        )

    by_age = Expiry(before=5.0, limit=2)
    store.write(DropExpired(by_age)).result()
    assert numbers() == ([2, 4, 5, 6, 7, 8], [3, 4, 5, 6, 7, 8])
    assert store.has_expired(by_age)
    store.write(DropExpired(by_age)).result()
    assert numbers() == ([2, 5, 6, 7, 8], [5, 6, 7, 8])
    assert not store.has_expired(by_age)
    by_number = Expiry(keep=2)
    store.write(DropExpired(by_number)).result()
    assert numbers() == ([2, 7, 8], [7, 8])
    assert not store.has_expired(by_number)
    store.write(DropExpired(Expiry(before=100.0))).result()
    assert numbers() == ([2, 8], [8]), "the newest number must not be used again"
    assert not store.has_expired(Expiry(before=100.0))
