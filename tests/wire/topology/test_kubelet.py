"""Answers and files of a kubelet: PodResources, its two state files, its configuration."""

import pytest
from hypothesis import given

from tests.wire.topology.hostile import shaped
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.holding import Holding, MemoryHolding, PodHolding, Use
from ullage.model.node_record import Stock, stock_of_cards
from ullage.model.resources import Resources
from ullage.model.topology import Kubelet, Scope, ZonePolicy
from ullage.wire.topology.cpu_manager_state import CpuState, read_cpu_state
from ullage.wire.topology.device_checkpoint import read_device_state
from ullage.wire.topology.device_ids import in_names_of_record
from ullage.wire.topology.kubelet_config import read_kubelet_config
from ullage.wire.topology.noderesourcetopology import read_noderesourcetopology
from ullage.wire.topology.podresources import Allocatable, read_allocatable, read_pod_resources

MI, GI = 2**20, 2**30

# --- PodResources ---

LIST = {
    "pod_resources": [
        {
            "name": "p",
            "namespace": "team",
            "containers": [
                {
                    "name": "c",
                    "cpu_ids": [3, "2"],
                    "devices": [
                        {
                            "resource_name": "nvidia.com/gpu",
                            "device_ids": ["GPU-b"],
                            "topology": {"nodes": [{"ID": 1}]},
                        },
                        {"resource_name": "nvidia.com/gpu", "device_ids": ["GPU-a"], "topology": None},
                        {"resource_name": "example.com/nic", "device_ids": ["nic-0"]},
                    ],
                    "memory": [{"memory_type": "memory", "size": "1024", "topology": {"nodes": [{}, {"ID": 1}]}}],
                    "dynamic_resources": [
                        {
                            "claim_name": "r",
                            "claim_resources": [{"driver_name": "dra.net", "pool_name": "n1", "device_name": "eth0"}],
                        }
                    ],
                }
            ],
        }
    ]
}


def test_an_answer_to_list_has_the_ids_that_each_pod_holds():
    devices = (("dra.net", ("n1/eth0",)), ("example.com/nic", ("nic-0",)), ("nvidia.com/gpu", ("GPU-a", "GPU-b")))
    memory = (MemoryHolding("memory", (0, 1), 1024),)
    holding = Holding("c", (2, 3), devices, memory=memory)
    assert read_pod_resources(LIST) == (Use((PodHolding("team", "p", "", (holding,)),)), ())


def test_allocatable_devices_have_their_zones():
    answer = {
        "cpu_ids": [0, 1],
        "devices": [
            {"resource_name": "nvidia.com/gpu", "device_ids": ["GPU-a"], "topology": {"nodes": [{"ID": 1}]}},
            {"resource_name": "nvidia.com/gpu", "device_ids": ["GPU-a"], "topology": {"nodes": [{}]}},
            {"resource_name": "nvidia.com/gpu", "device_ids": ["GPU-b"]},
            {"resource_name": "nvidia.com/gpu", "device_ids": ["GPU-c"], "topology": {"nodes": [{"ID": -1}]}},
        ],
        "memory": [{"memory_type": "hugepages-2Mi", "size": 2 * MI, "topology": {"nodes": [{}]}}],
    }
    assert read_allocatable(answer) == (
        Allocatable(
            cpus=(0, 1),
            devices={"nvidia.com/gpu": {"GPU-a": (0, 1), "GPU-b": (), "GPU-c": ()}},
            memory=(MemoryHolding("hugepages-2Mi", (0,), 2 * MI),),
        ),
        (),
    )


def test_cards_are_free_by_uuid_and_never_by_position():
    cards = [Gpu("GPU-b", 1), Gpu("GPU-a", 0), Gpu("GPU-c", 2), Gpu("GPU-d", 3, healthy=False)]
    held = Use((PodHolding("team", "p", "", (Holding("c", devices=(("gpu", ("GPU-b",)),)),)),))
    assert stock_of_cards(cards, held) == Stock(4, (0, 2))
    part = Use((PodHolding("team", "p", "", (Holding("c", devices=(("nvidia.com/gpu.shared", ("GPU-a::3",)),)),)),))
    assert stock_of_cards(cards, in_names_of_record(part, cards, "nvidia.com/gpu", ())) == Stock(4, (1, 2))
    assert stock_of_cards(cards, Use()) == Stock(4, (0, 1, 2))


def test_a_malformed_holding_is_dropped_and_named_and_the_rest_stays():
    container = {"name": "c", "cpu_ids": ["x"], "devices": [{"resource_name": "a/b", "device_ids": "d"}, 7]}
    use, warnings = read_pod_resources({"pod_resources": ["p", {"name": "q", "containers": [container]}]})
    assert use.pods == (PodHolding(name="q", containers=(Holding("c"),)),)
    assert len(warnings) == 4


