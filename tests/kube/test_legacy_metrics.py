"""The names that the metrics of HAMi's scheduler had before, as `cmd/scheduler/metrics.go` of HAMi writes them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kube.api_server import ApiServer
from tests.kube.hami_node import GPU, HamiNode, hami_node
from tests.kube.test_device_plugins import CORES, MIB, READERS, a_pod, settle
from tests.kube.test_front import put, running
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.metrics import FrontMetrics

pytestmark = [pytest.mark.timeout(300), pytest.mark.anyio]

CARD = {"nodeid": "a", "deviceuuid": "A0", "deviceidx": "0"}
TYPED = CARD | {"devicetype": "NVIDIA-A100"}
POD = {"podnamespace": "default", "nodename": "a", "podname": "p", "deviceuuid": "A0"}
FORMER = {
    "GPUDeviceMemoryLimit": (TYPED, 16000 * 2**20),
    "GPUDeviceCoreLimit": (TYPED, 100),
    "GPUDeviceMemoryAllocated": (TYPED | {"devicecores": "100"}, 4000 * 2**20),
    "GPUDeviceSharedNum": (TYPED, 1),
    "GPUDeviceCoreAllocated": (TYPED, 25),
    "nodeGPUOverview": (TYPED | {"devicecores": "100", "devicememorylimit": "16000"}, 4000 * 2**20),
    "nodeGPUMemoryPercentage": (CARD, 0.25),
    "vGPUMemoryAllocated": (POD, 4000 * 2**20),
    "vGPUCoreAllocated": (POD, 25),
    "QuotaUsed": ({"quotanamespace": "default", "quotaName": "nvidia.com/gpumem", "limit": "9000"}, 4000),
}


def found(page: str) -> dict[str, tuple[dict[str, str], float]]:
    samples = (each for family in text_string_to_metric_families(page) for each in family.samples)
    return {each.name: (each.labels, each.value) for each in samples}


async def test_metrics_have_their_former_names_if_that_is_wanted(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=16000))
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {f"limits.{MIB}": "9000"}}}
    put(server, "resourcequotas", quota)
    (pod,) = put(server, "pods", a_pod("p", {GPU: 1, MIB: 4000, CORES: 25}))
    async with HamiNode(api, "a"), running(server, api, readers=READERS, resource_quotas=True) as up:
        assert await settle(up, pod, ["a"])
        plain = found((await FrontMetrics(up.front).page()).decode())
        both = found((await FrontMetrics(up.front, legacy=True).page()).decode())
    assert not FORMER.keys() & plain.keys()
    assert {name: both[name] for name in FORMER} == FORMER
    assert both.keys() >= plain.keys()
