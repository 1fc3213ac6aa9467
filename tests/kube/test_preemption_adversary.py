"""What makes pods leave in vain, or keeps them from leaving: many at once, news in the middle of it, and bad luck."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.kube.api_server import ApiServer, Canned
from tests.kube.conftest import until
from tests.kube.test_front import a_node, put
from tests.kube.test_preemption import URGENT, Pressed, a_budget, a_part, pressed
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.evicting.preemption import AGAIN_S, PATIENCE_S

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]


def _replace(it: Pressed, kind: str, name: str, **changes: Any) -> None:
    namespace = "" if kind == "nodes" else "default"
    server, key = it.up.server, (kind, namespace, name)
    server.do(lambda: server.store.put(key, {**server.rules.get(key), **changes}))


async def _two_parts_on(it: Pressed, *nodes: str) -> None:
    for node in nodes:
        await it.place(node, a_part(f"{node}1", 50, 1), a_part(f"{node}2", 50, 1))


async def test_each_of_several_equal_pods_gets_room_of_its_own(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api, nodes=2) as it:
        await _two_parts_on(it, "a", "b")
        names = [f"urgent{number}" for number in range(3)]
        it.create(*(a_part(name, 50, URGENT) for name in names))
        for name in names:
            assert await it.ask(name, "a", "b") == []
        gone = await it.look(PATIENCE_S)
        assert len(gone) == it.preemptor.evicted == 3
        await it.heard_to_leave(*gone)
        assert await it.look(AGAIN_S) == gone
        for name in gone:
            await it.end(name)
        for name in names:
            meta = it.pods[name]["metadata"]
            (node, *_) = await it.ask(name, "a", "b")
            await it.up.ask("bind", PodName=name, PodNamespace="default", PodUID=meta["uid"], Node=node)
            assert it.now(name)["spec"]["nodeName"] == node


async def test_no_other_pod_takes_the_room_of_victims_whatever_its_priority(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api) as it:
        await it.place("a", a_part("one", 100, 1))
        it.create(a_part("urgent", 100, URGENT), a_part("later", 100, URGENT), a_part("before", 100, URGENT + 1))
        assert await it.ask("urgent", "a") == []
        assert await it.look(PATIENCE_S) == {"one"}
        await it.heard_to_leave("one")
        await it.end("one")
        assert await it.ask("later", "a") == []
        assert await it.ask("before", "a") == []
        assert await it.ask("urgent", "a") == ["a"]


async def test_no_pod_waits_for_room_that_another_pod_gets(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api, nodes=2) as it:
        await _two_parts_on(it, "a", "b")
        it.create(a_part("first", 100, URGENT + 1), a_part("second", 100, URGENT))
        assert await it.ask("first", "a") == []
        assert await it.look(PATIENCE_S) == {"a1", "a2"}
        await it.heard_to_leave("a1", "a2")
        assert await it.ask("second", "a", "b") == []
        assert await it.look(PATIENCE_S) == {"a1", "a2", "b1", "b2"}


@pytest.mark.parametrize("path_end", ["/eviction", "/pods/urgent"])
async def test_a_pod_that_found_room_meanwhile_evicts_nobody(server: ApiServer, api: HttpKubeApi, path_end: str):
    """While it is asked whether they may leave, or it is written where room is kept, a place becomes free elsewhere."""
    async with pressed(server, api, nodes=2) as it:
        await it.place("a", a_part("one", 100, 1))
        await it.place("b", a_part("other", 100, 1))
        it.create(a_part("urgent", 100, URGENT))
        assert await it.ask("urgent", "a") == []
        loop = asyncio.get_running_loop()

        async def found() -> list[str]:
            it.up.front.cluster.free(it.pods["other"]["metadata"]["uid"])
            return await it.ask("urgent", "b")

        def meanwhile() -> None:
            assert asyncio.run_coroutine_threadsafe(found(), loop).result(60) == ["b"]

        method = "POST" if path_end == "/eviction" else "PATCH"
        server.canned.append(Canned(method, path_end, 200, carried_out=True, then=meanwhile))
        assert await it.look(PATIENCE_S) == set()
        assert it.preemptor.evicted == 0


async def test_a_vanished_card_does_not_prevent_evictions_elsewhere(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api, nodes=0) as it:
        put(server, "nodes", a_node("a", 2), a_node("b", 1))
        await until(lambda: len(it.up.front.mirror.machines.by_name) == 2, "both are heard")
        wide = a_part("wide", 60)
        wide["metadata"]["annotations"]["ullage.io/gpu-count"] = "2"
        await it.place("a", wide)
        await it.place("b", a_part("one", 60, 1))
        _replace(it, "nodes", "a", status=a_node("a", 1)["status"])
        await until(lambda: len(it.up.front.mirror.machines.by_name["a"].gpus) == 1, "a card is gone")
        it.create(a_part("urgent", 50, URGENT))
        assert await it.ask("urgent", "a", "b") == []
        assert await it.look(PATIENCE_S), "somebody gives way"


async def test_if_the_api_refuses_an_eviction_the_next_node_is_chosen(server: ApiServer, api: HttpKubeApi):
    """What keeps it may be known to the API server alone: two budgets for a pod, or a webhook."""
    async with pressed(server, api, nodes=2) as it:
        await it.place("a", a_part("cheap", 100, 1))
        await it.place("b", a_part("dear", 100, 2))
        for number in range(2):
            a_budget(server, f"b{number}", "cheap")
            status = {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1}
            _replace(it, "poddisruptionbudgets", f"b{number}", status=status)
        budgets = it.up.front.followed.budgets.objects
        await until(lambda: sum(b.status.disruptions_allowed for b in budgets.values()) == 2, "they are observed")
        it.create(a_part("urgent", 50, URGENT))
        assert await it.ask("urgent", "a", "b") == []
        assert await it.look(PATIENCE_S) == {"dear"}


async def test_a_requested_quality_of_service_evicts_nobody(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api) as it:
        await it.place("a", a_part("one", 100, 500, priorityClassName="batch"))
        pod = a_part("sly", 100)
        pod["metadata"]["annotations"]["ullage.io/qos"] = "critical"
        it.create(pod)
        assert await it.ask("sly", "a") == []
        assert await it.look(PATIENCE_S) == set()


async def test_nobody_is_evicted_from_a_node_that_no_longer_accepts_pods(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api, nodes=3) as it:
        await it.place("a", a_part("one", 100, 1))
        await it.place("b", a_part("two", 100, 2))
        await it.place("c", a_part("three", 100, 3))
        it.create(a_part("urgent", 100, URGENT))
        assert await it.ask("urgent", "a", "b", "c") == []
        it.clock[0] += 0.9
        known = server.do(lambda: server.rules.get(("nodes", "", "c"))["metadata"])
        _replace(it, "nodes", "c", metadata={**known, "labels": {"told": "late"}})
        nodes = it.up.front.nodes.objects
        await until(lambda: bool(nodes["", "c"].metadata.labels), "the scheduler knew it when it asked")
        it.clock[0] += 0.2
        specs = {
            "a": {"taints": [{"key": "for", "value": "others", "effect": "NoSchedule"}]},
            "b": {"unschedulable": True},
        }
        for node, spec in specs.items():
            _replace(it, "nodes", node, spec=spec)
        await until(lambda: all(nodes["", n].document["spec"] == spec for n, spec in specs.items()), "it is reported")
        assert await it.look(PATIENCE_S) == {"three"}


async def test_of_two_pods_on_a_card_the_one_is_evicted_whose_budget_allows_it(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api) as it:
        await it.place("a", a_part("kept", 50, 1), a_part("dear", 50, 2))
        a_budget(server, "b", "kept")
        await until(lambda: bool(it.up.front.followed.budgets.objects), "the budget is observed")
        it.create(a_part("urgent", 50, URGENT))
        assert await it.ask("urgent", "a") == []
        assert await it.look(PATIENCE_S) == {"dear"}


async def test_many_pods_get_all_available_room_in_one_round(server: ApiServer, api: HttpKubeApi):
    """Some pods get room that is left over by evictions for others: it is reserved for them alone."""
    async with pressed(server, api, nodes=3) as it:
        for node in "abc":
            await it.place(node, a_part(f"on-{node}", 100, 1))
        names = [f"urgent{number}" for number in range(8)]
        it.create(*(a_part(name, 50, URGENT) for name in names))
        for name in names:
            assert await it.ask(name, "a", "b", "c") == []
        gone = await it.look(PATIENCE_S)
        assert gone == {"on-a", "on-b", "on-c"}
        promised = [name for name in names if "ullage.io/room-on" in it.now(name)["metadata"]["annotations"]]
        assert len(promised) == 6


async def test_of_many_equal_requests_without_victims_one_is_examined(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
):
    async with pressed(server, api) as it:
        await it.place("a", a_part("kept", 100, 1))
        a_budget(server, "b", "kept")
        await until(lambda: bool(it.up.front.followed.budgets.objects), "the budget is observed")
        alike = [a_part(f"urgent{number}", 50, URGENT) for number in range(3)]
        other = a_part("other", 60, URGENT)
        for pod in alike:
            pod["metadata"]["labels"] = {"app": "urgent"}
        it.create(*alike, other)
        for name in ("urgent0", "urgent1", "urgent2", "other"):
            assert await it.ask(name, "a") == []
        looked: list[str] = []
        victims = it.up.front.cluster.victims

        def counting(request: Any, *args: Any) -> Any:
            looked.append(request.claim.pod)
            return victims(request, *args)

        monkeypatch.setattr(it.up.front.cluster, "victims", counting)
        assert await it.look(PATIENCE_S) == set()
        assert len(looked) == 2
        assert await it.look(AGAIN_S) == set()
        assert len(looked) == 4, "in the next round it may be otherwise"
