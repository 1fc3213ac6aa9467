"""Requests that others give way to, and everybody else meanwhile: sessions, time and restarts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.lab import Lab

from ullage.core.admitting.gang_state import GangPhase
from ullage.core.holdings import ASSUMED_TTL_S
from ullage.core.placing.adjust import AmountsChange
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.part import Part
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.service.store_port import Drop, PutAllocation, PutNomination

GIB = 1 << 30
CARD = Gpu("GPU-n1-0", 0, vram_bytes=40 * GIB, compute_gflops=100_000)
NODE = Node("n1", 8000, 64 * GIB, (CARD,))


def ask(uid: str, text: str = "tflops=80,vram=1g", priority: int = 0) -> Request:
    return Request(uid, ResourceRequirement.from_string(text), Claim(priority=priority))


def nobody() -> None:
    """Nobody waits for the answer."""


def contested(lab: Lab) -> Nomination:
    """A request that another one gives way to."""
    lab.service.allocations.alloc(ask("low"), nobody)
    answer = lab.service.preemptions.alloc(ask("high", priority=10), nobody)
    lab.pump()
    assert isinstance(answer, Nomination)
    return answer


def kinds(lab: Lab) -> list[str]:
    return [event.kind for event in lab.service.events.recent if event.kind.startswith("allocation.")]


def test_the_eviction_is_an_event_and_the_room_is_stored_for_the_claimant():
    with Lab(NODE) as lab:
        nomination = contested(lab)
        assert [victim.uid for victim in nomination.victims] == ["low"]
        assert lab.service.allocations.get("low").state is AllocationState.RELEASING
        assert kinds(lab) == ["allocation.bound", "allocation.preempted", "allocation.nominated"]
        reported = next(event for event in lab.service.events.recent if event.kind == "allocation.preempted")
        assert (reported.data["uid"], reported.data["claimant"]) == ("low", "high")
        snapshot = lab.store.load()
        assert (snapshot.nominations, snapshot.allocations[0].state) == ((nomination,), AllocationState.RELEASING)


def test_a_session_never_gets_what_was_freed_for_a_request():
    with Lab(NODE) as lab:
        contested(lab)
        lab.session("ann", "cpu=1,tflops=50", tasks=1)
        lab.service.allocations.dealloc("low", None, nobody)
        lab.pump()
        assert lab.held("ann") == 0
        assert isinstance(lab.service.preemptions.alloc(ask("high", priority=10), nobody), Allocation)
        lab.service.allocations.dealloc("high", None, nobody)
        lab.pump()
        assert lab.held("ann") == 1


def test_room_is_reserved_as_long_as_its_request_is_repeated():
    with Lab(NODE) as lab:
        contested(lab)
        lab.pass_time(ASSUMED_TTL_S - 1)
        assert isinstance(lab.service.preemptions.alloc(ask("high", priority=10), nobody), Nomination)
        lab.pass_time(ASSUMED_TTL_S - 1)
        assert len(lab.service.preemptions.nominations()) == 1
        lab.pass_time(1)
        assert kinds(lab)[-1] == "allocation.lapsed"
        assert (lab.service.preemptions.nominations(), lab.store.load().nominations) == ((), ())


def test_a_restart_preserves_room_for_unplaced_requests():
    with Lab(NODE) as lab:
        nomination = contested(lab)
        snapshot = lab.store.load()
        with Lab(NODE) as again:
            again.store.write(PutNomination(nomination)).result()
            again.service.allocations.recover(snapshot)
            again.pump()
            assert [entry.request.uid for entry in again.service.preemptions.nominations()] == ["high"]
            answer = again.service.preemptions.alloc(ask("high", priority=10), nobody)
            assert isinstance(answer, Nomination)
            assert answer.victims == nomination.victims


def test_a_nomination_that_outlived_its_placement_in_the_store_is_forgotten():
    with Lab(NODE) as lab:
        nomination = contested(lab)
        lab.service.allocations.dealloc("low", None, nobody)
        lab.service.preemptions.alloc(ask("high", priority=10), nobody)
        lab.pump()
        lab.store.write(PutNomination(nomination), Drop(PutAllocation, "low")).result()
        with Lab(NODE) as again:
            again.store.write(PutNomination(nomination)).result()
            again.service.allocations.recover(lab.store.load())
            again.pump()
            assert (again.service.preemptions.nominations(), again.store.load().nominations) == ((), ())


def test_a_second_victim_is_asked_only_when_the_room_is_lost():
    nodes = NODE, Node("n2", 8000, 64 * GIB, (Gpu("GPU-n2-0", 0, vram_bytes=40 * GIB, compute_gflops=100_000),))
    with Lab(*nodes) as lab:
        lab.service.allocations.alloc(ask("other", priority=5), nobody)
        nomination = contested(lab)
        lab.service.nodes.cordon(nomination.node, cordoned=True)
        lab.pump()
        again = lab.service.preemptions.alloc(ask("high", priority=10), nobody)
        assert isinstance(again, Nomination)
        assert ([victim.uid for victim in again.victims], again.node != nomination.node) == (["other"], True)


# --- gangs ---


def high(*uids: str) -> list[Request]:
    gang = GangClaim("g", len(uids), len(uids), preempt=True)
    return [replace(ask(uid), claim=Claim(priority=10, gang=gang)) for uid in uids]


def two_nodes(lab: Lab) -> None:
    for uid in ("low-1", "low-2"):
        lab.service.allocations.alloc(ask(uid), nobody)


NODES = NODE, Node("n2", 8000, 64 * GIB, (Gpu("GPU-n2-0", 0, vram_bytes=40 * GIB, compute_gflops=100_000),))


@pytest.mark.parametrize("frees", ["dealloc", "adjust"])
@pytest.mark.parametrize("meanwhile", ["nothing", "cordoned", "removed"])
def test_room_on_another_node_is_reported_to_a_nominated_request(meanwhile, frees):
    card = Gpu("GPU-n2-0", 0, vram_bytes=40 * GIB, compute_gflops=100_000)
    with Lab(NODE, Node("n2", 8000, 64 * GIB, (card,))) as lab:
        for uid in ("a", "b"):
            lab.service.allocations.alloc(ask(uid), nobody)
        nomination = lab.service.preemptions.alloc(ask("high", priority=10), nobody)
        if meanwhile == "removed":
            lab.service.nodes.release(nomination.node)
        elif meanwhile == "cordoned":
            lab.service.nodes.cordon(nomination.node, True, nobody)
        lab.pump()
        assert "allocation.ready" not in kinds(lab)
        other = next(uid for uid, held in lab.service.state.fleet.ledger.items() if held.node != nomination.node)
        if frees == "dealloc":
            lab.service.allocations.dealloc(other, None, nobody)
        else:
            lab.service.allocations.adjust(other, AmountsChange(Part(1000, GIB)), False, nobody)
        lab.pump()
        assert "allocation.ready" in kinds(lab)


def test_all_victims_of_a_gang_are_stored_as_leaving_with_the_room_of_its_members():
    with Lab(*NODES) as lab:
        two_nodes(lab)
        status = lab.service.gangs.put("g", high("a", "b"), nobody)
        lab.pump()
        assert status.phase is GangPhase.WAITING
        snapshot = lab.store.load()
        assert {entry.request.uid for entry in snapshot.nominations} == {"a", "b"}
        assert {a.state for a in snapshot.allocations} == {AllocationState.RELEASING}
        assert kinds(lab)[-4:] == ["allocation.preempted", "allocation.nominated"] * 2
        for uid in ("low-1", "low-2"):
            lab.service.allocations.dealloc(uid, None, nobody)
            lab.pump()
        assert lab.service.gangs.status("g").phase is GangPhase.RUNNING
        snapshot = lab.store.load()
        assert (snapshot.nominations, {a.id for a in snapshot.allocations}) == ((), {"a", "b"})
        assert "allocation.ready" not in kinds(lab)


def test_a_gang_that_ends_while_victims_leave_has_no_room_reserved():
    with Lab(*NODES) as lab:
        two_nodes(lab)
        lab.service.gangs.put("g", high("a", "b"), nobody)
        lab.service.gangs.drop("g", nobody)
        lab.pump()
        assert (lab.service.preemptions.nominations(), lab.store.load().nominations) == ((), ())


def test_after_a_restart_a_resubmitted_gang_waits_for_its_leaving_victims():
    with Lab(*NODES) as lab:
        two_nodes(lab)
        lab.service.gangs.put("g", high("a", "b"), nobody)
        lab.pump()
        snapshot = lab.store.load()
        with Lab(*NODES) as again:
            again.service.allocations.recover(snapshot)
            status = again.service.gangs.put("g", high("a", "b"), nobody)
            assert {answer.code for answer in status.answers.values()} == {Code.EVICTING}
            for uid in ("low-1", "low-2"):
                again.service.allocations.dealloc(uid, None, nobody)
            again.pump()
            assert again.service.gangs.status("g").phase is GangPhase.RUNNING