# --- state files ---

CPU_STATE = {
    "policyName": "static",
    "defaultCpuSet": "0,4-7",
    "entries": {"u1": {"c": "1-2"}, "u2": {"a": "3"}},
    "checksum": 1234,
}


def test_the_state_of_the_cpu_manager_is_by_uid_and_stale():
    first = PodHolding(uid="u1", containers=(Holding("c", (1, 2)),))
    second = PodHolding(uid="u2", containers=(Holding("a", (3,)),))
    expected = CpuState(True, (0, 4, 5, 6, 7), Use((first, second), stale=True))
    assert read_cpu_state(CPU_STATE) == (expected, ())
    assert read_cpu_state({"policyName": "none", "defaultCpuSet": ""})[0] == CpuState(False, (), Use(stale=True))


def test_a_cpu_set_that_cannot_be_read_drops_its_container_alone():
    state, warnings = read_cpu_state({**CPU_STATE, "entries": {"u1": {"c": "0-99999999999", "d": "9"}, "u2": "3"}})
    assert state.use.pods[0].containers == (Holding("d", (9,)),)
    assert len(warnings) == 2


CHECKPOINT = {
    "Data": {
        "PodDeviceEntries": [
            {
                "PodUID": "u1",
                "ContainerName": "c",
                "ResourceName": "nvidia.com/gpu",
                "DeviceIDs": {"0": ["GPU-b"], "1": ["GPU-a"], "-1": ["GPU-x"]},
                "AllocResp": "CgA=",
            },
            {"PodUID": "u1", "ContainerName": "c", "ResourceName": "example.com/nic", "DeviceIDs": {"-1": ["nic-0"]}},
        ],
        "RegisteredDevices": {"nvidia.com/gpu": ["GPU-x", "GPU-b", "GPU-a", "GPU-c"]},
    },
    "Checksum": 99,
}


def test_the_checkpoint_of_devices_is_by_zone_and_stale():
    state, warnings = read_device_state(CHECKPOINT)
    devices = (("example.com/nic", ("nic-0",)), ("nvidia.com/gpu", ("GPU-a", "GPU-b", "GPU-x")))
    assert warnings == ()
    assert state.use == Use((PodHolding(uid="u1", containers=(Holding("c", devices=devices),)),), stale=True)
    assert state.zones == {"GPU-a": (1,), "GPU-b": (0,), "GPU-x": (), "nic-0": ()}
    assert state.registered == {"nvidia.com/gpu": ("GPU-a", "GPU-b", "GPU-c", "GPU-x")}


@pytest.mark.parametrize("document", [None, {}, {"Data": None}, {"Data": {}}, {"Data": []}, {"data": CHECKPOINT}, []])
def test_a_document_of_another_form_is_not_an_empty_checkpoint(document):
    with pytest.raises(InvalidRequest):
        read_device_state(document)


def test_a_checkpoint_without_allocated_devices_is_read():
    state, warnings = read_device_state({"Data": {"PodDeviceEntries": None, "RegisteredDevices": {}}, "Checksum": 1})
    assert (state.use, warnings) == (Use(stale=True), ())


@pytest.mark.parametrize("document", [None, {}, {"policyName": ""}, {"policyName": 3}, {"entries": {}}, []])
def test_a_state_without_a_policy_does_not_mean_that_all_cpus_are_free(document):
    with pytest.raises(InvalidRequest):
        read_cpu_state(document)


def test_a_held_card_is_not_free_whatever_the_shape_of_the_checkpoint():
    entry = {"PodUID": "u1", "ContainerName": "c", "ResourceName": "nvidia.com/gpu"}
    for ids in ({"0": ["GPU-a"]}, {"-1": ["GPU-a"]}, {"x": ["GPU-a"]}, ["GPU-a"]):
        state, _ = read_device_state({"Data": {"PodDeviceEntries": [{**entry, "DeviceIDs": ids}]}})
        cards = [Gpu("GPU-a", 0), Gpu("GPU-b", 1)]
        use = in_names_of_record(state.use, cards, "nvidia.com/gpu", ())
        assert stock_of_cards(cards, use) == Stock(2, (1,))


# --- configuration ---

CONFIG = {
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
    "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1100Mi", "hugepages-2Mi": "2Mi"}}],
    "reservedSystemCPUs": "0-1,8",
    "kubeReserved": {"cpu": "500m", "memory": "1Gi"},
    "systemReserved": {"cpu": "700m", "memory": "512Mi"},
    "evictionHard": {"memory.available": "200Mi"},
}


