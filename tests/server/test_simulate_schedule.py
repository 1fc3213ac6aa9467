"""The simulated placement of a pod and the report of cards, as bodies."""

import json
from dataclasses import replace

import msgspec
import pytest

from tests.wire.pod.pods import containers, needs, pod
from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.error import InvalidRequest, Unavailable
from ullage.model.gpu import Gpu, GpuPhase
from ullage.model.node import Node
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quota import Caps, Quota
from ullage.model.request import ResourceRequirement
from ullage.model.taint import Taint
from ullage.server.simulation import allocation_report, simulate_schedule

GI = 2**30


def card(name, tflops, gib, model="A100", pool="test-pool", phase=GpuPhase.RUNNING, index=0):
    return Gpu(name, index, model, "NVIDIA", gib * GI, tflops * 1000, pool=pool, phase=phase)


def a_fleet():
    """The cards of the cases: node-1 can take work, the one of node-3 is not running, node-2 is of another pool."""
    first = (card("gpu-1", 100, 16), card("gpu-5", 100, 16, index=1), card("gpu-6", 100, 16, index=2))
    first = *first, card("gpu-2", 100, 32, index=3)
    third = (card("gpu-4", 150, 48, "H100", phase=GpuPhase.PENDING),)
    return Fleet(
        [
            Node("node-1", 8000, 64 * GI, first, labels={"zone": "a"}),
            Node("node-2", 8000, 64 * GI, (card("gpu-3", 120, 24, pool="other-pool"),), labels={"zone": "b"}),
            Node("node-3", 8000, 64 * GI, third, labels={"zone": "a"}),
            Node("node-4", 8000, 64 * GI),
        ]
    )


def an_allocator(**rules):
    allocator = FleetAllocator(a_fleet(), Rules(**rules))
    allocator.set_ready()
    return allocator


def simulated(allocator=None, spec=None, metadata=None, **keys):
    """The answer to a pod of test-pool as the caller gets it."""
    document = pod(spec=spec, metadata=metadata, **{"gpupool": "test-pool", **keys})
    body = json.dumps(document).encode()
    return msgspec.json.decode(msgspec.json.encode(simulate_schedule(allocator or an_allocator(), body)()))


def held(allocator, uid, *gpus, state="bound", tflops=20, gib=4):
    cards = CardSelector(pool="test-pool", isolation=Isolation.SOFT)
    asked = ResourceRequirement(gpu_count=len(gpus), part=Part(tflops * 1000, gib * GI), cards=cards)
    request = Request(uid, asked, Claim("team", "serve", f"{uid}-pod"))
    step = allocator.bind if state == "bound" else allocator.assume
    assert not isinstance(step(request, gpus, 0.0), Refusal)


def stages(answer):
    return {stage["Filter"]: stage for stage in answer["filterDetail"]["FilterStageDetails"]}


# --- where ---


def test_a_pod_that_fits_gets_a_node_and_cards():
    answer = simulated(tflops_request="50", vram_request="8Gi")
    assert answer["error"] is None
    assert answer["scheduleResult"] == {"SuggestedHost": "node-1", "EvaluatedNodes": 4, "FeasibleNodes": 1}
    state = answer["gpuSchedulerState"]
    assert len(state["FinalGPUs"]) == 1
    assert [found["name"] for found in state["NodeGPUs"]["node-1"]] == ["gpu-1", "gpu-5", "gpu-6", "gpu-2"]
    assert set(state["ValidNodeGPUScore"]["node-1"]) == {"gpu-1", "gpu-5", "gpu-6", "gpu-2"}
    assert (state["ValidNodeNotMatchingGPUScore"], state["PreemptPods"], state["IsPreemption"]) == ({}, {}, False)


def test_each_filter_has_the_cards_before_and_after_it():
    removed = stages(simulated(tflops_request="50", vram_request="20Gi"))
    assert removed["pool"]["Before"] == ["gpu-1", "gpu-5", "gpu-6", "gpu-2", "gpu-3", "gpu-4"]
    assert removed["phase"]["Before"] == removed["pool"]["After"] == ["gpu-1", "gpu-5", "gpu-6", "gpu-2", "gpu-4"]
    assert (removed["phase"]["FilterName"], removed["phase"]["Diff"]) == ("PhaseFilter", 1)
    room = removed["room"]
    assert (room["After"], room["Diff"]) == (["gpu-2"], 3)
    assert {gone["code"] for gone in room["Removed"]} == {"insufficient-vram"}


def test_cards_that_do_not_match_on_a_node_that_does_are_scored_too():
    by_load = an_allocator(strategy="node-compact-gpu-low-load")
    state = simulated(by_load, tflops_request="50", vram_request="20Gi")["gpuSchedulerState"]
    assert state["FinalGPUs"] == ["gpu-2"]
    assert state["ValidNodeGPUScore"] == {"node-1": {"gpu-2": 100}}
    assert state["ValidNodeNotMatchingGPUScore"] == {"node-1": {"gpu-1": 100, "gpu-5": 100, "gpu-6": 100}}


