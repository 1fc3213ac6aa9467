"""Nodes that only a question describes: an autoscaler asks whether a pod would fit on one before it adds it."""

from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.hami_node import HamiNode, hami_node
from tests.kube.test_front import Running, a_node, a_pod, put, running
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.mirror.cards import RegisteredCards

pytestmark = [pytest.mark.timeout(300), pytest.mark.anyio]
Document = dict[str, Any]


def a_hami_pod(name: str, mib: int) -> Document:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(mib)}
    container = {"name": "c", "image": "x", "resources": {"limits": limits, "requests": limits}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container]},
        "status": {"phase": "Pending"},
    }


def a_template(source: Document, name: str = "template") -> Document:
    """What an autoscaler makes of a node: the same under another name."""
    return {**source, "metadata": {**source["metadata"], "name": name}}


async def fits(up: Running, pod: Document, *nodes: Document) -> tuple[list[str], dict[str, str]]:
    """Ask about nodes in full. Return the names of those that fit, and why the others do not."""
    answer = await up.ask("filter", Pod=pod, Nodes={"items": list(nodes)})
    assert not answer["Error"], answer
    names = [node["metadata"]["name"] for node in answer["Nodes"]["items"]]
    return names, answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]


async def test_a_pod_that_fits_nowhere_fits_on_another_node_like_these(server: ApiServer, api: HttpKubeApi) -> None:
    node = hami_node("a", "GPU-0", mib=16000)
    put(server, "nodes", node)
    holder, part, large = put(
        server, "pods", *(a_hami_pod(n, mib) for n, mib in (("h", 16000), ("p", 9000), ("l", 17000)))
    )
    async with HamiNode(api, "a"), running(server, api, readers=[RegisteredCards()]) as up:
        assert await up.place(holder, ["a"]) == "!a"
        names, why = await fits(up, part, node, a_template(node))
        assert names == ["template"]
        assert list(why) == ["a"], "a node of the cluster has what its own books say"
        names, why = await fits(up, large, node, a_template(node))
        assert (names, set(why)) == ([], {"a", "template"})
        assert "CardInsufficientMemory" in why["template"]


async def test_whole_cards_are_those_that_the_template_counts(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1))
    two, five = put(server, "pods", a_pod("two", 2), a_pod("five", 5))
    async with running(server, api) as up:
        big = a_node("template", 4)
        assert (await fits(up, two, big))[0] == ["template"]
        names, why = await fits(up, five, big)
        assert names == []
        assert why["template"] == "NodeInsufficientDevice"


async def test_a_pod_with_a_condition_on_labels_fits_where_the_template_has_them(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 1))
    (pod,) = put(server, "pods", a_pod("p", 1, **{"gpu-model": "NVIDIA-H100-80GB-HBM3"}))
    async with running(server, api) as up:
        plain, labelled = a_node("plain", 1), a_node("labelled", 1)
        labelled["metadata"]["labels"] = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
        assert (await fits(up, pod, plain, labelled))[0] == ["labelled"]


async def test_nothing_is_kept_of_a_template(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1))
    first, second = put(server, "pods", a_pod("first"), a_pod("second"))
    async with running(server, api) as up:
        books = up.front.cluster.allocator.fleet
        before = books.ledger.copy()
        for pod in (first, second, first):
            assert set((await fits(up, pod, a_node("a", 1), a_node("template", 1)))[0]) == {"a", "template"}
        assert up.front.cluster.allocator.fleet is books
        assert books.ledger == before
        by_name = await up.ask("filter", Pod=first, NodeNames=["template"])
        assert by_name["FailedAndUnresolvableNodes"] == {"template": "node unregistered"}
        meta = first["metadata"]
        bound = await up.ask("bind", PodName=meta["name"], PodNamespace="default", PodUID=meta["uid"], Node="template")
        assert "template" in bound["Error"]
        assert await up.place(second, ["a"]) == "!a", "no place was reserved for the other pod"


async def test_a_template_that_is_no_node_is_refused_by_name(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1))
    (pod,) = put(server, "pods", a_pod("p"))
    async with running(server, api) as up:
        broken = {"metadata": {"name": "broken"}, "status": {"allocatable": 7}}
        answer = await up.ask("filter", Pod=pod, Nodes={"items": [a_node("a", 1), broken]})
        assert "broken is no Node" in answer["Error"]
        assert "allocatable" in answer["Error"]
