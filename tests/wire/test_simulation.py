"""Responses about simulations and allocations: the names and amounts that clients know."""

import msgspec
import pytest

from ullage.model.allocation import Allocation, AllocationState, Charge, Slot
from ullage.model.amounts import Amounts
from ullage.model.claim import Claim, Qos
from ullage.model.error import NotFound
from ullage.model.gpu import Gpu
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.rejection import Code, Cure, QuotaFigures, Rejection
from ullage.model.request import ResourceRequirement
from ullage.wire import simulation
from ullage.wire.allocation_report import AllocationEntry, AllocationReport, CardEntry, Quantities, Worker

GI = 2**30
A100 = Gpu("g1", 0, "A100", "NVIDIA", 80 * GI, 312_500, pool="p")
NAMELESS = Gpu("g2", 1)


def sent(body):
    return msgspec.json.decode(msgspec.json.encode(body))


def test_an_answer_has_the_names_that_callers_know():
    answer = sent(simulation.SimulateSchedule(schedule_result=simulation.ScheduleResult()))
    assert answer["scheduleResult"] == {"SuggestedHost": "", "EvaluatedNodes": 0, "FeasibleNodes": 0}
    assert answer["filterDetail"] == {"FilterStageDetails": []}
    assert answer["error"] is None
    assert answer["gpuSchedulerState"] == {
        "NodeGPUs": {},
        "ValidNodeGPUScore": {},
        "ValidNodeNotMatchingGPUScore": {},
        "FinalGPUs": [],
        "PreemptPods": {},
        "IsPreemption": False,
    }
    assert set(answer) == {
        *("scheduleResult", "filterDetail", "error", "gpuSchedulerState", "nodes", "quota", "warnings"),
    }


def test_an_error_has_the_names_that_callers_know():
    error = sent(simulation.pod_error(NotFound("pool x is not known", code="unknown-pool", field="pool"), 3))
    assert error == {
        "type": "NotFound",
        "message": "pool x is not known",
        "code": "unknown-pool",
        "field": "pool",
        "numAllNodes": 3,
        "diagnosis": {
            "preFilterMsg": "",
            "postFilterMsg": "",
            "unschedulablePlugins": [],
            "pendingPlugins": [],
            "nodeToStatus": {},
        },
    }


def test_a_stage_has_the_cards_before_and_after_it():
    gone = simulation.removal(Rejection(Code.GPU_VRAM, Cure.CAPACITY, 8, 5, "n1", "g2"), "too little")
    stage = sent(simulation.filter_stage("room", "capacity", ["g1", "g2"], ["g1"], [gone], reached=True))
    reported = {"code": "insufficient-vram", "cure": "capacity", "message": "too little", "node": "n1", "gpu": "g2"}
    assert stage.pop("Removed") == [{**reported, "needed": 8, "had": 5}]
    assert stage == {
        "FilterName": "GPUResourceFilter",
        "Before": ["g1", "g2"],
        "After": ["g1"],
        "Diff": 1,
        "Filter": "room",
        "Kind": "capacity",
        "Reached": True,
    }


def test_a_stage_that_was_not_reached_had_no_cards():
    stage = simulation.filter_stage("worker-cap", "node", ["g1"], [], [], reached=False)
    assert (stage.filter_name, stage.before, stage.after, stage.diff) == ("worker-cap", (), (), 0)
    assert not stage.reached


@pytest.mark.parametrize(("free", "room"), [(5, (5, True)), (4, (4, False)), (-3, (0, False))])
def test_room_is_never_negative(free, room):
    found = simulation.SimulatedRoom.of(5, free, 9)
    assert (found.free, found.enough) == room
    assert simulation.SimulatedRoom.of(0, free, 9).enough


def test_a_quota_that_refuses_has_numbers():
    figures = QuotaFigures("team", 60, 100, 50)
    refusal = simulation.quota_refusal(Rejection(Code.QUOTA_TOTAL_WORKERS, Cure.QUOTA, quota=figures), "full")
    assert sent(refusal) == {
        "code": "total.max.workers.limit",
        "namespace": "team",
        "requested": 60,
        "limit": 100,
        "used": 50,
        "message": "full",
    }


