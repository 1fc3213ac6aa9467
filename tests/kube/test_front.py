"""The whole front before an API server: what kube-scheduler asks, what is written, and what a restart finds."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.kube.api_server import ApiServer, Canned
from tests.kube.at_work import at_work
from tests.kube.conftest import until
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube import metrics
from ullage.kube.client.api import ALL, Selection, WatchEvent
from ullage.kube.client.errors import Unreachable
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import PODS, Kind
from ullage.kube.client.lease import Candidate
from ullage.kube.extender.app import make_app
from ullage.kube.front import Front
from ullage.model.allocation import AllocationState
from ullage.wire.extender import ExtenderArgs

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

GPU = "nvidia.com/gpu"


def a_node(name: str, gpus: int = 2, **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", GPU: str(gpus)}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def a_pod(name: str, gpus: int = 1, **annotations: str) -> dict[str, Any]:
    limits = {GPU: str(gpus)} if gpus else {}
    container = {"name": "c", "image": "x", "resources": {"limits": limits, "requests": limits}}
    metadata = {
        "name": name,
        "namespace": "default",
        "annotations": {f"ullage.io/{k}": v for k, v in annotations.items()},
    }
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": "Pending"}}


def put(server: ApiServer, kind: str, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    def create() -> list[dict[str, Any]]:
        return [server.rules.create(kind, body["metadata"].get("namespace", ""), body) for body in bodies]

    return server.do(create)


def binding(pod: dict[str, Any], node: str) -> dict[str, str]:
    meta = pod["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}


class Running:
    """A front, and the calls that kube-scheduler makes."""

    def __init__(self, front: Front, http: httpx2.AsyncClient, server: ApiServer) -> None:
        self.front, self.server, self._http = front, server, http

    async def ask(self, verb: str, **body: Any) -> Any:
        answer = await self._http.post(f"/{verb}", content=json.dumps(body))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def place(self, pod: dict[str, Any], names: list[str]) -> str:
        """As kube-scheduler: filter, prioritize, bind; the error of bind, or the node in front of a `!`."""
        found = await self.ask("filter", Pod=pod, NodeNames=names)
        if found["Error"] or not found["NodeNames"]:
            return f"refused {found}"
        scores = await self.ask("prioritize", Pod=pod, NodeNames=found["NodeNames"])
        best = max(scores, key=lambda each: each["Score"])["Host"]
        meta = pod["metadata"]
        bound = await self.ask(
            "bind", PodName=meta["name"], PodNamespace=meta["namespace"], PodUID=meta["uid"], Node=best
        )
        return str(bound["Error"] or f"!{best}")

    async def ready(self) -> bool:
        return (await self._http.get("/readyz")).status_code == 200


@asynccontextmanager
async def running(
    server: ApiServer, api: HttpKubeApi, now: Callable[[], float] = time.time, **options: Any
) -> AsyncIterator[Running]:
    front = make_front(api, Candidate(api, "ullage", "default"), Rules(), FrontSettings(**options), now=now)
    transport = httpx2.ASGITransport(make_app(front.extender))
    async with httpx2.AsyncClient(transport=transport, base_url="http://extender") as http, at_work(front):
        yield Running(front, http, server)


def cards_of(server: ApiServer, name: str) -> list[str]:
    pod = server.do(lambda: server.rules.get(("pods", "default", name)))
    return [card for card in pod["metadata"].get("annotations", {}).get("ullage.io/gpu-ids", "").split(",") if card]


async def test_pods_get_cards_of_their_own_until_there_are_none(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a"), a_node("b", 1))
    pods = put(server, "pods", *(a_pod(f"p{number}") for number in range(4)))
    async with running(server, api) as up:
        reported = [await up.place(pod, ["a", "b"]) for pod in pods]
        assert all(answer.startswith("!") for answer in reported[:3])
        assert "refused" in reported[3]
        held = [card for number in range(3) for card in cards_of(server, f"p{number}")]
        assert len(held) == len(set(held)) == 3
        refused = await up.ask("filter", Pod=pods[3], NodeNames=["a", "b"])
        assert refused["FailedNodes"] == {
            "a": "2/2 ExclusiveDeviceAllocateConflict",
            "b": "1/1 ExclusiveDeviceAllocateConflict",
        }
        assert refused["FailedAndUnresolvableNodes"] == {}


async def test_what_it_knows_after_a_restart_is_what_it_knew(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 4))
    pods = put(server, "pods", a_pod("whole"), a_pod("part", 0, **{"gpu-count": "1", "compute-percent-request": "30"}))
    async with running(server, api) as up:
        for pod in pods:
            assert (await up.place(pod, ["a"])) == "!a"
        before = dict(up.front.cluster.allocator.fleet.ledger)
    async with running(server, api) as up:
        assert up.front.cluster.allocator.fleet.ledger == before


async def test_a_pod_that_ends_frees_its_cards_when_it_is_gone_and_not_before(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 1))
    first, second = put(server, "pods", a_pod("first"), a_pod("second"))
    async with running(server, api) as up:
        assert await up.place(first, ["a"]) == "!a"
        books, uid = up.front.cluster, first["metadata"]["uid"]
        server.do(lambda: server.rules.delete(("pods", "default", "first"), {}))
        await until(lambda: books.held(uid).state is AllocationState.RELEASING, "its deletion is requested")
        assert "refused" in await up.place(second, ["a"])
        server.do(lambda: server.rules.delete(("pods", "default", "first"), {"gracePeriodSeconds": 0}))
        await until(lambda: books.held(uid) is None, "it is gone")
        assert await up.place(second, ["a"]) == "!a"


async def test_a_bind_whose_answer_is_lost_is_found_done_when_it_is_asked_again(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 2))
    (pod,) = put(server, "pods", a_pod("p"))
    bind, uid = binding(pod, "a"), pod["metadata"]["uid"]
    async with running(server, api) as up:
        server.canned.append(Canned("POST", "/binding", 500, times=2, carried_out=True))  # the first bind may conflict
        assert (await up.ask("bind", **bind))["Error"]
        assert (await up.ask("bind", **bind))["Error"] == ""
        await until(lambda: up.front.cluster.held(uid) is not None, "the API reports it")
        assert list(up.front.cluster.held(uid).gpus) == cards_of(server, "p")


async def test_a_bind_that_is_refused_holds_nothing(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 1))
    first, second = put(server, "pods", a_pod("first"), a_pod("second"))
    async with running(server, api) as up:
        server.canned.append(Canned("POST", "/binding", 403, times=1))
        assert "kube-forbidden" in await up.place(first, ["a"])
        assert await up.place(second, ["a"]) == "!a"


async def test_pods_without_cards_pass_and_foreign_pods_hold_some(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 2))
    foreign = a_pod("foreign")
    foreign["spec"]["nodeName"] = "a"
    _, plain, asking = put(server, "pods", foreign, a_pod("plain", 0), a_pod("asking", 2))
    async with running(server, api) as up:
        found = await up.ask("filter", Pod=plain, NodeNames=["a", "unknown"])
        assert found["NodeNames"] == ["a", "unknown"]
        assert "refused" in await up.place(asking, ["a"])


async def test_a_simulation_with_whole_nodes_changes_nothing(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 1))
    first, second = put(server, "pods", a_pod("first"), a_pod("second"))
    async with running(server, api) as up:
        nodes = {"metadata": {}, "items": [{"metadata": {"name": "a"}}]}
        for _ in range(2):
            found = await up.ask("filter", Pod=first, Nodes=nodes)
            assert [node["metadata"]["name"] for node in found["Nodes"]["items"]] == ["a"]
            assert found["NodeNames"] is None
        assert await up.place(second, ["a"]) == "!a"


async def test_new_machines_and_changed_ones_count_from_the_next_question_on(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 1))
    (pod,) = put(server, "pods", a_pod("p", 2))
    async with running(server, api) as up:
        assert "refused" in await up.place(pod, ["a"])
        put(server, "nodes", a_node("b", 2))
        await until(lambda: ("", "b") in up.front.nodes.objects, "the machine is observed")
        assert await up.place(pod, ["a", "b"]) == "!b"


async def test_a_request_that_cannot_be_read_gets_an_error(server: ApiServer, api: HttpKubeApi):
    async with running(server, api) as up:
        assert (await up.ask("filter", NodeNames=["a"]))["Error"]
        bad = a_pod("bad", **{"gpu-count": "many"})
        assert "ullage.io/gpu-count" in (await up.ask("filter", Pod=bad, NodeNames=["a"]))["Error"]
        assert await up.ask("prioritize", Pod=bad, NodeNames=["a"]) == []


async def test_only_the_leader_is_ready_and_the_other_takes_over(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 1))
    (pod,) = put(server, "pods", a_pod("p"))
    async with running(server, api) as leader:
        follower = make_front(api, Candidate(api, "ullage", "default"), Rules())
        async with at_work(follower, lambda front: front.mirror.ready and bool(front.candidate.holder)):
            assert leader.front.candidate.identity in follower.extender.unready
            assert await leader.place(pod, ["a"]) == "!a"
            uid = pod["metadata"]["uid"]
            await until(lambda: follower.cluster.held(uid) is not None, "it hears of the pod")
            assert follower.cluster.held(uid).gpus == leader.front.cluster.held(uid).gpus


class Deaf:
    """An API whose watches of pods deliver no event."""

    def __init__(self, api: HttpKubeApi) -> None:
        self.pages, self.get, self.write, self._watch = api.pages, api.get, api.write, api.watch

    async def watch(
        self, kind: Kind[Any], since: str, select: Selection = ALL
    ) -> AsyncGenerator[WatchEvent[Any], None]:
        if kind is PODS:
            await asyncio.Event().wait()
        async for event in self._watch(kind, since, select):
            yield event


async def test_a_leader_knows_what_was_bound_before_it_even_if_its_watch_is_behind(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 1))
    first, second = put(server, "pods", a_pod("first"), a_pod("second"))
    deaf = Deaf(api)
    behind = make_front(deaf, Candidate(deaf, "ullage", "default"), Rules())
    async with AsyncExitStack() as stack:
        async with running(server, api) as leader:
            await stack.enter_async_context(at_work(behind, lambda front: front.mirror.ready))
            assert await leader.place(first, ["a"]) == "!a"
            assert behind.cluster.held(first["metadata"]["uid"]) is None
        await until(lambda: not behind.extender.unready, "it leads")
        assert behind.extender.filter(ExtenderArgs(second, node_names=["a"])).node_names == []


async def test_a_kind_without_news_is_named_with_its_error(server: ApiServer, api: HttpKubeApi):
    async with running(server, api) as up:
        nodes = up.front.nodes
        await until(lambda: not up.front.errors(), "all is heard")
        nodes.last_error = Unreachable("the stream broke")
        assert up.front.errors() == {"nodes": "the stream broke"}
        assert up.front.errors(60.0) == {}
        nodes._answered_at -= 60.0
        nodes.last_error = Unreachable("the stream broke")
        assert up.front.errors(60.0) == {"nodes": "the stream broke"}
    alone = make_front(api, Candidate(api, "ullage", "default"), Rules())
    alone.candidate.last_error = Unreachable("no answer")
    assert alone.errors() == {"leases": "no answer"}


async def test_questions_are_answered_while_metrics_are_written_down(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
):
    put(server, "nodes", a_node("a", 1))
    first, second = put(server, "pods", a_pod("first"), a_pod("second"))
    async with running(server, api) as up:
        assert await up.place(first, ["a"]) == "!a"
        began, go_on, write = threading.Event(), threading.Event(), metrics._text

        def slowly(*given: Any) -> bytes:
            began.set()
            assert go_on.wait(60)
            return write(*given)

        monkeypatch.setattr(metrics, "_text", slowly)
        page = asyncio.create_task(metrics.FrontMetrics(up.front).page())
        await until(began.is_set, "it is written")
        server.do(lambda: server.rules.delete(("pods", "default", "first"), {"gracePeriodSeconds": 0}))
        await until(lambda: up.front.cluster.held(first["metadata"]["uid"]) is None, "it is gone")
        assert await up.place(second, ["a"]) == "!a"
        go_on.set()
        reported = (await page).decode()
        assert 'hami_vgpu_core_allocated_ratio{device_uuid="a/nvidia.com/gpu/0",namespace="default"' in reported
        assert 'pod="first"' in reported
        assert 'pod="second"' not in reported


async def test_the_best_nodes_are_offered_and_all_to_a_pod_with_preferences(server: ApiServer, api: HttpKubeApi):
    names = [f"n{number:02}" for number in range(12)]
    put(server, "nodes", *(a_node(name, 2) for name in names))
    held, pod, spread = put(server, "pods", a_pod("held"), a_pod("p"), a_pod("spread"))
    spread["spec"]["topologySpreadConstraints"] = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "x"}]
    async with running(server, api, offered_nodes=5) as up:
        assert await up.place(held, ["n07"]) == "!n07"
        scores = {each["Host"]: each["Score"] for each in await up.ask("prioritize", Pod=pod, NodeNames=names)}
        found = await up.ask("filter", Pod=pod, NodeNames=names)
        assert len(found["NodeNames"]) == 5
        assert min(scores[name] for name in found["NodeNames"]) >= max(
            scores[name] for name in names if name not in found["NodeNames"]
        )
        assert "n07" in found["NodeNames"]
        assert not found["FailedNodes"], "the others fit too"
        assert (await up.ask("filter", Pod=spread, NodeNames=names))["NodeNames"] == names
    async with running(server, api, offered_nodes=0) as up:
        assert (await up.ask("filter", Pod=pod, NodeNames=names))["NodeNames"] == names
