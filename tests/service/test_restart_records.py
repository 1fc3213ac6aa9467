"""What was said stays said: events, evictions, alerts, names of strangers and who left, over a restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.core.zones import machine as zoned
from tests.lab import Lab, Machine, a_node
from tests.service.test_observations import show
from tests.service.test_restart import asked, nothing

from ullage.core.books.observation import LAG_S
from ullage.model.quota import Quota
from ullage.service.events import RECENT_EVENTS
from ullage.service.store_port import Page

ALL = Page(0, 10_000)


@pytest.fixture
def machine(tmp_path) -> Iterator[Machine]:
    with Machine(str(tmp_path / "state.db"), zoned(cpus=(8, 8))) as lab:
        yield lab


def said(lab: Lab, kind: str) -> list[str]:
    return [event.message for event in lab.store.events(ALL) if event.kind == kind]


# --- events ---


def test_an_event_is_shown_once_it_is_stored(machine):
    """A crash would take it away, and its number would be another event's."""
    first = machine.service.events.recent[-1].number
    machine.service.events.add("node.ready")
    shown = machine.service.events.page(Page(first - 1, 10))
    assert [event.number for event in shown or ()] == [first]
    machine.pump()
    shown = machine.service.events.page(Page(first - 1, 10))
    assert [event.number for event in shown or ()] == [first, first + 1]


def test_events_of_a_deleted_session_are_shown_neither_before_nor_after_a_restart(machine):
    machine.session("s")
    machine.service.sessions.close("s", nothing)
    machine.service.sessions.delete("s", nothing)
    machine.pump()
    before = machine.service.events.page(Page(1, 10_000))
    assert before == machine.store.events(Page(1, 10_000))
    assert machine.service.events.page(Page(1, 10_000), "s") == []


def test_a_reader_of_events_goes_on_where_it_was(machine):
    read = machine.store.events(ALL)
    machine.restart()
    more = machine.service.events.page(Page(read[-1].number, 10_000))
    assert [*read, *(more or ())] == machine.store.events(ALL)
    assert more


def test_the_eviction_of_a_session_is_found_however_many_events_came_after_it(machine):
    machine._nodes = (a_node(cpu=4),)
    machine.restart()
    machine.session("a", tasks=4)
    assert machine.store.events(ALL, "a", evictions=True) == []
    machine.session("b", tasks=4)
    machine.pass_time(30)
    for _ in range(RECENT_EVENTS):
        machine.service.events.add("executor.kept", "a")
    machine.restart()
    (found,) = machine.store.events(Page(0, 1), "a", evictions=True)
    assert (found.kind, found.code, found.data["claimant"]) == ("executor.evicted", 1004, "b")
    assert machine.store.events(ALL, "b", evictions=True) == []


# --- alerts ---

SMALL = Quota(max_workers=1)


def short(lab: Machine) -> None:
    """A quota of which nothing is left."""
    lab.service.quotas.put("default", SMALL, nothing)
    lab.service.allocations.alloc(asked("a"), nothing)
    lab.pump()
    assert len(said(lab, "quota.alert")) == 1


def test_an_alert_is_reported_once_over_a_restart_and_keeps_its_time(machine):
    short(machine)
    since = machine.service.quotas.status("default").condition.since
    machine.pass_time(100)
    machine.restart()
    machine.pass_time(100)
    assert len(said(machine, "quota.alert")) == 1
    condition = machine.service.quotas.status("default").condition
    assert (condition.ready, condition.since) == (False, since)


def test_the_end_of_an_alert_is_reported_after_a_restart(machine):
    short(machine)
    machine.restart()
    machine.service.allocations.dealloc("a", None, nothing)
    machine.pump()
    assert len(said(machine, "quota.sufficient")) == 1
    machine.restart()
    assert len(said(machine, "quota.sufficient")) == 1