# --- cards and allocations ---


def test_a_card_has_what_is_left_of_it():
    entry = sent(CardEntry.of(A100, "n1", bound=Amounts(100_500, 16 * GI), assumed=Amounts(12_000, GI // 2)))
    assert entry["capacity"] == {"tflops": "312.5", "vram": "80Gi"}
    assert entry["available"] == {"tflops": "212", "vram": "64Gi"}
    assert entry["effectiveAvailable"] == {"tflops": "200", "vram": "65024Mi"}
    assert (entry["name"], entry["node"], entry["usedBy"], entry["isolationPolicy"]) == ("g1", "n1", "", "static")


def test_a_card_that_shrank_has_nothing_left():
    entry = CardEntry.of(A100, "n1", bound=Amounts(400_000, 81 * GI), assumed=Amounts(1, 1))
    assert entry.available == entry.effective_available == Quantities(tflops="0", vram="0")


def test_amounts_of_a_card_of_unknown_capacity_are_percentages():
    entry = sent(CardEntry.of(NAMELESS, "n1", bound=Amounts(250_000, 500_000), assumed=Amounts(0, 0)))
    assert entry["capacity"] is None
    assert entry["available"] == {"computePercent": "75", "vramPercent": "50"}


def held(**facts):
    cards = CardSelector(pool="p", isolation=Isolation.PARTITIONED)
    asked = ResourceRequirement(gpu_count=1, part=Part(compute_ppm=142_857, vram_bytes=8 * GI), cards=cards)
    charge = Charge(44_642, 10 * GI, Isolation.PARTITIONED, Slot("1g.10gb", 2, 3))
    return Allocation("u-1", "n1", asked, ("g1",), AllocationState.ASSUMED, (charge,), **facts)


def test_an_allocation_has_its_request_its_holdings_and_its_owner():
    claim = Claim("team", "serve", "serve-0", limit=Part(50_000, 10 * GI), qos=Qos.HIGH, priority=7)
    assert sent(AllocationEntry.of(held(claim=claim, assumed_at=5.0), {"g1": A100})) == {
        "uid": "u-1",
        "state": "assumed",
        "node": "n1",
        "gpuCount": 1,
        "isolation": "partitioned",
        "gpus": [
            {
                "gpu": "g1",
                "amounts": {"tflops": "44.642", "vram": "10Gi"},
                "isolation": "partitioned",
                "template": "1g.10gb",
                "slotStart": 2,
                "slotEnd": 3,
                "isolationGroup": None,
            }
        ],
        "request": {"computePercent": "14.2857", "vram": "8Gi"},
        "limit": {"tflops": "50", "vram": "10Gi"},
        "namespace": "team",
        "workload": "serve",
        "pod": "serve-0",
        "qos": "high",
        "priority": 7,
        "pool": "p",
        "assumedAt": 5.0,
        "boundAt": None,
    }


def test_a_holder_without_a_pod_has_no_names():
    allocation = Allocation("e-1", "n1", ResourceRequirement.of(gpu=2), ("g1", "gone"))
    entry = AllocationEntry.of(allocation, {"g1": A100})
    assert [card.gpu for card in entry.gpus] == ["g1", "gone"]
    assert {card.amounts for card in entry.gpus} == {None}
    assert (entry.namespace, entry.request, entry.limit) == (None, None, None)
    worker = {"uid": "e-1", "state": "bound", "namespace": None, "workload": None, "pod": None}
    assert sent(Worker.of(allocation)) == worker


def test_charges_of_a_missing_card_are_amounts():
    assert AllocationEntry.of(held(), {}).gpus[0].amounts == Quantities(tflops="44.642", vram="10Gi")


def test_a_report_has_the_names_that_callers_know():
    report = AllocationReport(gpu_store={}, node_worker_store={}, allocation={}, gpu_to_worker_map={})
    assert sent(report) == {"gpuStore": {}, "nodeWorkerStore": {}, "allocation": {}, "gpuToWorkerMap": {}}
