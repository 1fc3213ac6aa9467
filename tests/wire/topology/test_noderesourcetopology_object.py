"""NodeResourceTopology objects that are written, and read back as other readers would."""

from dataclasses import replace

from ullage.model.gpu import Gpu
from ullage.model.holding import Holding, MemoryHolding, PodHolding, Use
from ullage.model.node_record import IncludedPods, NodeRecord
from ullage.model.topology import CARD, Cpu, Device, Kubelet, Room, Scope, Topology, Zone, ZonePolicy
from ullage.wire.topology.noderesourcetopology import read_noderesourcetopology
from ullage.wire.topology.noderesourcetopology_object import noderesourcetopology_object
from ullage.wire.topology.pod_fingerprint import fingerprint_of

GI = 2**30
KUBELET = Kubelet(
    ZonePolicy.RESTRICTED, Scope.POD, {"prefer-closest-numa-nodes": "true"}, static_cpus=True, static_memory=True
)
ZONES = tuple(Zone(id_, Room(64 * GI, 60 * GI), {2**21: Room(GI, GI)}) for id_ in (0, 2))
CPUS = tuple(Cpu(number, number // 4 * 2, number // 4, number) for number in range(8))
NICS = Device("a/nic", 0, "nic0", zones=(0,)), Device("a/nic", 1, "nic1", zones=(2,), healthy=False)
TOPOLOGY = Topology(ZONES, ((10, 21), (21, 10)), CPUS, NICS, reserved_cpus=frozenset({0, 4}), kubelet=KUBELET)
CARDS = (*(Gpu(f"G{index}", index, zones=(index // 2 * 2,)) for index in range(4)), Gpu("G4", 4))


def held(name, *containers):
    return PodHolding("team", name, "", containers)


USE = Use(
    (
        held("cards", Holding("c", devices=((CARD, ("G0::1", "G3")),))),
        held("cpus", Holding("c", cpus=(1, 2)), Holding("d", memory=(MemoryHolding("memory", (0, 2), 3),))),
        held("plain", Holding("c")),
        held("unknown", Holding("c", devices=((CARD, ("G4",)), ("b/other", ("x",))))),
    )
)


def record(use=USE, **changed):
    return replace(NodeRecord("n1", TOPOLOGY, CARDS, "amd.com/gpu", use=use), **changed)


def amounts(document, zone):
    (entry,) = (each for each in document["zones"] if each["name"] == f"node-{zone}")
    return {
        each["name"]: tuple(int(each[name]) for name in ("capacity", "allocatable", "available"))
        for each in entry["resources"]
    }


def test_amounts_are_those_of_each_zone():
    document = noderesourcetopology_object(record())
    assert (document["apiVersion"], document["kind"]) == ("topology.node.k8s.io/v1alpha2", "NodeResourceTopology")
    assert amounts(document, 0) == {
        "cpu": (4, 3, 1),
        "memory": (64 * GI, 60 * GI, 60 * GI - 2),
        "hugepages-2Mi": (GI, GI, GI),
        "amd.com/gpu": (2, 2, 1),
        "a/nic": (1, 1, 1),
    }
    assert amounts(document, 2) == {
        "cpu": (4, 3, 3),
        "memory": (64 * GI, 60 * GI, 60 * GI - 1),
        "hugepages-2Mi": (GI, GI, GI),
        "amd.com/gpu": (2, 2, 1),
        "a/nic": (1, 0, 0),
    }


def test_a_reader_finds_the_kubelet_the_distances_and_what_is_held():
    found, dropped = read_noderesourcetopology(noderesourcetopology_object(record()))
    assert dropped == ()
    assert (found.topology.kubelet, found.topology.distances) == (KUBELET, TOPOLOGY.distances)
    assert found.held == ((0, "cpu", 2), (0, "gpu", 1), (0, "memory", 2), (2, "gpu", 1), (2, "memory", 1))


def test_the_fingerprint_is_that_of_pods_with_something_of_a_zone():
    found, _ = read_noderesourcetopology(noderesourcetopology_object(record()))
    expected = fingerprint_of([("team", "cards"), ("team", "cpus")])
    assert found.included == IncludedPods(expected, exclusive_only=True)
    assert read_noderesourcetopology(noderesourcetopology_object(record(use=None)))[0].included == IncludedPods()


def test_reserved_cpus_without_ids_are_the_lowest():
    counted = replace(TOPOLOGY, reserved_cpus=frozenset(), reserved_count=5)
    document = noderesourcetopology_object(record(use=None, topology=counted))
    assert [amounts(document, zone)["cpu"] for zone in (0, 2)] == [(4, 0, 0), (4, 3, 3)]


def test_it_is_owned_by_its_node_and_the_order_of_a_record_does_not_matter():
    document = noderesourcetopology_object(record(), node_uid="u1")
    (owner,) = document["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "n1", "u1")
    turned = replace(TOPOLOGY, cpus=CPUS[::-1], devices=NICS[::-1])
    other = record(use=Use(USE.pods[::-1]), topology=turned, cards=CARDS[::-1])
    assert noderesourcetopology_object(other, node_uid="u1") == document


def test_a_machine_without_a_kubelet_has_no_policy():
    document = noderesourcetopology_object(record(use=None, topology=replace(TOPOLOGY, kubelet=None)))
    assert document["attributes"] == []