def test_allocations_count_and_are_shown():
    allocator = an_allocator()
    held(allocator, "u-2", "gpu-1")
    held(allocator, "u-3", "gpu-1", state="assumed", tflops=5, gib=1)
    found = simulated(allocator, tflops_request="50")["gpuSchedulerState"]["NodeGPUs"]["node-1"][0]
    assert found["capacity"] == {"tflops": "100", "vram": "16Gi"}
    assert found["available"] == {"tflops": "80", "vram": "12Gi"}
    assert found["effectiveAvailable"] == {"tflops": "75", "vram": "11Gi"}


def test_node_terms_are_respected():
    answer = simulated(spec={"nodeSelector": {"zone": "b"}}, tflops_request="1")
    assert answer["error"]["code"] == "node-affinity"
    assert stages(answer)["node-affinity"]["FilterName"] == "NodeAffinityFilter"
    assert simulated(spec={"nodeSelector": {"zone": "a"}}, tflops_request="1")["error"] is None


def test_taints_are_respected():
    taint = Taint("dedicated", "team-a", "NoSchedule")
    fleet = Fleet(replace(node, taints=(taint,)) for node in a_fleet().nodes)
    allocator = FleetAllocator(fleet, Rules())
    allocator.set_ready()
    answer = simulated(allocator, tflops_request="1")
    assert answer["error"]["code"] == "node-tainted"
    assert stages(answer)["node-taint"]["Removed"][0]["message"].endswith("dedicated=team-a:NoSchedule on node node-1")
    tolerates = {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    tolerated = simulated(allocator, spec=tolerates, tflops_request="1")
    assert tolerated["error"] is None
    assert "node-taint" not in stages(tolerated)


def test_the_same_question_has_the_same_answer_and_changes_nothing():
    allocator = an_allocator()
    held(allocator, "u-2", "gpu-1")
    before = allocator.version, dict(allocator.fleet.ledger), allocator.fleet.clock, allocator.take_dirty()
    answers = [simulated(allocator, tflops_request="50", vram_request="8Gi") for _ in range(100)]
    assert all(answer == answers[0] for answer in answers)
    assert (allocator.version, dict(allocator.fleet.ledger), allocator.fleet.clock) == before[:3]
    assert allocator.take_dirty() == frozenset()


def test_the_changes_are_described():
    allocator = an_allocator()
    held(allocator, "u-2", "gpu-1")
    answer = simulated(allocator, tflops_request="50", vram_request="8Gi", gpu_count="2")
    cards = CardSelector(pool="test-pool", isolation=Isolation.SOFT)
    asked = ResourceRequirement(gpu_count=2, part=Part(50_000, 8 * GI), cards=cards)
    placed = allocator.alloc(Request("u-1", asked), 0.0)
    assert isinstance(placed, Allocation)
    assert answer["scheduleResult"]["SuggestedHost"] == placed.node
    assert answer["gpuSchedulerState"]["FinalGPUs"] == list(placed.gpus)


def test_a_pod_that_was_not_created_yet_can_be_asked_about():
    assert simulated(metadata={"uid": None}, tflops_request="1")["error"] is None


# --- why not ---


def test_too_few_cards_on_one_node_keep_all_stages():
    answer = simulated(tflops_request="50", vram_request="8Gi", gpu_count="5")
    error = answer["error"]
    assert (error["type"], error["code"], error["numAllNodes"]) == ("FitError", "not-enough-gpus-on-node", 4)
    assert error["message"].startswith("0 of 4 nodes fit: ")
    assert answer["scheduleResult"] == {"SuggestedHost": "", "EvaluatedNodes": 4, "FeasibleNodes": 0}
    same_node = stages(answer)["same-node"]
    assert (len(same_node["Before"]), same_node["After"], same_node["Diff"]) == (4, [], 4)
    assert error["diagnosis"]["unschedulablePlugins"] == ["pool", "PhaseFilter", "SameNodeFilter"]
    status = error["diagnosis"]["nodeToStatus"]
    assert [status[f"node-{number}"].rpartition("(")[2] for number in (1, 2, 3)] == [
        "not-enough-gpus-on-node)",
        "wrong-pool)",
        "gpu-not-running)",
    ]
    assert status["node-4"] == "it has no cards"


def test_stages_after_the_last_card_were_not_reached():
    answer = simulated(tflops_request="1", gpu_model="B200")
    assert answer["error"]["code"] == "wrong-model"
    room = stages(answer)["room"]
    assert (room["Reached"], room["Before"], room["After"], room["Diff"]) == (False, [], [], 0)
    assert answer["gpuSchedulerState"]["FinalGPUs"] == []


def test_cpu_and_memory_of_each_node_are_exported():
    answer = simulated(spec=containers(needs("9", "1Gi")), tflops_request="1")
    assert answer["error"]["code"] == "insufficient-cpu"
    node = answer["nodes"]["node-1"]
    assert node["cpuMilli"] == {"asked": 9000, "free": 8000, "total": 8000, "enough": False}
    assert node["memoryBytes"] == {"asked": GI, "free": 64 * GI, "total": 64 * GI, "enough": True}


def test_the_cap_of_each_node_is_exported():
    allocator = an_allocator(workers_per_node=2)
    held(allocator, "u-2", "gpu-1", state="assumed")
    held(allocator, "u-3", "gpu-2", state="assumed")
    answer = simulated(allocator, tflops_request="1")
    assert answer["error"]["code"] == "worker-cap"
    facts = {name: (node["workers"], node["maxWorkers"], node["belowCap"]) for name, node in answer["nodes"].items()}
    assert (facts["node-1"], facts["node-2"]) == ((2, 2, False), (0, 2, True))
    assert simulated(an_allocator(workers_per_node=0), tflops_request="1")["nodes"]["node-1"]["maxWorkers"] is None


def test_the_quota_is_exported():
    caps = Caps(100_000, 1000 * GI)
    quotas = Quotas({"team": Quota(total_requests=caps, max_workers=1)})
    allocator = an_allocator(quotas=quotas)
    allowed = simulated(allocator, tflops_request="60")["quota"]
    assert allowed == {"namespace": "team", "levels": ["team"], "allowed": True, "refusals": []}
    held(allocator, "u-2", "gpu-1", tflops=60)
    answer = simulated(allocator, tflops_request="60")
    assert (answer["error"]["code"], answer["quota"]["allowed"]) == ("total.max.tflops.request", False)
    assert [refusal["code"] for refusal in answer["quota"]["refusals"]] == [
        "total.max.tflops.request",
        "total.max.workers.limit",
    ]
    first = answer["quota"]["refusals"][0]
    assert (first["namespace"], first["requested"], first["limit"], first["used"]) == ("team", 60_000, 100_000, 60_000)
    assert "total.max.tflops.request" in answer["error"]["diagnosis"]["nodeToStatus"]["node-1"]
    assert "60 TFLOPS of 100 TFLOPS used" in answer["error"]["message"]


def test_without_a_quota_all_is_allowed():
    assert simulated(tflops_request="1")["quota"] == {
        "namespace": "team",
        "levels": [],
        "allowed": True,
        "refusals": [],
    }


def test_a_quota_that_some_cards_pass_refuses_only_the_others():
    quotas = Quotas({"team": Quota(max_requests=Caps(compute_gflops=60_000))})
    answer = simulated(an_allocator(quotas=quotas), gpupool="other-pool", compute_percent_request="50")
    assert (answer["error"], answer["quota"]["allowed"]) == (None, True)
    assert [refusal["requested"] for refusal in answer["quota"]["refusals"]] == [75_000]
    refused = simulated(an_allocator(quotas=quotas), gpu_model="H100", compute_percent_request="50")
    assert "single.max.tflops.request" in refused["error"]["diagnosis"]["nodeToStatus"]["node-3"]


def test_no_cards_at_all_is_a_refusal_too():
    allocator = FleetAllocator(Fleet([Node("n", 1000, GI)]))
    allocator.set_ready()
    answer = simulated(allocator, gpupool=None, tflops_request="1")
    assert (answer["error"]["code"], answer["quota"]["allowed"]) == ("no-candidate", True)
    assert answer["error"]["diagnosis"]["nodeToStatus"] == {"n": "it has no cards"}


# --- the pod itself ---


def test_a_wrong_annotation_gives_an_answer():
    answer = simulated(tflops_request="10", compute_percent_request="20")
    error = answer["error"]
    assert (error["type"], error["code"], error["numAllNodes"]) == ("InvalidAnnotation", "invalid-annotation", 4)
    assert error["field"] == "ullage.io/tflops-request"
    assert "compute-percent-request" in error["message"]
    assert (answer["nodes"], answer["quota"]) == ({}, None)


def test_an_unknown_pool_is_an_answer():
    error = simulated(gpupool="nowhere", tflops_request="1")["error"]
    assert (error["type"], error["code"]) == ("NotFound", "unknown-pool")


def test_a_pod_that_admission_would_refuse_gets_a_warning():
    answer = simulated(gpupool=None, tflops_request="1", vram_request="1m")
    assert answer["error"] is None
    assert "vram-request" in answer["warnings"][0]
    assert answer["warnings"][1].startswith("admission would refuse it: ullage.io/gpupool")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"kind": "Node"}', b'{"metadata": []}', b'{"spec": "x"}'])
