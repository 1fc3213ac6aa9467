"""Cards of other vendors than NVIDIA are placed by zone where a NodeResourceTopology has them by zone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.test_aligned_pods import placed, refused
from tests.kube.test_front import a_node, put, running
from tests.kube.test_zone_records import NRT, nrt
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.mirror.zone_records import NrtOrder

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

VENDORS = ["amd.com/gpu", "huawei.com/Ascend910", "huawei.com/Ascend310P", "cambricon.com/mlu", "nvidia.com/gpu"]


def node(resource: str) -> dict[str, Any]:
    """A node with four cards of this resource."""
    found = a_node("a", 0)
    amounts = found["status"]["allocatable"] | {resource: "4"}
    return found | {"status": found["status"] | {"allocatable": amounts, "capacity": amounts}}


def zones(resource: str, *left: str) -> dict[str, Any]:
    """Two of them in each zone, of which so many are available."""
    found = nrt("single-numa-node")
    return found | {
        "zones": [
            zone | {"resources": [{"name": resource, "capacity": "2", "allocatable": "2", "available": free}]}
            for zone, free in zip(found["zones"], left, strict=True)
        ]
    }


def pod(name: str, resource: str, count: int) -> dict[str, Any]:
    limits = {resource: str(count)}
    container = {"name": "c", "image": "x", "resources": {"limits": limits, "requests": limits}}
    metadata = {"name": name, "namespace": "default", "annotations": {}}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": "Pending"}}


@pytest.mark.parametrize("resource", VENDORS)
async def test_cards_of_one_pod_lie_in_one_zone(server: ApiServer, api: HttpKubeApi, resource: str):
    put(server, "nodes", node(resource))
    put(server, NRT, zones(resource, "2", "2"))
    one, two, more = put(server, "pods", pod("one", resource, 1), pod("two", resource, 2), pod("more", resource, 2))
    async with running(server, api, noderesourcetopologies=NrtOrder.SECOND) as up:
        assert await up.place(one, ["a"]) == "!a"
        assert await up.place(two, ["a"]) == "!a"
        assert (placed(server, "one")["zones"], placed(server, "two")["zones"]) == ([0], [1])
        assert await refused(up, more, "a") != {}, "one card is left"


@pytest.mark.parametrize("resource", VENDORS)
async def test_cards_that_others_hold_are_not_free_in_their_zone(server: ApiServer, api: HttpKubeApi, resource: str):
    put(server, "nodes", node(resource))
    put(server, NRT, zones(resource, "1", "1"))
    one, two = put(server, "pods", pod("one", resource, 1), pod("two", resource, 2))
    async with running(server, api, noderesourcetopologies=NrtOrder.SECOND) as up:
        why = await refused(up, two, "a")
        assert "NumaNotFit" in why["a"] or "not-aligned" in why["a"]
        assert await up.place(one, ["a"]) == "!a"
