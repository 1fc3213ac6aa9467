"""What a machine reports of its topology is kept; what of it was refused is reported once."""

from __future__ import annotations

from dataclasses import replace

from tests.lab import Lab, a_node

from ullage.model.topology import Topology, Zone

TOPOLOGY = Topology(zones=(Zone(0), Zone(1)), source="sysfs", observed_at=1.0)


def reported(lab):
    return [event.message for event in lab.service.events.recent if event.kind == "node.topology-incomplete"]


def test_a_node_has_the_topology_that_it_reports_and_loses_it_with_the_next_report():
    node = a_node(gpus=1, topology=TOPOLOGY)
    with Lab(node) as lab:
        assert lab.service.state.nodes["n1"].topology is TOPOLOGY
        lab.service.nodes.heartbeat(replace(node, topology=None))
        assert lab.service.state.nodes["n1"].topology is None
        assert reported(lab) == []


def test_a_refusal_is_reported_once_and_again_when_it_changes():
    node = a_node(topology_note="node/online names no zone")
    with Lab(node) as lab:
        for _ in range(3):
            lab.service.nodes.heartbeat(node)
        assert reported(lab) == ["node/online names no zone"]
        lab.service.nodes.heartbeat(replace(node, topology=TOPOLOGY, topology_note=""))
        lab.service.nodes.heartbeat(replace(node, topology_note="CPU 0 lies in zone 0 and in zone 1"))
        assert reported(lab) == ["node/online names no zone", "CPU 0 lies in zone 0 and in zone 1"]
        assert lab.service.events.counts["node.topology-incomplete"] == 2