def test_a_body_that_is_no_pod_is_refused(body):
    with pytest.raises(InvalidRequest):
        simulate_schedule(an_allocator(), body)


def test_a_field_of_another_type_is_refused_with_its_path():
    with pytest.raises(InvalidRequest, match=r"spec\.containers\[0\]\.resources\.requests\.cpu"):
        simulated(spec=containers(needs("much")), tflops_request="1")


def test_words_that_are_not_read_are_named_as_at_creation():
    answer = simulated(
        spec={"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpumemory": "1"}}}]},
        vram_request="1Gi",
        colour="red",
    )
    unread, unknown = sorted(answer["warnings"], key=lambda text: "colour" in text)
    assert unknown == "metadata.annotations.ullage.io/colour: it is not read"
    assert unread.endswith("did you mean nvidia.com/gpumem?")
    answer = simulated(vram_request="1Gi", tflops_reqest="1")
    assert answer["warnings"][-1].startswith("admission would refuse it: ullage.io/tflops-reqest: '1' is not valid: ")


def test_pods_of_other_schedulers_are_refused():
    document = pod(spec={"schedulerName": "default-scheduler"}, tflops_request="1")
    with pytest.raises(InvalidRequest, match=r"spec\.schedulerName") as caught:
        simulate_schedule(an_allocator(), document)
    assert caught.value.field == "spec.schedulerName"
    assert simulate_schedule(an_allocator(), document, schedulers=("ullage", "default-scheduler"))().error is None
    assert simulated(spec={"schedulerName": "ullage"}, tflops_request="1")["error"] is None


