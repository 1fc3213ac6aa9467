"""Allocations written as annotations of their pods, and read again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.pod.placements import PLACEMENTS
from tests.wire.pod.pods import DOMAINS, GI, pod
from ullage.model.allocation import Allocation, AllocationState, Charge, Slot
from ullage.model.claim import Qos
from ullage.model.error import InvalidAnnotation, InvalidRequest
from ullage.model.part import Isolation
from ullage.model.request import ResourceRequirement
from ullage.wire.pod import bind_annotations, compose_request, effective_hard_sm_percent, read_allocations


@pytest.mark.parametrize(
    ("limit", "capacity", "percent"),
    [(10_000, 71_000, 15), (0, 100, 1), (1, 1_000_000, 1), (200, 100, 100), (100, 100, 100), (501, 1000, 51)],
)
def test_a_hard_limit_is_a_percentage_rounded_up(limit, capacity, percent):
    assert effective_hard_sm_percent(limit, capacity) == percent


def test_a_hard_limit_needs_a_capacity():
    with pytest.raises(InvalidRequest, match="capacity"):
        effective_hard_sm_percent(1, 0)


def allocated(document, gpus, charges=(), **times):
    request = compose_request(document)
    return Allocation(
        request.uid, "node-1", request.requirement, gpus, AllocationState.BOUND, charges, request.claim, **times
    )


def test_annotations_written_at_bind():
    document = pod(isolation="hard", tflops_request="10", gpu_count="3", container_gpu_count='{"c2": 1, "c1": 2}')
    charge = Charge(10_000, 0, Isolation.HARD)
    written = bind_annotations(
        allocated(document, ("g1", "g2", "g3"), (charge,) * 3),
        capacities={"g1": 71_000, "g2": 71_000, "g3": 40_000},
        container_gpu_counts=compose_request(document).container_gpu_counts,
        index=7,
    )
    kept = json.loads(written.pop("ullage.io/allocation"))
    assert kept["cards"] == [{"compute": 10_000, "vram": 0, "isolation": "hard"}] * 3
    assert written == {
        "ullage.io/gpu-ids": "g1,g2,g3",
        "ullage.io/effective-hard-sm-percent": "25",
        "ullage.io/container-gpus": '{"c1":["g1","g2"],"c2":["g3"]}',
        "ullage.io/index": "7",
    }


@pytest.mark.parametrize(
    ("keys", "percent"),
    [
        ({"isolation": "hard", "compute_percent_request": "14.1"}, "15"),
        ({"isolation": "hard", "tflops_request": "1", "compute_percent_limit": "30"}, "30"),
        ({"isolation": "hard", "vram_request": "1Gi"}, None),
        ({"isolation": "soft", "tflops_request": "10"}, None),
        ({"isolation": "shared"}, None),
    ],
)
def test_a_percentage_is_written_for_hard_limits_on_compute(keys, percent):
    written = bind_annotations(allocated(pod(**keys), ("g1",)))
    assert written.get("ullage.io/effective-hard-sm-percent") == percent


def test_a_hard_limit_on_a_card_of_unknown_capacity_is_refused():
    with pytest.raises(InvalidRequest, match="capacity"):
        bind_annotations(allocated(pod(isolation="hard", tflops_request="10"), ("g1",)))


def test_nothing_is_written_without_cards():
    assert bind_annotations(Allocation("u-1", "node-1", ResourceRequirement(cpu_milli=1))) == {}


def test_a_chosen_template_is_not_taken_for_a_pinned_one():
    document = pod(isolation="partitioned", tflops_request="30")
    slot = Slot("1g.24gb", 2, 3)
    allocation = allocated(document, ("g1",), (Charge(44_571, 24 * GI, Isolation.PARTITIONED, slot),))
    written = bind_annotations(allocation)
    assert written["ullage.io/partition-id"] == "1g.24gb"
    document["metadata"]["annotations"].update(written)
    assert compose_request(document).requirement.cards.template is None
    assert back(document) == allocation


def back(document, domain="ullage.io", charge_of=None):
    document["spec"] = {**document["spec"], "nodeName": "node-1"}
    return next(iter(read_allocations(document, domain, charge_of=charge_of or unasked)), None)


def unasked(requirement, gpu):
    raise AssertionError("the charges were kept")


def test_pods_without_a_node_or_cards_hold_nothing():
    assert read_allocations(pod(gpu_ids="g1", tflops_request="1"), charge_of=unasked) == ()
    assert back(pod(tflops_request="1")) is None


@DOMAINS
def test_a_pod_of_another_scheduler_is_charged_by_its_request(domain):
    document = pod(domain, gpu_ids="g1,g2", gpu_count="2", compute_percent_request="10", vram_request="2Gi")
    found = back(document, domain, lambda asked, gpu: Charge(*asked.part.on({"g1": 1000, "g2": 500}[gpu], 0)))
    assert found.charges == (Charge(100, 2 * GI), Charge(50, 2 * GI))
    assert (found.id, found.node, found.gpus, found.state) == ("u-1", "node-1", ("g1", "g2"), AllocationState.BOUND)
    whole = back(pod(domain, gpu_ids="g1", isolation="shared"), domain)
    assert whole.charges == ()


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({"gpu_ids": "g1,g2", "tflops_request": "1"}, ["gpu-ids", "gpu-count"]),
        ({"gpu_ids": "g1,g1", "tflops_request": "1", "gpu_count": "2"}, ["gpu-ids"]),
        ({"gpu_ids": "g1", "tflops_request": "1", "allocation": "{"}, ["allocation"]),
        ({"gpu_ids": "g1", "tflops_request": "1", "allocation": '{"cards": [{"compute": -1}]}'}, ["allocation"]),
    ],
)
def test_written_annotations_must_match_the_pod(keys, names):
    with pytest.raises(InvalidAnnotation) as caught:
        back(pod(**keys))
    assert all(f"ullage.io/{name}" in caught.value.message for name in names)


def test_a_bound_pod_has_a_uid():
    with pytest.raises(InvalidRequest, match=r"metadata\.uid"):
        back(pod(gpu_ids="g1", tflops_request="1", metadata={"uid": None}))


AMOUNT = st.integers(0, 10**6).map(str)
KEYS = st.fixed_dictionaries(
    {"isolation": st.sampled_from(["soft", "shared", "hard", "partitioned"]), "gpu_count": st.sampled_from("123")},
    optional={
        "tflops_request": AMOUNT,
        "tflops_limit": AMOUNT,
        "vram_request": AMOUNT,
        "vram_limit": AMOUNT,
        "qos": st.sampled_from([qos.value for qos in Qos]),
        "gpu_model": st.sampled_from(["A100", "A100,H100"]),
        "vendor": st.sampled_from(["NVIDIA", "AMD|Ascend"]),
        "gpupool": st.just("p"),
        "gang_min_members": st.sampled_from(["0", "2", "3"]),
        "eviction_protection": st.sampled_from(["5m", "never"]),
        "partition_id": st.just("1g.10gb"),
    },
)
SLOTS = st.builds(Slot, st.sampled_from(["1g.10gb", "4g.40gb+me"]), st.integers(0, 3), st.integers(4, 8)) | st.builds(
    Slot, st.just("vir01"), group=st.integers(0, 3)
)
TIMES = st.none() | st.floats(0, 4e9)
CARD = st.uuids().map(lambda uuid: f"GPU-{uuid}")


@given(st.data(), KEYS, st.sampled_from(["ullage.io", "tensor-fusion.ai"]))
def test_an_allocation_is_read_as_it_was_written(data, keys, domain):
    isolation = Isolation(keys["isolation"])
    if isolation is not Isolation.PARTITIONED:
        keys.pop("partition_id", None)
    document = pod(domain, **keys)
    request = compose_request(document, domain)
    count = request.requirement.gpu_count
    slots = SLOTS if isolation is Isolation.PARTITIONED else st.none()
    charges = st.builds(Charge, st.integers(0, 10**9), st.integers(0, 2**50), st.just(isolation), slots)
    held = 0 if request.requirement.whole else count
    allocation = Allocation(
        request.uid,
        "node-1",
        request.requirement,
        tuple(data.draw(st.lists(CARD, min_size=count, max_size=count, unique=True))),
        AllocationState.BOUND,
        tuple(data.draw(st.lists(charges, min_size=held, max_size=held))),
        request.claim,
        data.draw(TIMES),
        data.draw(TIMES),
        placement=data.draw(st.none() | PLACEMENTS),
    )
    capacities = dict.fromkeys(allocation.gpus, 71_000)
    written = bind_annotations(allocation, domain, capacities=capacities)
    assert all(key.startswith(f"{domain}/") for key in written)
    document["metadata"]["annotations"].update(written)
    document = json.loads(json.dumps(document))
    assert back(document, domain) == allocation
    (again,) = read_allocations(document, domain, charge_of=unasked)
    assert bind_annotations(again, domain, capacities=capacities) == written


@pytest.mark.parametrize(
    ("asks", "granted"),
    [
        ({"gpu_count": "1", "isolation": "shared"}, (Charge(0, 4 * GI),)),
        ({"gpu_count": "4", "isolation": "shared"}, (Charge(1000, 4 * GI), Charge(1000, 4 * GI))),
        ({"gpu_count": "2", "vram_request": "1Gi"}, ()),
        ({"gpu_count": "1", "vram_request": "1Gi"}, (Charge(0, 0), Charge(0, 0))),
    ],
)
def test_the_granted_amounts_count_where_others_were_requested(asks, granted):
    gpus = tuple(f"g{number}" for number in range(len(granted) or 2))
    document = pod(**asks)
    document["metadata"]["annotations"] |= bind_annotations(allocated(document, gpus, granted))
    found = back(document)
    assert (found.gpus, found.charges) == (gpus, granted)
    assert (found.requirement.gpu_count, found.requirement.whole) == (len(gpus), not granted)
