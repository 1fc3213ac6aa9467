"""Pods without cards that are aligned to zones: which nodes fit, where they lie, and what stays known of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.test_front import Running, a_node, put, running
from tests.kube.test_zone_records import NRT, nrt
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.mirror.zone_records import NrtOrder
from ullage.model.holding import Holding, PodHolding, Use
from ullage.model.node_record import NodeRecord
from ullage.model.topology import Cpu, Kubelet, Topology, Zone, ZonePolicy
from ullage.wire.dialect import PodSettings
from ullage.wire.topology.numatopology_object import numatopology_object

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

NIC = "example.com/nic"
OURS, VOLCANO = "ullage.io/numa-policy", "volcano.sh/numa-topology-policy"


def aligned(name: str, cpu: str = "3", nics: int = 0, **annotations: str) -> dict[str, Any]:
    """A pod of the class Guaranteed without cards."""
    limits = {"cpu": cpu, "memory": "1Gi"} | ({NIC: str(nics)} if nics else {})
    container = {"name": "c", "image": "x", "resources": {"limits": limits, "requests": limits}}
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": "Pending"}}


def zones(name: str = "a", policy: str = "single-numa-node") -> dict[str, Any]:
    """A node with 4 CPUs, 8 GiB and 2 adapters in each of two zones."""
    found = nrt(policy)
    amounts = [
        {"name": resource, "capacity": amount, "allocatable": amount, "available": amount}
        for resource, amount in (("cpu", "4"), ("memory", "8Gi"), (NIC, "2"))
    ]
    return found | {"metadata": {"name": name}, "zones": [zone | {"resources": amounts} for zone in found["zones"]]}


def options(*, align_all: bool = True) -> dict[str, Any]:
    return {"noderesourcetopologies": NrtOrder.FIRST, "pods": PodSettings(align_all=align_all)}


def placed(server: ApiServer, name: str) -> dict[str, Any]:
    pod = server.do(lambda: server.rules.get(("pods", "default", name)))
    return json.loads(pod["metadata"]["annotations"].get("ullage.io/numa-placement", "{}"))


async def refused(up: Running, pod: dict[str, Any], *names: str) -> dict[str, str]:
    found = await up.ask("filter", Pod=pod, NodeNames=list(names))
    assert not found["Error"], found
    return {**found["FailedNodes"], **found["FailedAndUnresolvableNodes"]}


async def test_pods_are_spread_over_zones_until_none_has_room(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 0))
    put(server, NRT, zones())
    pods = put(server, "pods", *(aligned(f"p{number}") for number in range(3)))
    async with running(server, api, **options()) as up:
        assert [await up.place(pod, ["a"]) for pod in pods[:2]] == ["!a", "!a"]
        assert [placed(server, f"p{number}")["zones"] for number in range(2)] == [[0], [1]]
        why = await refused(up, pods[2], "a")
        assert why["a"].startswith("not-aligned: ")
        server.do(lambda: server.rules.delete(("pods", "default", "p0"), {"gracePeriodSeconds": 0}))
        await until(lambda: up.front.cluster.held(pods[0]["metadata"]["uid"]) is None, "it is gone")
        assert await up.place(pods[2], ["a"]) == "!a"
        assert placed(server, "p2")["zones"] == [0]


async def test_devices_of_any_pod_and_cpus_of_guaranteed_ones_count(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 0))
    put(server, NRT, zones())
    burstable = aligned("burstable", "64", nics=3)
    del burstable["spec"]["containers"][0]["resources"]["limits"]["cpu"]
    few = aligned("few", "500m", nics=2)
    burstable, few, half = put(server, "pods", burstable, few, aligned("half", "500m"))
    async with running(server, api, **options()) as up:
        why = await refused(up, burstable, "a")
        assert why["a"].startswith("not-aligned"), "no zone has three adapters"
        assert await refused(up, few, "a") == {}
        assert await refused(up, half, "a") == {}, "memory alone fits"


@pytest.mark.parametrize("align_all", [True, False])
@pytest.mark.parametrize("key", [OURS, VOLCANO, ""])
async def test_pods_without_a_policy_are_aligned_if_all_are(
    server: ApiServer, api: HttpKubeApi, align_all: bool, key: str
):
    put(server, "nodes", a_node("a", 0), a_node("b", 0), a_node("unknown", 0))
    put(server, NRT, zones(), zones("b", "best-effort"))
    asks = {key: "restricted"} if key else {}
    (pod,) = put(server, "pods", aligned("wide", "6", **asks))
    async with running(server, api, **options(align_all=align_all)) as up:
        why = await refused(up, pod, "a", "b", "unknown", "not-a-machine")
        codes = {name: text.partition(":")[0] for name, text in why.items()}
        if key:
            unknown = {"unknown": "topology-unknown", "not-a-machine": "node-unknown"}
            assert codes == {"a": "not-aligned", "b": "node-policy-weaker", **unknown}
        else:
            assert codes == ({"a": "not-aligned"} if align_all else {}), "the node decides, if at all"


async def test_a_node_where_a_pod_needs_fewer_zones_is_preferred(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 0), a_node("b", 0))
    put(server, NRT, zones("a", "best-effort"), zones("b", "best-effort"))
    pods = put(server, "pods", *(aligned(f"p{number}", "3") for number in range(2)), aligned("last", "4"))
    async with running(server, api, **options()) as up:
        assert [await up.place(pod, ["a"]) for pod in pods[:2]] == ["!a", "!a"]
        scores = await up.ask("prioritize", Pod=pods[2], NodeNames=["a", "b"])
        by_name = {each["Host"]: each["Score"] for each in scores}
        assert by_name["b"] > by_name["a"], "on a it would lie in both zones"


async def test_places_are_known_after_a_restart(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 0))
    put(server, NRT, zones())
    pods = put(server, "pods", *(aligned(f"p{number}", nics=1) for number in range(3)))
    async with running(server, api, **options()) as up:
        for pod in pods[:2]:
            assert await up.place(pod, ["a"]) == "!a"
        before = {uid: held.placement for uid, held in up.front.cluster.allocator.fleet.ledger.items()}
        assert len(before) == 2
    async with running(server, api, **options()) as up:
        ledger = up.front.cluster.allocator.fleet.ledger
        assert {uid: held.placement for uid, held in ledger.items()} == before
        assert await refused(up, pods[2], "a") != {}
        assert up.front.cluster.use_of("a").cpu_milli == 6000, "counted once"


async def test_pods_of_other_schedulers_lie_where_their_kubelet_puts_them(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 0))
    put(server, NRT, zones())
    theirs = aligned("theirs", "4")
    theirs["spec"]["nodeName"] = "a"
    (theirs, ours, second) = put(server, "pods", theirs, aligned("ours", "4"), aligned("second", "1"))
    async with running(server, api, **options()) as up:
        held = up.front.cluster.held(theirs["metadata"]["uid"])
        assert held is not None
        assert held.placement is not None
        assert held.placement.zones == (0,)
        assert await up.place(ours, ["a"]) == "!a"
        assert placed(server, "ours")["zones"] == [1]
        assert "a" in await refused(up, second, "a")
        assert up.front.cluster.use_of("a").cpu_milli == 8000


async def test_what_a_node_shows_of_a_pod_without_cards_is_not_counted_twice(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 0))
    cpus = tuple(Cpu(number, number // 4, number // 4, number) for number in range(8))
    kubelet = Kubelet(ZonePolicy.SINGLE_ZONE, static_cpus=True)
    record = NodeRecord("a", Topology((Zone(0), Zone(1)), (), cpus, kubelet=kubelet), use=Use())
    put(server, "numatopologies", numatopology_object(record))
    pod, other = put(server, "pods", aligned("p", "3"), aligned("other", "4"))
    async with running(server, api, topologies=True, pods=PodSettings(align_all=True)) as up:
        assert await up.place(pod, ["a"]) == "!a"
        assert placed(server, "p")["cpus"] == "0-2"
        use = Use((PodHolding("default", "p", "", (Holding("c", cpus=(4, 5, 6)),)),))
        shown = numatopology_object(NodeRecord("a", record.topology, use=use))
        server.do(
            lambda: server.rules.change(("numatopologies", "", "a"), lambda item: {**item, "spec": shown["spec"]})
        )

        def cpus_of() -> tuple[int, ...]:
            up.front.mirror.settle()
            held = up.front.cluster.held(pod["metadata"]["uid"])
            return held.placement.cpus if held is not None and held.placement is not None else ()

        await until(lambda: cpus_of() == (4, 5, 6), "the node is right")
        assert "foreign:a" not in up.front.cluster.allocator.fleet.ledger
        assert await up.place(other, ["a"]) == "!a"
        assert placed(server, "other")["cpus"] == "0-3"


async def test_a_wrong_policy_is_reported(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 0))
    (pod,) = put(server, "pods", aligned("p", **{OURS: "strict"}))
    async with running(server, api, **options(align_all=False)) as up:
        found = await up.ask("filter", Pod=pod, NodeNames=["a"])
        assert "ullage.io/numa-policy" in found["Error"]