def test_a_quota_that_is_put_again_after_it_was_dropped_is_alerted_again(machine):
    short(machine)
    machine.service.quotas.drop("default", nothing)
    machine.restart()
    machine.service.quotas.put("default", SMALL, nothing)
    machine.pump()
    assert len(said(machine, "quota.alert")) == 2


# --- nodes ---


def test_unknown_owners_keep_their_names_and_are_not_reported_again(machine):
    show(machine, stranger="0")
    assert machine.service.observations.strangers("n") == ("team/stranger",)
    machine.restart()
    assert machine.service.observations.strangers("n") == ("team/stranger",)
    show(machine, stranger="0")
    assert said(machine, "node.unknown-owners") == ["team/stranger"]
    show(machine)
    machine.restart()
    assert machine.service.observations.strangers("n") == ()


def test_a_restart_remembers_that_a_node_reported_its_allocations(machine):
    show(machine)
    shown_at = machine.now
    machine.service.allocations.alloc(asked("a"), nothing)
    machine.pass_time(LAG_S + 1)
    assert [held.id for held in machine.service.observations.unconfirmed()] == ["a"]
    machine.restart()
    assert machine.service.state.allocator.observed_at("n") == shown_at
    assert [held.id for held in machine.service.observations.unconfirmed()] == ["a"]


def test_a_cordon_and_strangers_are_stored_apart(machine):
    machine.service.nodes.cordon("n", True)
    show(machine, stranger="0")
    machine.restart()
    assert machine.service.state.nodes["n"].cordoned
    machine.service.nodes.cordon("n", False)
    machine.restart()
    assert not machine.service.state.nodes["n"].cordoned
    assert machine.service.observations.strangers("n") == ("team/stranger",)


def test_a_cordon_is_answered_once_it_is_stored(machine):
    answered: list[bool] = []
    machine.service.nodes.cordon("n", True, lambda: answered.append(True))
    assert not answered
    machine.pump()
    assert answered


# --- requests ---


def test_departed_requests_are_known_after_a_restart(machine):
    for uid in ("a", "b"):
        machine.service.allocations.alloc(asked(uid), nothing)
        machine.service.allocations.dealloc(uid, None, nothing)
    machine.service.allocations.alloc(asked("b"), nothing)
    machine.pump()
    machine.restart()
    freed = [machine.service.allocations.dealloc(uid, None, nothing) for uid in ("a", "b", "c")]
    assert [(each.already_gone, each.unknown) for each in freed] == [(True, False), (False, False), (False, True)]


def test_room_is_reserved_in_the_order_of_the_last_requests(machine):
    machine._nodes = (a_node(gpus=3),)
    machine.restart()
    for number in range(3):
        machine.service.allocations.alloc(asked(f"low{number}"), nothing)
    for uid in ("c", "a", "b", "c"):
        machine.pass_time(1)
        machine.service.preemptions.alloc(asked(uid, priority=10), nothing)
    kept = [entry.request.uid for entry in machine.service.preemptions.nominations()]
    assert kept == ["a", "b", "c"]
    machine.pass_time(1)
    machine.service.preemptions.alloc(asked("a", priority=10), nothing)
    machine.pump()
    machine.restart()
    assert [entry.request.uid for entry in machine.service.preemptions.nominations()] == ["b", "c", "a"]


def test_a_request_that_would_fit_is_reported_again_after_a_restart(machine):
    """Nobody knows whether the first call was heard, and who misses it waits for nothing."""
    cards = len(machine.service.state.fleet.cards)
    machine.service.allocations.alloc(asked("low", text=f"gpu={cards}"), nothing)
    machine.service.preemptions.alloc(asked("high", text=f"gpu={cards}", priority=10), nothing)
    machine.service.allocations.dealloc("low", None, nothing)
    machine.pump()
    assert len(said(machine, "allocation.ready")) == 1
    machine.restart()
    assert len(said(machine, "allocation.ready")) == 2
