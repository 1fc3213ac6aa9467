"""What pods hold by zone, on nodes whose records have amounts and no pods: free amounts, and the pessimistic mode."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.test_aligned_pods import aligned, placed, refused
from tests.kube.test_front import Running, a_node, put, running
from tests.kube.test_zone_records import NRT
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.mirror.zone_records import NrtOrder
from ullage.wire.dialect import PodSettings
from ullage.wire.topology.pod_fingerprint import fingerprint_of

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

GIB = 2**30


def zones(cpus: tuple[int, int], *pods: str, method: str = "all") -> dict[str, Any]:
    """A node of two zones with four CPUs each, of which so many are available; these pods are included."""
    attributes = {
        "topologyManagerPolicy": "single-numa-node",
        "nodeTopologyPodsFingerprint": fingerprint_of(("default", pod) for pod in pods),
        "nodeTopologyPodsFingerprintMethod": method,
    }
    return {
        "metadata": {"name": "a"},
        "attributes": [{"name": name, "value": value} for name, value in attributes.items() if value],
        "zones": [
            {
                "name": f"node-{zone}",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": str(left)}],
            }
            for zone, left in enumerate(cpus)
        ],
    }


def options(*, pessimistic: bool = False) -> dict[str, Any]:
    pods = PodSettings(align_all=True)
    return {"noderesourcetopologies": NrtOrder.FIRST, "pessimistic_zones": pessimistic, "pods": pods}


def write(server: ApiServer, body: dict[str, Any]) -> None:
    changed = {key: value for key, value in body.items() if key != "metadata"}
    server.do(lambda: server.rules.change((NRT, "", "a"), lambda item: {**item, **changed}))


def run(server: ApiServer, *names: str) -> None:
    for name in names:
        key = ("pods", "default", name)
        server.do(
            lambda key=key: server.rules.change(
                key, lambda item: {**item, "status": item["status"] | {"phase": "Running"}}
            )
        )


def left(up: Running) -> list[int]:
    """The free CPUs of each zone by the books."""
    up.front.mirror.settle()
    fleet = up.front.cluster.allocator.fleet
    return [int(free) for free in fleet.board.free_on(fleet.row_of["a"])]


async def test_what_is_not_available_is_not_free(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 0))
    put(server, NRT, zones((0, 4)))
    first, second = put(server, "pods", aligned("first"), aligned("second"))
    async with running(server, api, **options()) as up:
        assert left(up) == [0, 4]
        assert await up.place(first, ["a"]) == "!a"
        assert placed(server, "first")["zones"] == [1]
        assert "a" in await refused(up, second, "a")
        write(server, zones((4, 1), "first"))
        await until(lambda: left(up) == [4, 1], "somebody has left")
        assert await up.place(second, ["a"]) == "!a"
        assert placed(server, "second")["zones"] == [0]
        assert up.front.cluster.use_of("a").cpu_milli == 6000, "the node is not charged twice"


@pytest.mark.parametrize("method", ["all", "with-exclusive-resources", ""])
async def test_what_the_books_have_is_not_counted_again(server: ApiServer, api: HttpKubeApi, method: str):
    put(server, "nodes", a_node("a", 0))
    put(server, NRT, zones((4, 4), method=method))
    (pod,) = put(server, "pods", aligned("p"))
    async with running(server, api, **options()) as up:
        assert await up.place(pod, ["a"]) == "!a"
        await until(lambda: left(up) == [1, 4], "it is bound")
        run(server, "p")
        write(server, zones((1, 3), "p", method=method))
        await until(lambda: left(up) == [1, 3], "somebody else has one CPU of the other zone")
        assert up.front.cluster.held(pod["metadata"]["uid"]) is not None
        server.do(lambda: server.rules.delete(("pods", "default", "p"), {"gracePeriodSeconds": 0}))
        await until(lambda: left(up) == [4, 3], "what it held is free at once")


async def test_in_pessimistic_mode_a_pod_counts_in_all_zones_until_it_is_included(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 0))
    put(server, NRT, zones((4, 4)))
    first, second = put(server, "pods", aligned("first"), aligned("second"))
    async with running(server, api, **options(pessimistic=True)) as up:
        assert await up.place(first, ["a"]) == "!a"
        await until(lambda: left(up) == [1, 1], "nobody knows where its kubelet puts it")
        assert "a" in await refused(up, second, "a")
        write(server, zones((4, 4), "another"))
        write(server, zones((4, 3)))
        assert left(up) == [1, 1], "a record without it tells nothing new"
        write(server, zones((1, 4), "first"))
        await until(lambda: left(up) == [1, 4], "it is included")
        assert await up.place(second, ["a"]) == "!a"
        assert placed(server, "second")["zones"] == [1]


async def test_without_pessimistic_mode_a_prediction_counts(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 0))
    put(server, NRT, zones((4, 4)))
    first, second = put(server, "pods", aligned("first"), aligned("second"))
    async with running(server, api, **options()) as up:
        assert await up.place(first, ["a"]) == "!a"
        assert await up.place(second, ["a"]) == "!a"
        await until(lambda: left(up) == [1, 1], "one in each zone")


async def test_more_held_than_there_is_leaves_nothing(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 0))
    put(server, NRT, zones((4, 0)))
    pods = [aligned(f"p{number}") for number in range(3)]
    for pod in pods:
        pod["spec"]["nodeName"] = "a"
    put(server, "pods", *pods)
    async with running(server, api, **options(pessimistic=True)) as up:
        await until(lambda: left(up) == [0, 0], "all is taken, and no zone less than that")
