"""The alignment of a pod by container."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.pod.pods import GI, asked_by, containers, needs, pod, refusal
from ullage.model.alignment import DEFAULT_ALIGNMENT, Alignment, AlignmentStage, ContainerNeeds, Level, Pair
from ullage.model.error import InvalidRequest
from ullage.model.topology import ZonePolicy
from ullage.wire.pod import compose_request

MI = 2**20


def aligned(*resources, **given):
    return asked_by(spec=containers(*resources), **given).alignment


def limits(**amounts):
    """Limits, with the resource of NVIDIA's cards as `gpu`; the API server makes requests of them."""
    names = {"gpu": "nvidia.com/gpu"}
    return {"limits": {names.get(name, name): amount for name, amount in amounts.items()}}


def own(cpu, memory="1Gi", **more):
    return limits(cpu=cpu, memory=memory, **more)


# --- who aligns what ---


def test_a_container_with_cpu_only_requests_no_cards():
    first, second = aligned(own("4"), own("2", gpu="1")).containers
    assert (first.cpus, first.devices) == (4, ())
    assert (second.cpus, second.devices) == (2, (("gpu", 1),))


def test_half_a_cpu_is_not_aligned_but_the_cards_are():
    assert aligned(own("500m", gpu="2")).containers == (ContainerNeeds(memory_bytes=GI, devices=(("gpu", 2),)),)


def test_a_guaranteed_pod_is_aligned_by_all_that_it_requests():
    found = aligned(own("8", "16Gi", gpu="2", **{"hugepages-2Mi": "1Gi", "example.com/nic": 3}))
    devices = (("example.com/nic", 3), ("gpu", 2))
    assert found == Alignment(
        containers=(ContainerNeeds(cpus=8, memory_bytes=16 * GI, devices=devices, hugepages=((2 * MI, GI),)),)
    )


@pytest.mark.parametrize(
    "resources",
    [
        {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "2"}},
        {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"cpu": "8", "memory": "1Gi", "nvidia.com/gpu": "2"}},
        {"limits": {"cpu": "4", "nvidia.com/gpu": "2"}},
        {"requests": {"memory": "1Gi"}, "limits": {"cpu": "4", "memory": "2Gi", "nvidia.com/gpu": "2"}},
    ],
)
def test_a_burstable_pod_is_aligned_by_its_cards_alone(resources):
    assert aligned(resources).containers == (ContainerNeeds(devices=(("gpu", 2),)),)


def test_a_pod_is_guaranteed_only_when_all_its_containers_are():
    first, second = aligned(own("4", gpu="1"), limits(gpu="1")).containers
    assert first == ContainerNeeds("c0", devices=(("gpu", 1),))
    assert second == ContainerNeeds("c1", devices=(("gpu", 1),))


@pytest.mark.parametrize(("reported", "cpus"), [("Guaranteed", 4), ("Burstable", 0), ("BestEffort", 0)])
def test_the_class_that_the_api_server_wrote_counts(reported, cpus):
    document = {**pod(spec=containers(own("4", gpu="1"))), "status": {"qosClass": reported}}
    assert compose_request(document).requirement.alignment.containers[0].cpus == cpus


def test_containers_of_a_pod_with_pod_level_resources_have_no_exclusive_cpus():
    spec = {**containers(own("4", gpu="1")), "resources": own("4")}
    assert asked_by(spec=spec).alignment.containers == (ContainerNeeds(devices=(("gpu", 1),)),)


@pytest.mark.parametrize("name", ["amd.com/gpu", "huawei.com/Ascend910", "nvidia.com/gpu"])
def test_the_cards_of_every_vendor_are_cards(name):
    assert aligned(own("1", **{name: "2"})).containers[0].devices == (("gpu", 2),)


def test_resources_that_are_not_devices_are_not_aligned():
    found = aligned(own("1", gpu="1", **{"ephemeral-storage": "1Gi", "attachable.kubernetes.io/x": "3", "a.b/c": "0"}))
    assert found.containers[0].devices == (("gpu", 1),)


def test_stages_are_distinguished_in_the_order_of_their_start():
    spec = {
        "initContainers": [
            {"name": "log", "restartPolicy": "Always", "resources": own("1")},
            {"name": "load", "resources": own("2", gpu="4")},
        ],
        "containers": [{"name": "serve", "resources": own("8", gpu="4")}],
    }
    found = [(needs.name, needs.stage, needs.cpus) for needs in asked_by(spec=spec).alignment.containers]
    assert found == [
        ("log", AlignmentStage.SIDECAR, 1),
        ("load", AlignmentStage.INIT, 2),
        ("serve", AlignmentStage.APP, 8),
    ]


# --- plain pods stay alike ---


@pytest.mark.parametrize(
    "given",
    [
        {"spec": containers(limits(gpu="2"))},
        {"spec": containers({**limits(gpu="2"), **needs("500m")})},
        {"spec": containers({}, limits(gpu="2"), needs("1500m"))},
        {"spec": containers(needs("500m")), "tflops_request": "1"},
        {"tflops_request": "1", "gpu_count": "4"},
    ],
)
def test_a_pod_with_amounts_only_names_no_containers(given):
    assert asked_by(**given).alignment == DEFAULT_ALIGNMENT


def test_a_policy_alone_names_no_containers():
    assert aligned(limits(gpu="2"), numa_policy="restricted") == Alignment(ZonePolicy.RESTRICTED)


def test_the_name_of_an_only_container_does_not_count():
    one, other = ({"containers": [{"name": name, "resources": own("8", gpu="1")}]} for name in ("a", "b"))
    assert asked_by(spec=one).alignment == asked_by(spec=other).alignment


# --- cards by annotation ---


