"""NodeResourceTopology objects: amounts by zone, distances, and how the kubelet aligns."""

import pytest
from hypothesis import given

from tests.wire.topology.hostile import shaped
from ullage.model.error import InvalidRequest
from ullage.model.node_record import IncludedPods
from ullage.model.topology import Kubelet, Room, Scope, Zone, ZonePolicy
from ullage.wire.topology.noderesourcetopology import read_noderesourcetopology

GI = 2**30


def zone(id_, costs=None, **resources):
    amounts = [
        {"name": name, "capacity": total, "allocatable": usable, "available": usable}
        for name, (total, usable) in resources.items()
    ]
    return {
        "name": f"node-{id_}",
        "type": "Node",
        "costs": [{"name": f"node-{other}", "value": cost} for other, cost in (costs or {}).items()],
        "resources": amounts,
    }


def reported(*zones, **attributes):
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
        "zones": list(zones),
    }


def read(document):
    record, warnings = read_noderesourcetopology(document)
    assert warnings == ()
    return record.topology


DOCUMENT = reported(
    zone(10, {0: 20, 10: 10}, cpu=("16", "15500m"), memory=("64Gi", "63Gi"), **{"nvidia.com/gpu": ("4", "4")}),
    zone(0, {10: 21, 0: 10}, cpu=("16", "16"), **{"hugepages-2Mi": ("1Gi", "1Gi"), "example.com/nic": (2, 1)}),
    topologyManagerPolicy="single-numa-node",
    topologyManagerScope="pod",
)


def test_amounts_stay_amounts_and_zones_are_in_numeric_order():
    record, warnings = read_noderesourcetopology(DOCUMENT)
    topology = record.topology
    assert (record.node, warnings, topology.source) == ("n1", (), "noderesourcetopology")
    assert topology.zones == (
        Zone(0, None, {2**21: Room(GI, GI)}, {"cpu": Room(16, 16), "example.com/nic": Room(2, 1)}),
        Zone(10, Room(64 * GI, 63 * GI), {}, {"cpu": Room(16, 15), "gpu": Room(4, 4)}),
    )
    assert topology.distances == ((10, 21), (20, 10))
    assert topology.kubelet == Kubelet(ZonePolicy.SINGLE_ZONE, Scope.POD, static_cpus=True, static_memory=True)
    assert (topology.cpus, record.cards, record.use, record.held) == ((), (), None, ())


def available(document, *left):
    """The same document with these amounts available, resource by resource of its first zone."""
    resources = document["zones"][0]["resources"]
    for entry, free in zip(resources, left, strict=True):
        entry["available"] = free
    return document


def test_what_is_allocatable_and_not_available_is_held():
    resources = {"cpu": ("16", "15500m"), "memory": ("64", "60"), "hugepages-1Gi": ("2Gi", "2Gi")}
    cards = {"nvidia.com/gpu": (4, 4), "amd.com/gpu": (4, 2), "a/nic": (2, 2)}
    document = available(reported(zone(1, **resources, **cards)), "11500m", "20", "1Gi", 1, 1, 2)
    record, warnings = read_noderesourcetopology(document)
    held = (1, "cpu", 4), (1, "gpu", 4), (1, "hugepages-1Gi", GI), (1, "memory", 40)
    assert (record.held, warnings) == (held, ())


def test_more_available_than_allocatable_is_nothing_held():
    record, _ = read_noderesourcetopology(available(reported(zone(0, cpu=("16", "8"))), "16"))
    assert record.held == ()


ALL, EXCLUSIVE = IncludedPods("pfp0v001aa"), IncludedPods("pfp0v001aa", exclusive_only=True)


@pytest.mark.parametrize(
    ("attributes", "annotations", "included"),
    [
        ({}, {}, IncludedPods()),
        ({"nodeTopologyPodsFingerprint": "pfp0v001aa"}, {"topology.node.k8s.io/fingerprint": "pfp0v001bb"}, ALL),
        (
            {
                "nodeTopologyPodsFingerprint": "pfp0v001aa",
                "nodeTopologyPodsFingerprintMethod": "with-exclusive-resources",
            },
            {},
            EXCLUSIVE,
        ),
        ({"nodeTopologyPodsFingerprint": "pfp0v001aa", "nodeTopologyPodsFingerprintMethod": "all"}, {}, ALL),
        ({}, {"topology.node.k8s.io/fingerprint": "pfp0v001aa"}, ALL),
    ],
)
def test_the_pods_that_are_included_are_those_of_the_fingerprint(attributes, annotations, included):
    document = reported(**attributes)
    document["metadata"]["annotations"] = annotations
    record, warnings = read_noderesourcetopology(document)
    assert (record.included, warnings) == (included, ())


def test_a_document_of_the_older_version_has_no_attributes():
    older = {**reported(zone(0, cpu=("4", "4"))), "apiVersion": "topology.node.k8s.io/v1alpha1"}
    del older["attributes"]
    topology = read({**older, "topologyPolicies": ["RestrictedPodLevel"]})
    assert (topology.kubelet.policy, topology.kubelet.scope) == (ZonePolicy.RESTRICTED, Scope.POD)