def test_pods_of_another_domain_are_read_under_it():
    document = pod("tensor-fusion.ai", gpupool="test-pool", tflops_request="50", vram_request="20Gi")
    answer = simulate_schedule(an_allocator(), document, domain="tensor-fusion.ai")()
    assert answer.gpu_scheduler_state.final_gpus == ("gpu-2",)


def test_an_allocator_that_is_not_ready_cannot_answer():
    with pytest.raises(Unavailable):
        simulate_schedule(FleetAllocator(a_fleet()), pod(tflops_request="1"))


# --- who holds what ---


def test_the_report_has_all_cards_and_all_who_hold_some():
    allocator = an_allocator()
    held(allocator, "u-2", "gpu-1", "gpu-2")
    held(allocator, "u-3", "gpu-1", state="assumed")
    whole = Allocation("e-1", "node-2", ResourceRequirement.of(gpu=1), ("gpu-3",))  # of an executor
    allocator.fleet.charge(whole)
    report = msgspec.json.decode(msgspec.json.encode(allocation_report(allocator.fleet, allocator.fleet.ledger)))
    assert set(report["gpuStore"]) == {f"gpu-{number}" for number in range(1, 7)}
    assert report["gpuStore"]["gpu-1"]["available"] == {"tflops": "80", "vram": "12Gi"}
    assert report["gpuStore"]["gpu-1"]["effectiveAvailable"] == {"tflops": "60", "vram": "8Gi"}
    assert report["gpuStore"]["gpu-3"]["available"] == {"tflops": "0", "vram": "0"}
    workers = {node: [worker["uid"] for worker in found] for node, found in report["nodeWorkerStore"].items()}
    assert workers == {"node-1": ["u-2", "u-3"], "node-2": ["e-1"], "node-3": [], "node-4": []}
    assert [worker["state"] for worker in report["nodeWorkerStore"]["node-1"]] == ["bound", "assumed"]
    assert report["nodeWorkerStore"]["node-2"][0]["state"] == report["allocation"]["e-1"]["state"] == "bound"
    per_card = {gpu: [worker["uid"] for worker in found] for gpu, found in report["gpuToWorkerMap"].items()}
    assert per_card == {
        "gpu-1": ["u-2", "u-3"],
        "gpu-2": ["u-2"],
        "gpu-3": ["e-1"],
        "gpu-4": [],
        "gpu-5": [],
        "gpu-6": [],
    }
    assert set(report["allocation"]) == {"u-2", "u-3", "e-1"}
    assert report["allocation"]["u-2"]["pod"] == "u-2-pod"
    assert [found["gpu"] for found in report["allocation"]["u-2"]["gpus"]] == ["gpu-1", "gpu-2"]


def test_allocations_on_a_lost_node_are_still_exported():
    allocator = an_allocator()
    allocator.reconcile([Allocation("u-9", "node-9", ResourceRequirement.of(gpu=1), ("gpu-9",), claim=Claim())], 0.0)
    report = allocation_report(allocator.fleet, allocator.fleet.ledger)
    assert [worker.uid for worker in report.node_worker_store["node-9"]] == ["u-9"]
    assert report.allocation["u-9"].node == "node-9"
