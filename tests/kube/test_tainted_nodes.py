"""Pods and tainted nodes: who gets a place, what the reason is, and what a pod there keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.test_aligned_pods import aligned, options
from tests.kube.test_front import a_node, a_pod, cards_of, put, running
from tests.kube.test_queue_admission import story, waiting
from tests.kube.test_template_nodes import a_template, fits
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.objects import KubeNode
from ullage.kube.mirror.nodes import node_of, template_of
from ullage.model.taint import Taint

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

TEAM_A = {"key": "dedicated", "value": "team-a", "effect": "NoSchedule"}
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "team-a", "effect": "NoSchedule"}
REASON = "the node has a taint that the request does not tolerate: dedicated=team-a:NoSchedule on node a"


def tolerating(pod: dict[str, Any]) -> dict[str, Any]:
    pod["spec"]["tolerations"] = [TOLERATION]
    return pod


def on(node: str, pod: dict[str, Any]) -> dict[str, Any]:
    pod["spec"]["nodeName"] = node
    return pod


def taint(server: ApiServer, name: str, *taints: Mapping[str, str]) -> None:
    def change(node: dict[str, Any]) -> dict[str, Any]:
        return {**node, "spec": {**node["spec"], "taints": list(taints)}}

    server.do(lambda: server.rules.change(("nodes", "", name), change))


def a_kube_node(*taints: Mapping[str, str], ready: bool = True, cordoned: bool = False) -> KubeNode:
    conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    body = {
        "metadata": {"name": "n"},
        "spec": {"taints": list(taints), "unschedulable": cordoned},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(body, KubeNode)


def test_a_machine_has_the_taints_that_exclude_in_order() -> None:
    noted = {"key": "note", "effect": "PreferNoSchedule"}
    lost = {"key": "lost", "effect": "NoExecute"}
    found = node_of(a_kube_node(lost, noted, TEAM_A))
    assert found.taints == (Taint("dedicated", "team-a", "NoSchedule"), Taint("lost", "", "NoExecute"))
    assert node_of(a_kube_node(TEAM_A, noted, lost)).taints is found.taints, "equal taints are kept once"
    assert template_of(a_kube_node(TEAM_A)).taints == (Taint("dedicated", "team-a", "NoSchedule"),)
    assert node_of(a_kube_node()).taints == ()


def test_taints_that_repeat_that_a_node_is_cordoned_or_not_ready_give_no_other_reason() -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    down = [{"key": f"node.kubernetes.io/{why}", "effect": "NoExecute"} for why in ("not-ready", "unreachable")]
    assert node_of(a_kube_node(cordon, cordoned=True)).taints == ()
    assert [each.key for each in node_of(a_kube_node(cordon)).taints] == ["node.kubernetes.io/unschedulable"]
    assert node_of(a_kube_node(*down, ready=False)).taints == ()
    assert len(node_of(a_kube_node(*down)).taints) == 2, "kube-scheduler still refuses it"


async def test_a_pod_of_a_queue_gets_no_place_on_a_tainted_node_until_it_is_tolerated_or_removed(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 2, taints=[TEAM_A]))
    put(server, "pods", waiting("p"), tolerating(waiting("q")))
    async with story(server, api) as up:
        await until(lambda: up.bound == {"q"}, "the one that tolerates the taint is placed")
        await up.reported("p", "node-tainted")
        assert REASON in up.note("p")
        assert "(tolerate the taint, or remove it from the node)" in up.note("p")
        assert up.note("p", "place") == ""
        assert up.gated == {"p"}
        taint(server, "a")
        await until(lambda: up.bound == {"p", "q"}, "no taint keeps it off")


async def test_an_admitted_pod_loses_its_place_on_a_node_that_is_tainted_at_once(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 1), a_node("b", 1))
    put(server, "pods", waiting("p"))
    async with story(server, api, holds={"p"}) as up:
        await until(lambda: up.note("p", "place") != "", "it has a place")
        first = up.note("p", "place")
        taint(server, first, TEAM_A)
        await until(lambda: up.note("p", "place") not in ("", first), "it has another place")


async def test_the_extender_refuses_a_tainted_node_and_a_pod_there_keeps_its_cards_over_a_restart(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 2))
    here, found, late = put(server, "pods", a_pod("here"), on("a", a_pod("found")), a_pod("late"))
    async with running(server, api) as up:
        assert await up.place(here, ["a"]) == "!a"
        held = cards_of(server, "here")
        taint(server, "a", TEAM_A)
        await until(lambda: bool(up.front.mirror.machines.by_name["a"].taints), "the taint is known")
    async with running(server, api) as up:
        ledger = up.front.cluster.allocator.fleet.ledger
        assert list(ledger[here["metadata"]["uid"]].gpus) == held
        assert len(ledger[found["metadata"]["uid"]].gpus) == 1, "it runs there without a record of its cards"
        answer = await up.ask("filter", Pod=late, NodeNames=["a"])
        assert {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}["a"].startswith("node-tainted")


async def test_a_pod_without_cards_follows_taints_too_and_keeps_what_it_holds(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 1, taints=[TEAM_A]), a_node("b", 1))
    plain, tolerant = put(server, "pods", aligned("plain"), tolerating(aligned("tolerant")))
    (there,) = put(server, "pods", on("a", aligned("there")))
    async with running(server, api, **options()) as up:
        answer = await up.ask("filter", Pod=plain, NodeNames=["a", "b"])
        assert answer["NodeNames"] == ["b"]
        assert answer["FailedAndUnresolvableNodes"]["a"].startswith("node-tainted")
        assert (await up.ask("filter", Pod=tolerant, NodeNames=["a"]))["NodeNames"] == ["a"]
        assert up.front.cluster.held(there["metadata"]["uid"]) is not None


async def test_a_node_that_an_autoscaler_describes_has_its_taints(server: ApiServer, api: HttpKubeApi) -> None:
    node = a_node("a", 1, taints=[TEAM_A])
    put(server, "nodes", node)
    plain, tolerant = put(server, "pods", a_pod("plain"), tolerating(a_pod("tolerant")))
    async with running(server, api) as up:
        names, why = await fits(up, plain, a_template(node))
        assert names == []
        assert why["template"].startswith("node-tainted")
        assert (await fits(up, tolerant, a_template(node)))[0] == ["template"]
