"""Which of two objects about the zones of a node counts, and what is reported where they differ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.at_work import at_work
from tests.kube.conftest import until
from tests.kube.test_front import a_node, put
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.lease import Candidate
from ullage.kube.front import Front
from ullage.kube.mirror.zone_records import NrtOrder
from ullage.model.node_record import NodeRecord
from ullage.model.topology import Cpu, Kubelet, Room, Scope, Topology, Zone, ZonePolicy
from ullage.wire.topology.numatopology_object import numatopology_object

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

NRT = "noderesourcetopologies"


def numatopology(policy: ZonePolicy = ZonePolicy.RESTRICTED, cpus: int = 8) -> dict[str, Any]:
    """The object of a node `a` with two zones."""
    each = tuple(Cpu(number, number * 2 // cpus, number * 2 // cpus, number) for number in range(cpus))
    return numatopology_object(NodeRecord("a", Topology((Zone(0), Zone(1)), (), each, kubelet=Kubelet(policy))))


def nrt(policy: str = "restricted", cpus: str = "4", zones: int = 2, **changed: Any) -> dict[str, Any]:
    """The other object of that node."""
    amounts = [{"name": "cpu", "capacity": cpus, "allocatable": cpus, "available": cpus}]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "a"},
        "attributes": [{"name": "topologyManagerPolicy", "value": policy}],
        "zones": [{"name": f"node-{zone}", "type": "Node", "resources": amounts} for zone in range(zones)],
    } | changed


@asynccontextmanager
async def running(
    server: ApiServer, api: HttpKubeApi, order: NrtOrder, said: list[Any], topologies: bool = True
) -> AsyncIterator[Front]:
    put(server, "nodes", a_node("a", 4))
    front = make_front(
        api,
        Candidate(api, "ullage", "default"),
        Rules(),
        FrontSettings(topologies=topologies, noderesourcetopologies=order),
        on_error=lambda kind, name, error: said.append((kind, name, error.code, error.message)),
    )
    async with at_work(front, lambda it: it.mirror.ready):
        yield front


def topology(front: Front) -> Topology | None:
    front.mirror.settle()
    (node,) = front.cluster.allocator.fleet.nodes
    return node.topology


def source(front: Front) -> str:
    found = topology(front)
    return "" if found is None else found.source


async def test_a_cluster_with_noderesourcetopologies_alone_has_their_zones_and_policies(
    server: ApiServer, api: HttpKubeApi
):
    said: list[Any] = []
    put(server, NRT, nrt(topologyPolicies=["SingleNUMANodePodLevel"], attributes=[]))
    async with running(server, api, NrtOrder.SECOND, said) as front:
        found = topology(front)
        assert found is not None
        assert found.zones == (Zone(0, None, {}, {"cpu": Room(4, 4)}), Zone(1, None, {}, {"cpu": Room(4, 4)}))
        assert found.kubelet is not None
        assert (found.kubelet.policy, found.kubelet.scope) == (ZonePolicy.SINGLE_ZONE, Scope.POD)
        server.do(lambda: server.rules.change((NRT, "", "a"), lambda item: {**item, "topologyPolicies": ["None"]}))
        await until(lambda: topology(front).kubelet.policy is ZonePolicy.NONE, "a change is followed")
    assert said == []


@pytest.mark.parametrize(
    ("order", "counts"), [(NrtOrder.SECOND, "numatopology"), (NrtOrder.FIRST, "noderesourcetopology")]
)
async def test_of_two_objects_the_one_of_the_first_kind_counts(
    server: ApiServer, api: HttpKubeApi, order: NrtOrder, counts: str
):
    said: list[Any] = []
    put(server, NRT, nrt())
    put(server, "numatopologies", numatopology())
    async with running(server, api, order, said) as front:
        assert source(front) == counts
    assert said == [], "they say the same"


@pytest.mark.parametrize(
    ("order", "topologies", "counts"),
    [(NrtOrder.OFF, True, "numatopology"), (NrtOrder.SECOND, False, "noderesourcetopology"), (NrtOrder.OFF, False, "")],
)
async def test_what_is_not_to_be_read_does_not_count(
    server: ApiServer, api: HttpKubeApi, order: NrtOrder, topologies: bool, counts: str
):
    put(server, NRT, nrt())
    put(server, "numatopologies", numatopology())
    async with running(server, api, order, [], topologies) as front:
        assert source(front) == counts


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (nrt("best-effort"), "policy restricted, not best-effort"),
        (nrt(zones=1), "zones 0,1, not 0"),
        (nrt(cpus="3"), "4 CPUs in zone 0, not 3; 4 CPUs in zone 1, not 3"),
    ],
)
async def test_a_difference_is_reported_once(server: ApiServer, api: HttpKubeApi, other: dict[str, Any], sentence: str):
    said: list[Any] = []
    put(server, NRT, other)
    put(server, "numatopologies", numatopology())
    async with running(server, api, NrtOrder.SECOND, said) as front:
        (report,) = said
        message = f"it differs from the Numatopology, which counts: {sentence}"
        assert report == ("NodeResourceTopology", "a", "topologies-differ", message)
        server.do(lambda: server.rules.change((NRT, "", "a"), lambda item: {**item, "extra": 1}))
        server.do(
            lambda: server.rules.change(
                (NRT, "", "a"), lambda item: {**item, **nrt("none", zones=3), "metadata": item["metadata"]}
            )
        )
        await until(lambda: len(said) > 1, "another difference")
        assert [text.rpartition(": ")[2] for *_, text in said] == [sentence, "zones 0,1, not 0,1,2"]
        assert source(front) == "numatopology"


async def test_the_other_object_counts_once_the_first_is_deleted(server: ApiServer, api: HttpKubeApi):
    put(server, NRT, nrt())
    put(server, "numatopologies", numatopology())
    async with running(server, api, NrtOrder.FIRST, []) as front:
        server.do(lambda: server.rules.delete((NRT, "", "a"), {}))
        await until(lambda: source(front) == "numatopology", "the one that is left")
        server.do(lambda: server.rules.delete(("numatopologies", "", "a"), {}))
        assert front.followed.topologies is not None
        informer = front.followed.topologies
        await until(lambda: not informer.objects, "both are gone")
        assert source(front) == "numatopology", "the last one stays"
        put(server, NRT, nrt())
        await until(lambda: source(front) == "noderesourcetopology", "a new one replaces it")


async def test_deleted_objects_of_a_node_that_is_gone_are_forgotten(server: ApiServer, api: HttpKubeApi):
    put(server, NRT, nrt())
    async with running(server, api, NrtOrder.FIRST, []) as front:
        assert source(front) == "noderesourcetopology"
        server.do(lambda: server.rules.delete((NRT, "", "a"), {}))
        server.do(lambda: server.rules.delete(("nodes", "", "a"), {}))
        await until(lambda: not front.mirror.machines.by_name, "it is gone")
        put(server, "nodes", a_node("a", 4))
        await until(lambda: bool(front.mirror.machines.by_name), "another one with its name")
        assert topology(front) is None


async def test_an_object_that_cannot_be_read_is_reported_and_the_last_one_counts(server: ApiServer, api: HttpKubeApi):
    said: list[Any] = []
    put(server, NRT, nrt())
    async with running(server, api, NrtOrder.FIRST, said) as front:
        twice = [{"name": "node-0", "type": "Node"}] * 2
        server.do(lambda: server.rules.change((NRT, "", "a"), lambda item: {**item, "zones": twice}))
        await until(lambda: bool(said), "it is reported")
        assert said[0][:3] == ("NodeResourceTopology", "a", "topology-invalid")
        assert topology(front).zone_ids == (0, 1)