def test_resources_without_zones_are_not_aligned():
    kubelet = read(reported(zone(0, **{"nvidia.com/gpu": ("4", "4")}))).kubelet
    assert kubelet == Kubelet(static_cpus=False, static_memory=False)


def test_cards_of_two_vendors_are_cards_of_one_zone():
    both = zone(0, **{"nvidia.com/gpu": ("4", "4"), "amd.com/gpu": ("2", "1")})
    assert read(reported(both)).zones[0].amounts == {"gpu": Room(6, 5)}


def test_zones_of_other_types_are_not_numa_nodes():
    assert read(reported({"name": "socket-0", "type": "Socket"})).zones == ()


@pytest.mark.parametrize("ids", [(0, 0), (64,), (0, 10**8)])
def test_a_repeated_zone_or_one_above_63_refuses_the_record(ids):
    with pytest.raises(InvalidRequest) as refused:
        read_noderesourcetopology(reported(*map(zone, ids)))
    assert refused.value.code == "topology-invalid"


def test_a_missing_distance_leaves_all_of_them_out():
    record, warnings = read_noderesourcetopology(reported(zone(0, {0: 10, 1: 20}), zone(1, {1: 10})))
    assert record.topology.distances == ()
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"name": "zone0", "type": "Node"}, "zones[1].name"),
        ({"name": "node--1", "type": "Node"}, "zones[1].name"),
        ("node-1", "zones[1]"),
        (zone(1, cpu=("-4", "4")), "zones[1].resources[0].capacity"),
        (zone(1, memory=("1Ei", "1Ei")), "zones[1].resources[0].capacity"),
        (zone(1, **{"hugepages-big": ("1", "1")}), "zones[1].resources[0].name"),
        (zone(1, {0: 256}), "zones[1].costs[0].value"),
        ({**zone(1), "resources": [{"name": "cpu"}, {"name": "cpu"}]}, "zones[1].resources[1].name"),
        ({**zone(1), "resources": [{"capacity": "1"}]}, "zones[1].resources[0].name"),
    ],
)
def test_a_malformed_entry_is_dropped_and_named_and_the_rest_stays(entry, named):
    record, warnings = read_noderesourcetopology(reported(zone(0, cpu=("4", "4")), entry))
    assert len(warnings) == 1
    assert named in warnings[0]
    assert record.topology.zones[0].amounts == {"cpu": Room(4, 4)}


def test_options_of_the_topology_manager_are_those_of_the_attributes():
    kubelet = read(
        reported(
            topologyManagerPolicy="restricted",
            topologyManagerOptionPreferClosestNumaNodes="true",
            topologyManagerOptionMaxAllowableNumaNodes="12",
        )
    ).kubelet
    assert kubelet.closest
    assert kubelet.options == {"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "12"}


@pytest.mark.parametrize(
    ("name", "policy", "scope"),
    [
        ("SingleNUMANodeContainerLevel", ZonePolicy.SINGLE_ZONE, Scope.CONTAINER),
        ("SingleNUMANodePodLevel", ZonePolicy.SINGLE_ZONE, Scope.POD),
        ("Restricted", ZonePolicy.RESTRICTED, Scope.CONTAINER),
        ("RestrictedPodLevel", ZonePolicy.RESTRICTED, Scope.POD),
        ("BestEffortContainerLevel", ZonePolicy.BEST_EFFORT, Scope.CONTAINER),
        ("None", ZonePolicy.NONE, Scope.CONTAINER),
    ],
)
def test_the_older_list_of_policies_counts_where_attributes_are_missing(name, policy, scope):
    kubelet = read({**reported(), "topologyPolicies": [name]}).kubelet
    assert (kubelet.policy, kubelet.scope) == (policy, scope)
    newer = read(
        {**reported(topologyManagerPolicy="none", topologyManagerScope="container"), "topologyPolicies": [name]}
    )
    assert newer.kubelet == Kubelet()


@pytest.mark.parametrize("listed", [["Strict"], [7], "Restricted", {"a": "b"}, ["Restricted", "BestEffort"]])
def test_older_policies_that_cannot_be_read_are_named(listed):
    _, (warning,) = read_noderesourcetopology({**reported(), "topologyPolicies": listed})
    assert warning.startswith("topologyPolicies")


def test_an_unknown_policy_is_read_as_none_and_named():
    record, warnings = read_noderesourcetopology(reported(topologyManagerPolicy="strict", topologyManagerScope="node"))
    assert record.topology.kubelet == Kubelet()
    assert len(warnings) == 2


@given(shaped(DOCUMENT, ["zones", "name", "value", "resources", "costs"]))
def test_any_document_is_a_record_or_refused(document):
    try:
        record, _ = read_noderesourcetopology(document)
    except InvalidRequest:
        return
    assert record.node
