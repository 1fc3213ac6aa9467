"""Disruption budgets count when somebody has to leave a node."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.kube import bodies
from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.test_front import a_node, a_pod, put, running
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import POD_DISRUPTION_BUDGETS
from ullage.kube.client.objects import PodDisruptionBudget
from ullage.kube.evicting.disruption import budgets_of, report_unreadable
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim
from ullage.model.request import ResourceRequirement

pytestmark = pytest.mark.anyio


def a_budget(name: str, selector: Any, allowed: int = 0, namespace: str = "default") -> PodDisruptionBudget:
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}
    return POD_DISRUPTION_BUDGETS.read(json.dumps({**body, "status": {"disruptionsAllowed": allowed}}).encode())


def held(uid: str, namespace: str = "default", **labels: str) -> Allocation:
    claim = Claim(namespace, workload="w", pod=uid, pod_uid=uid, labels=labels)
    return Allocation(uid, "n", ResourceRequirement(gpu_count=1), ("g",), claim=claim)


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({"matchLabels": {"app": "a"}}, True),
        ({"matchLabels": {"app": "b"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({}, True),
        (None, False),
        ({"matchExpressions": [{"key": "app", "operator": "Is"}]}, True),
        ({"matchExpressions": "x"}, True),
    ],
)
def test_a_budget_is_for_the_pods_that_it_selects(selector: Any, matches: bool):
    pods = [held("p", app="a"), held("other", "elsewhere", app="a")]
    found = budgets_of([a_budget("b", selector)], pods)
    assert found.broken(pods).total() == matches


def test_a_budget_that_cannot_be_read_allows_nothing_in_its_namespace_whatever_it_says() -> None:
    wrong = a_budget("wrong", {"matchExpressions": [{"key": "app", "operator": "Is"}]}, allowed=9)
    here, elsewhere = held("p", app="a"), held("q", "elsewhere", app="a")
    assert budgets_of([wrong], [here, elsewhere]).broken([here, elsewhere]).total() == 1


async def test_a_budget_that_cannot_be_read_is_reported_by_name(server: ApiServer, api: HttpKubeApi) -> None:
    reported: list[tuple[str, str, str]] = []
    wrong = bodies.budget("wrong", {}) | {"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}
    put(server, "poddisruptionbudgets", {**wrong, "metadata": {"name": "wrong", "namespace": "default"}})
    budgets = Informer(api, POD_DISRUPTION_BUDGETS)
    report_unreadable(budgets, lambda kind, name, error: reported.append((kind, name, error.message)))
    following = asyncio.create_task(budgets.run())
    await budgets.wait_synced()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    ((kind, name, why),) = reported
    assert (kind, name) == ("PodDisruptionBudget", "default/wrong")
    assert "spec.selector.matchExpressions[0].operator" in why
    assert "no pod of its namespace may be evicted" in why


def test_of_several_budgets_the_tightest_counts_and_one_is_shared_by_all_that_it_selects():
    pods = [held("p", app="a"), held("q", app="b"), held("r", app="b")]
    found = budgets_of([a_budget("wide", {}, 2), a_budget("tight", {"matchLabels": {"app": "a"}})], pods)
    assert found.broken(pods).total() == 1
    assert found.broken(pods[:1]).total() == 1
    assert budgets_of([a_budget("wide", {}, 2)], pods).broken(pods).total() == 1


async def test_a_pod_without_a_budget_leaves_first_and_a_broken_budget_is_reported(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 2))
    place = {"namespace": "default"}
    kept, other, urgent = (a_pod(name) for name in ("kept", "other", "urgent"))
    kept["metadata"]["labels"] = {"app": "kept"}
    urgent["spec"]["priority"] = 1_000
    kept, other, urgent = put(server, "pods", kept, other, urgent)
    put(server, "poddisruptionbudgets", {**bodies.budget("b", {"app": "kept"}), "metadata": place | {"name": "b"}})
    async with running(server, api) as up:
        await until(lambda: bool(up.front.followed.budgets.objects), "the budget is observed")
        for pod in (kept, other):
            assert await up.place(pod, ["a"]) == "!a"
        offered = {"a": {"Pods": [], "NumPDBViolations": 0}}
        stated = await up.ask("preempt", Pod=urgent, NodeNameToMetaVictims=offered)
        assert stated["NodeNameToMetaVictims"] == {
            "a": {"Pods": [{"UID": other["metadata"]["uid"]}], "NumPDBViolations": 0}
        }
        server.do(lambda: server.rules.delete(("pods", "default", "other"), {"gracePeriodSeconds": 0}))
        await until(lambda: up.front.cluster.held(other["metadata"]["uid"]) is None, "it is gone")
        more = a_pod("more")
        more["metadata"]["labels"] = {"app": "kept"}
        (more,) = put(server, "pods", more)
        assert await up.place(more, ["a"]) == "!a"
        stated = await up.ask("preempt", Pod=urgent, NodeNameToMetaVictims=offered)
        assert stated["NodeNameToMetaVictims"]["a"]["NumPDBViolations"] == 1