def test_cards_that_no_container_limits_count_for_the_first_one():
    first, second = aligned(own("2"), own("4"), gpu_count="4", tflops_request="1").containers
    assert (first.devices, second.devices) == ((("gpu", 4),), ())


def test_cards_are_split_as_the_pod_says():
    found = aligned(own("2"), own("4"), gpu_count="4", tflops_request="1", container_gpu_count='{"c0": 1, "c1": 3}')
    assert [needs.devices for needs in found.containers] == [(("gpu", 1),), (("gpu", 3),)]


def test_a_split_over_unknown_containers_loses_no_card():
    found = aligned(own("2"), own("4"), gpu_count="4", tflops_request="1", container_gpu_count='{"x": 3, "c1": 1}')
    assert [needs.devices for needs in found.containers] == [(("gpu", 3),), (("gpu", 1),)]


# --- the policy ---


@pytest.mark.parametrize("policy", list(ZonePolicy))
def test_the_policy_is_ours_or_that_of_volcano(policy):
    theirs = {"metadata": {"annotations": {"volcano.sh/numa-topology-policy": policy.value}}}
    assert asked_by(numa_policy=policy.value).alignment.policy is policy
    assert asked_by(**theirs).alignment.policy is policy


def test_policies_that_differ_are_refused_with_both_keys():
    both = {"ullage.io/numa-policy": "restricted", "volcano.sh/numa-topology-policy": "best-effort"}
    message = refusal(metadata={"annotations": both})
    assert "ullage.io/numa-policy" in message
    assert "volcano.sh/numa-topology-policy is 'best-effort'" in message
    agreed = dict.fromkeys(both, "restricted")
    assert asked_by(metadata={"annotations": agreed}).alignment == Alignment(ZonePolicy.RESTRICTED)


def test_an_unknown_policy_is_refused():
    assert "best-effort, restricted, single-numa-node" in refusal(numa_policy="strict")


# --- amounts out of range, and hostile documents ---


@pytest.mark.parametrize("count", ["2147483648", "9223372036854775807"])
def test_more_devices_than_can_be_counted_are_refused(count):
    with pytest.raises(InvalidRequest) as refused:
        aligned(own("1", **{"example.com/nic": count}))
    assert refused.value.code == "amount-out-of-range"


def test_a_pod_with_too_many_aligned_containers_is_refused():
    with pytest.raises(InvalidRequest, match="at most 64"):
        aligned(*[limits(**{"example.com/nic": "1"})] * 65)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "1", "4Gi", "500m", "-1", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "cpu", "x.y/z", 1]), inner, max_size=3)
    ),
    max_leaves=6,
)
RESOURCES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi", "hugepages-x", "x.y/z", 7]), VALUES, max_size=4
)
CONTAINER = VALUES | st.fixed_dictionaries(
    {
        "name": VALUES,
        "restartPolicy": VALUES | st.just("Always"),
        "resources": VALUES | st.fixed_dictionaries({"limits": RESOURCES | VALUES, "requests": RESOURCES | VALUES}),
    }
)


@given(st.lists(CONTAINER, max_size=3) | VALUES, st.lists(CONTAINER, max_size=2) | VALUES, VALUES, VALUES)
def test_any_document_is_a_pod_or_refused(apps, inits, status, resources):
    spec = {"containers": apps, "initContainers": inits, "resources": resources}
    try:
        found = compose_request({**pod(spec=spec), "status": status}).requirement.alignment
    except InvalidRequest:
        return
    assert isinstance(found, Alignment)


# --- pairs ---


def test_pairs_are_by_the_names_that_pods_have_for_resources():
    found = aligned(limits(gpu="2"), numa_pairs="nvidia.com/gpu~intel.com/sriov=required, cpu~gpu=preferred")
    assert found.pairs == (Pair("cpu", Level.PREFERRED), Pair("intel.com/sriov", Level.REQUIRED))


@pytest.mark.parametrize(
    "value",
    ["gpu~nic", "gpu~nic=hard", "nic=required", "gpu~amd.com/gpu=required", "gpu~nic=required,nic~gpu=preferred", ","],
)
def test_invalid_pairs_are_refused_with_their_key(value):
    assert "ullage.io/numa-pairs" in refusal(spec=containers(limits(gpu="2")), numa_pairs=value)


def test_pairs_do_not_go_with_a_policy_of_none():
    said = refusal(spec=containers(limits(gpu="2")), numa_pairs="gpu~nic=required", numa_policy="none")
    assert "ullage.io/numa-pairs" in said


def test_a_pod_has_as_many_pairs_as_containers_and_no_more():
    pairs = [f"gpu~nic{number}=preferred" for number in range(65)]
    assert len(aligned(limits(gpu="2"), numa_pairs=",".join(pairs[:64])).pairs) == 64
    said = refusal(spec=containers(limits(gpu="2")), numa_pairs=",".join(pairs))
    assert said.startswith("ullage.io/numa-pairs: ")
    assert said.endswith("65 pairs; at most 64 can be requested")
    with pytest.raises(InvalidRequest, match="at most 64"):
        Alignment(pairs=tuple(Pair(f"nic{number:02}", Level.REQUIRED) for number in range(65)))


def test_a_pod_with_too_many_kinds_of_devices_is_refused():
    devices = {f"example.com/nic{number}": "1" for number in range(65)}
    with pytest.raises(InvalidRequest, match=r"resources: 66 is not valid: .* at most 64 kinds of devices"):
        aligned(limits(**devices))
    half = dict(list(devices.items())[:40]), dict(list(devices.items())[40:])
    with pytest.raises(InvalidRequest, match="at most 64 kinds of devices"):
        aligned(*(limits(**each) for each in half))