def test_a_whole_configuration():
    settings, warnings = read_kubelet_config(CONFIG)
    assert warnings == ()
    assert settings.kubelet == Kubelet(
        ZonePolicy.RESTRICTED, Scope.POD, {"prefer-closest-numa-nodes": "true"}, True, {"full-pcpus-only": "true"}, True
    )
    assert settings.kubelet.closest
    assert settings.reserved_cpus == {0, 1, 8}
    assert settings.reserved == Resources(3000, GI + 512 * MI + 200 * MI)
    assert settings.reserved_memory == {0: {"memory": 1100 * MI, "hugepages-2Mi": 2 * MI}}
    assert read_kubelet_config({"kubeletconfig": CONFIG})[0] == settings


def test_an_empty_configuration_is_that_of_the_defaults():
    settings, warnings = read_kubelet_config({})
    assert (settings.kubelet, settings.reserved, warnings) == (Kubelet(), Resources(0, 100 * MI), ())
    assert read_kubelet_config({"evictionHard": {}})[0].reserved == Resources()


def test_amounts_of_cpu_are_added_where_no_cpus_are_named():
    kept = {"kubeReserved": {"cpu": "500m"}, "systemReserved": {"cpu": "700m"}, "evictionHard": {}}
    assert read_kubelet_config(kept)[0].reserved == Resources(1200)


@pytest.mark.parametrize(("share", "kept"), [("5%", 5), ("0.5%", 0), ("100%", 100), ("101%", 0), ("x%", 0)])
def test_a_percentage_is_of_the_memory_of_the_node(share, kept):
    settings, warnings = read_kubelet_config({"evictionHard": {"memory.available": share}}, memory_bytes=100)
    assert settings.reserved.memory_bytes == kept
    assert bool(warnings) == (share in ("101%", "x%"))


def test_settings_that_cannot_be_read_are_left_out_and_named():
    wrong = {
        "topologyManagerPolicy": "strict",
        "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": True},
        "reservedSystemCPUs": "0-99999999999",
        "reservedMemory": [{"numaNode": 64, "limits": {}}],
        "cpuManagerPolicy": "static",
    }
    settings, warnings = read_kubelet_config(wrong)
    assert settings.kubelet == Kubelet(static_cpus=True)
    assert (settings.reserved_cpus, settings.reserved_memory) == (frozenset(), {})
    named = ("topologyManagerPolicy:", "prefer-closest-numa-nodes", "reservedSystemCPUs", "reservedMemory[0].numaNode")
    assert [name for name in named if any(name in warning for warning in warnings)] == list(named)


# --- hostile documents ---


@pytest.mark.parametrize(
    "read", [read_pod_resources, read_allocatable, read_cpu_state, read_device_state, read_kubelet_config]
)
def test_documents_that_are_not_mappings_are_refused(read):
    for document in ([], "x", 7):
        with pytest.raises(InvalidRequest):
            read(document)


def tried(read, document):
    try:
        found, warnings = read(document)
    except InvalidRequest:
        return
    assert found is not None
    assert all(isinstance(warning, str) for warning in warnings)


@given(shaped(LIST, ["containers", "devices", "device_ids", "topology", "nodes", "ID"]))
def test_any_answer_to_list_is_read_or_refused(document):
    tried(read_pod_resources, document)


@given(shaped({"devices": LIST["pod_resources"][0]["containers"][0]["devices"], "cpu_ids": [1]}, ["nodes", "ID"]))
def test_any_answer_on_allocatable_resources_is_read_or_refused(document):
    tried(read_allocatable, document)


@given(shaped(CPU_STATE, ["entries", "c"]))
def test_any_cpu_state_is_read_or_refused(document):
    tried(read_cpu_state, document)


@given(shaped(CHECKPOINT, ["Data", "DeviceIDs", "-1"]))
def test_any_checkpoint_is_read_or_refused(document):
    tried(read_device_state, document)


@given(shaped(CONFIG, ["limits", "cpu", "memory", "memory.available"]))
def test_any_configuration_is_read_or_refused(document):
    tried(read_kubelet_config, document)


def test_of_many_malformed_entries_the_first_are_named_and_the_rest_counted():
    _, warnings = read_pod_resources({"pod_resources": ["x" * 10_000] * 5_000})
    assert warnings[0].startswith("pod_resources[0]: 'xxx")
    assert (len(warnings), warnings[-1]) == (101, "and 4900 more")
    _, (warning,) = read_noderesourcetopology(
        {
            "metadata": {"name": "n"},
            "attributes": [{"name": "topologyManagerPolicy", "value": "x" * 10_000}],
        }
    )
    assert len(warning) < 500
