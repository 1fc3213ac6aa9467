"""ResourceQuotas of namespaces: where a pod is created, where it is placed, and as they change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.test_front import Running, a_pod, put, running
from tests.kube.test_mirror import a_node
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.metrics import FrontMetrics
from ullage.kube.mirror.cards import RegisteredCards
from ullage.kube.webhook.admission import over_quota
from ullage.wire.dialect import read_pod
from ullage.wire.hami.resource_quota import quota_of
from ullage.wire.vendors.shipped import NVIDIA

pytestmark = pytest.mark.anyio
MEMORY, CORES = "limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores"
MIB = 2**20


def a_quota(name: str, hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"hard": hard, **spec}}


def of_memory(name: str, mib: int) -> dict[str, Any]:
    pod = a_pod(name)
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = str(mib)
    return pod


@pytest.mark.parametrize(
    ("hard", "mib"),
    [
        ([{MEMORY: "4000"}], 4000),
        ([{MEMORY: "4k"}, {MEMORY: "5000", "pods": "3"}], 4000),
        ([{MEMORY: "0"}], 0),
        ([{"requests.nvidia.com/gpu": "3"}, {}], None),
        ([], None),
    ],
)
def test_the_smallest_counts_and_what_is_not_named_is_free(hard: list[dict[str, str]], mib: int | None):
    found = quota_of(hard, NVIDIA)
    assert (None if found is None else found.total_limits.vram_bytes) == (None if mib is None else mib * MIB)
    assert found is None or found.max_workers is None


@pytest.mark.parametrize(
    ("hard", "percent"),
    [
        ([{CORES: "150"}], 150),
        ([{CORES: "150", MEMORY: "4000"}, {CORES: "40"}], 40),
        ([{CORES: "0"}], 0),
        ([{MEMORY: "4000"}], None),
    ],
)
def test_cores_are_in_percent_of_a_card(hard: list[dict[str, str]], percent: int | None):
    found = quota_of(hard, NVIDIA)
    assert found is not None
    assert found.max_cores_ppm == (None if percent is None else percent * 10_000)


def denied(up: Running, pod: dict[str, Any]) -> str:
    asked = read_pod(pod)
    assert asked is not None
    return over_quota(up.front.cluster)(asked)


async def test_they_are_judged_at_creation_and_at_placement_and_follow_their_objects(
    server: ApiServer, api: HttpKubeApi
):
    put(server, "nodes", a_node("a", "A0"))
    put(
        server,
        "resourcequotas",
        a_quota("memory", {MEMORY: "6000"}),
        a_quota("some", {MEMORY: "1"}, scopes=["BestEffort"]),
    )
    first, second = put(server, "pods", of_memory("first", 4000), of_memory("second", 4000))
    async with running(server, api, readers=[RegisteredCards()], resource_quotas=True) as up:
        assert denied(up, of_memory("new", 6000)) == ""
        assert "total.max.vram.limit" in denied(up, of_memory("new", 6001))
        assert await up.place(first, ["a"]) == "!a"
        assert "total.max.vram.limit" in denied(up, of_memory("new", 2001))
        assert "ResourceQuotaNotFit" in await up.place(second, ["a"])
        wrong = {"hard": {MEMORY: "x"}}
        key = ("resourcequotas", "default", "memory")
        server.do(lambda: server.rules.change(key, lambda quota: {**quota, "spec": wrong}))
        put(server, "resourcequotas", a_quota("more", {"pods": "9"}))
        await until(lambda: len(up.front.followed.quotas.objects) == 3, "it is reported")
        assert "ResourceQuotaNotFit" in await up.place(second, ["a"]), "what was last read stays in force"
        server.do(lambda: server.rules.delete(key, {}))
        await until(lambda: len(up.front.followed.quotas.objects) == 2, "it is gone")
        assert denied(up, of_memory("new", 16_000)) == ""
        assert (await up.ask("filter", Pod=second, NodeNames=["a"]))["NodeNames"] == ["a"]


async def test_an_amount_that_was_never_readable_allows_nothing_and_refusals_name_it(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", "A0"))
    put(server, "resourcequotas", a_quota("wrong", {MEMORY: "4Gi", CORES: "50"}))
    pod, new = put(server, "pods", of_memory("p", 1), of_memory("new", 1))
    async with running(server, api, readers=[RegisteredCards()], resource_quotas=True) as up:
        assert f"ResourceQuota wrong cannot be read: {MEMORY}" in denied(up, pod)
        assert "ResourceQuotaNotFit" in await up.place(pod, ["a"])
        key = ("resourcequotas", "default", "wrong")
        right = {"hard": {MEMORY: "1"}}
        server.do(lambda: server.rules.change(key, lambda quota: {**quota, "spec": right}))
        await until(lambda: denied(up, pod) == "", "its amounts can be read")
        assert await up.place(pod, ["a"]) == "!a"
        assert "cannot be read" not in denied(up, new)


async def test_one_that_cannot_be_read_keeps_no_other_of_its_namespace_from_counting(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", "A0"))
    put(server, "resourcequotas", a_quota("wrong", {MEMORY: "9000"}), a_quota("right", {MEMORY: "6000"}))
    async with running(server, api, readers=[RegisteredCards()], resource_quotas=True) as up:
        key = ("resourcequotas", "default", "wrong")
        server.do(lambda: server.rules.change(key, lambda quota: {**quota, "spec": {"hard": {MEMORY: "x"}}}))
        await until(lambda: "wrong cannot be read" in denied(up, of_memory("new", 6001)), "it is heard of")
        assert "total.max.vram.limit" in denied(up, of_memory("new", 6001))
        assert denied(up, of_memory("new", 6000)) == ""
        put(server, "resourcequotas", a_quota("tight", {MEMORY: "500"}))
        await until(lambda: len(up.front.followed.quotas.objects) == 3, "it is heard of")
        assert "total.max.vram.limit" in denied(up, of_memory("new", 501))


def of_cores(name: str, percent: int | None, gpus: int = 1) -> dict[str, Any]:
    pod = a_pod(name, gpus)
    cores = {} if percent is None else {"nvidia.com/gpucores": str(percent)}
    pod["spec"]["containers"][0]["resources"]["limits"] |= {"nvidia.com/gpumem": "1000", **cores}
    return pod


async def test_cores_of_all_cards_are_counted_at_creation_and_at_placement(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", "A0", "A1"), a_node("b", "B0"))
    put(server, "resourcequotas", a_quota("cores", {CORES: "100"}))
    most, none, more = put(server, "pods", of_cores("most", 30, 2), of_cores("none", None), of_cores("more", 50))
    async with running(server, api, readers=[RegisteredCards()], resource_quotas=True) as up:
        assert denied(up, of_cores("new", 50, 2)) == ""
        assert "total.max.cores.limit" in denied(up, of_cores("new", 51, 2))
        assert "total.max.cores.limit" in denied(up, a_pod("whole", 2))
        assert await up.place(most, ["a"]) == "!a"
        assert await up.place(none, ["b"]) == "!b", "it has memory alone, and counts nothing"
        assert denied(up, of_cores("new", 40)) == ""
        assert "60 % of 100 % used" in denied(up, of_cores("new", 41))
        assert "ResourceQuotaNotFit" in await up.place(more, ["a", "b"])
        server.do(lambda: server.rules.delete(("pods", "default", "most"), {"gracePeriodSeconds": 0}))
        await until(lambda: up.front.cluster.held(most["metadata"]["uid"]) is None, "it is gone")
        assert await up.place(more, ["a"]) == "!a"


async def test_metrics_of_quotas_are_as_dashboards_of_hami_expect_them(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", "A0", "A1"))
    put(server, "resourcequotas", a_quota("both", {CORES: "150", MEMORY: "6000"}))
    (pod,) = put(server, "pods", of_cores("p", 30, 2))
    async with running(server, api, readers=[RegisteredCards()], resource_quotas=True) as up:
        metrics = FrontMetrics(up.front)
        for memory, cores in ((0, 0), (2000, 60)):
            reported = (await metrics.page()).decode().splitlines()
            of = 'hami_resource_quota_{}{{{}namespace="default",quota_name="nvidia.com/{}"}} {:.1f}'.format
            assert of("used", 'limit="6000",', "gpumem", memory) in reported
            assert of("used", 'limit="150",', "gpucores", cores) in reported
            assert of("limit", "", "gpumem", 6000) in reported
            assert of("limit", "", "gpucores", 150) in reported
            assert cores or await up.place(pod, ["a"]) == "!a"


async def test_cards_whose_cores_are_all_asked_count_the_memory_that_is_asked(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", "A0", "A1"))
    put(server, "resourcequotas", a_quota("both", {MEMORY: "4000", CORES: "200"}))
    pod, more = of_memory("first", 2000), of_memory("second", 1)
    pod["spec"]["containers"][0]["resources"]["limits"] |= {"nvidia.com/gpu": "2", "nvidia.com/gpucores": "100"}
    first, second = put(server, "pods", pod, more)
    async with running(server, api, readers=[RegisteredCards()], resource_quotas=True) as up:
        assert denied(up, pod) == ""
        assert await up.place(first, ["a"]) == "!a"
        assert "ResourceQuotaNotFit" in await up.place(second, ["a"])
        assert up.front.cluster.allocator.fleet.vram_free.tolist() == [0, 0]
