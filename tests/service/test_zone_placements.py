"""The zones of the plan are those of the books, those that the engine gets, and those that are free at the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.zones import machine
from tests.lab import Lab, Machine

from ullage.core.kernel import board as at
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.topology import Kubelet, ZonePolicy
from ullage.server.answers import Answers
from ullage.service.engine_port import NodeReported, Registered
from ullage.wire.overview import ServerBody

pytestmark = pytest.mark.timeout(900)
SERVER = ServerBody(version="1", epoch=1, started_at=0.0, home="", storage="", isolation="", policy={})
ASKED = "cpu=4,gpu=2,numa=single-numa-node"


def free_cpus(lab: Lab) -> set[int]:
    board = lab.service.state.fleet.board
    cpus = board.cpus_of(0)
    return {int(row[at.ID]) for row in cpus if row[at.FREE]}


def test_executors_get_the_cpus_and_cards_of_one_zone_and_nobody_gets_them_twice():
    with Lab(machine(cpus=(8, 8))) as lab:
        lab.session("s", ASKED, tasks=8)
        orders = lab.engine.launched
        assert len(orders) == 4, "four cards and eight CPUs in each zone"
        for order in orders:
            placed = order.placement
            assert placed is not None
            assert len(placed.zones) == 1
            assert len(placed.cpus) == 4
            assert {gpu.zones for gpu in order.gpus} == {placed.zones}
            assert {cpu // 8 for cpu in placed.cpus} == set(placed.zones)
        assert {cpu for order in orders for cpu in order.placement.cpus} == set(range(16))
        assert free_cpus(lab) == set()


def test_cpus_come_back_when_the_executor_is_gone():
    with Lab(machine(cpus=(8, 8))) as lab:
        lab.session("s", ASKED, tasks=4)
        one = next(iter(lab.engine.workers))
        cpus = lab.service.state.executors[one].placement.cpus
        lab.service.nodes.cordon("n", True)
        lab.engine.kill(one)
        lab.pump()
        assert free_cpus(lab) == set(cpus)


def test_an_executor_is_reused_with_its_place():
    with Lab(machine(cpus=(8, 8))) as lab:
        lab.session("s", ASKED, tasks=4)
        before = {executor.id: executor.placement for executor in lab.executors}
        lab.finish("s", 4)
        lab.session("t", ASKED, tasks=4)
        assert {executor.id: executor.placement for executor in lab.executors} == before
        assert len(lab.engine.launched) == 4


def test_opening_a_session_that_no_node_can_align_warns_with_what_could_be_aligned():
    with Lab(machine(cpus=(8, 8))) as lab:
        answers = Answers(lab.service, SERVER, {})
        for name, asked in (("wide", "cpu=4,gpu=6,numa=restricted"), ("fits", ASKED)):
            lab.session(name, asked, tasks=0)
        (reported,) = answers.opened(lab.service.state.sessions["wide"])().warnings
        assert reported.endswith("; cpu=9,mem=0,gpu=6,numa=restricted would pass")
        assert answers.opened(lab.service.state.sessions["fits"]).warnings == []


def test_why_shows_where_a_prediction_is_weaker():
    options = Kubelet(ZonePolicy.SINGLE_ZONE, static_cpus=True, cpu_options={"align-by-socket": "true"})
    with Lab(machine(cpus=(8, 8), kubelet=options)) as lab:
        lab.session("wide", "cpu=4,gpu=6", tasks=1)
        explained = Answers(lab.service, SERVER, {}).explanation("wide", None)()
        assert explained.warnings == ["the prediction is weaker on node n: its kubelet has align-by-socket on"]


def test_what_an_executor_lacks_is_reported_once():
    with Lab(machine(cpus=(8, 8))) as lab:
        lab.engine.launch = lambda order: lab.engine.events.append(Registered(order.executor, 1, "it runs on 0"))
        lab.engine.bind = lambda order: None
        lab.session("s", ASKED, tasks=1)
        reported = [event for event in lab.service.events.recent if event.kind == "executor.misplaced"]
        assert [(event.session, event.message) for event in reported] == [("s", "it runs on 0")]
        assert lab.executors[0].note == "it runs on 0"


def test_an_allocation_that_follows_its_cards_to_another_node_holds_no_cpus_there():
    here, there = machine("n1", cpus=(8, 8)), machine("n2", cards=(), cpus=(8, 8))
    with Lab(here, there) as lab:
        asked = ResourceRequirement.from_string("cpu=2,gpu=1,numa=restricted")
        before = lab.service.allocations.alloc(Request("a", asked), lambda: None)
        assert isinstance(before, Allocation)
        assert (before.node, len(before.placement.cpus)) == ("n1", 2)
        lab.service.on_engine_event(NodeReported(replace(there, gpus=here.gpus)))
        lab.pump()
        after = lab.service.allocations.get("a")
        assert (after.node, after.gpus, after.placement) == ("n2", before.gpus, None)
        board = lab.service.state.fleet.board
        assert all(board.cpus_of(number)[:, at.FREE].all() for number in (0, 1))


def test_the_books_of_zones_are_the_same_after_a_restart(tmp_path):
    with Machine(str(tmp_path / "state.db"), machine(cpus=(8, 8), memory=(64, 64))) as lab:
        for uid, policy in (("a", "single-numa-node"), ("b", "restricted"), ("c", "best-effort"), ("d", "none")):
            asked = ResourceRequirement.from_string(f"cpu=3,gpu=1,numa={policy}")
            assert isinstance(lab.service.allocations.alloc(Request(uid, asked), lambda: None), Allocation)
        lab.pump()
        fleet = lab.service.state.fleet
        ledger, supplies = dict(fleet.ledger), fleet.board.supplies.copy()
        assert len(free_cpus(lab)) == 16 - 3 * 3, "whoever asks for no alignment has no CPUs alone"
        lab.restart()
        assert lab.service.state.fleet.ledger == ledger
        assert (lab.service.state.fleet.board.supplies == supplies).all()


def test_without_free_cpus_their_exclusive_holders_are_named_and_a_request_without_alignment_is_suggested():
    with Lab(replace(machine(cpus=(2, 2)), cpu_milli=100_000)) as lab:
        for name, asked in (("alone", "cpu=4,numa=best-effort"), ("shares", "cpu=1"), ("s", "cpu=1,numa=best-effort")):
            lab.session(name, asked, tasks=1)
        reasons = lab.why("s")
        assert reasons.code is Code.SHORT_ALLOCATION
        assert [holder.session for holder in reasons.holders] == ["alone"]
        (said,) = reasons.suggestions
        assert said == "cpu=1,mem=0,gpu=0,numa=none would fit now"
        lab.session("t", said.removesuffix(" would fit now"), tasks=1)
        assert lab.held("t") == 1
