"""What the page of a cluster is drawn from: the overview, and plans, before an API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import pytest

from tests.kube.api_server import ApiServer
from tests.kube.at_work import at_work
from tests.kube.conftest import until
from tests.kube.hami_node import hami_node
from tests.kube.hosting import a_binding, a_machine, pod_of
from tests.kube.test_events import recorded
from tests.kube.test_front import Running, a_node, a_pod, put, running
from tests.kube.test_queue_admission import waiting
from ullage.bootstrap.cluster_page.routes import Sparing, cluster_page
from ullage.bootstrap.cluster_page.settings import ClusterSettings
from ullage.bootstrap.kube_front import make_front
from ullage.core.placing.rules import Rules
from ullage.kube import shared_page
from ullage.kube.bindings.terms import BindingScope, BindingTerms
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.lease import Candidate
from ullage.kube.front import Front
from ullage.kube.mirror.cards import RegisteredCards
from ullage.model.queue import Queue, parse_queue
from ullage.wire.allocation import PlanBody
from ullage.wire.cluster_view import ClusterOverview, WaitingPodBody

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

QUEUES = (parse_queue("all", "root", 1, None, None), parse_queue("research", "all", 2, None, "gpu=2"))


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each overview is written when it is asked for, on a busy machine too."""
    monkeypatch.setattr(shared_page, "CHEAP_S", float("inf"))


class Page(Running):
    """A front, and its page."""

    browser: httpx2.AsyncClient

    async def overview(self) -> ClusterOverview:
        answer = await self.browser.get("/v1/overview")
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=ClusterOverview)

    async def plan(self, **body: Any) -> PlanBody:
        answer = await self.browser.post("/v1/plan", content=json.dumps(body))
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=PlanBody)

    async def waiting(self) -> dict[str, WaitingPodBody]:
        return {each.pod: each for each in (await self.overview()).waiting}


@asynccontextmanager
async def page(server: ApiServer, api: HttpKubeApi, **options: Any) -> AsyncIterator[Page]:
    async with (
        running(server, api, readers=[RegisteredCards()], **options) as up,
        looked_at(up.front, up, options.get("queues", ())) as found,
    ):
        yield found


@asynccontextmanager
async def looked_at(front: Front, up: Running, queues: tuple[Queue, ...] = ()) -> AsyncIterator[Page]:
    transport = httpx2.ASGITransport(cluster_page(front, ClusterSettings(queues), lambda: 1000.0))
    async with httpx2.AsyncClient(transport=transport, base_url="http://page") as browser:
        found = Page(front, up._http, up.server)
        found.browser = browser
        yield found


async def test_the_overview_has_nodes_cards_and_their_pods(server: ApiServer, api: HttpKubeApi):
    cordoned = a_node("b", 1, unschedulable=True)
    put(server, "nodes", hami_node("a", "GPU-a-0", "GPU-a-1", mib=16_000), cordoned)
    part = a_pod("part")
    part["spec"]["containers"][0]["resources"]["limits"] |= {"nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "25"}
    (pod,) = put(server, "pods", part)
    async with page(server, api) as up:
        assert await up.place(pod, ["a"]) == "!a"
        found = await up.overview()
        assert (found.at, found.front.leads, found.front.unready, found.front.errors) == (1000.0, True, "", {})
        assert [(node.name, node.executors, node.cordoned) for node in found.nodes] == [("a", 1, False), ("b", 0, True)]
        held, free = sorted(found.gpus[:2], key=lambda gpu: not gpu.holders)
        (holder,) = held.holders
        assert (holder.session, holder.fraction, held.free.fraction) == ("default/part", 0.25, 0.75)
        assert (held.vram_bytes, held.node, free.free.fraction) == (16_000 << 20, "a", 1.0)
        assert found.nodes[0].held.gpu_milli == 250
        assert found.waiting == found.bindings == []


async def test_a_pod_that_waits_has_its_reason_and_is_gone_when_it_is_placed(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 2))
    pod, other, foreign = a_pod("train", 3), a_pod("new"), a_pod("foreign")
    other["spec"]["schedulerName"] = "ullage"
    (pod, _, _) = put(server, "pods", pod, other, foreign)
    async with page(server, api) as up:
        await up.ask("filter", Pod=pod, NodeNames=["a"])
        found = await up.waiting()
        assert found.keys() == {"train", "new"}, "a pod that nobody asked about and that names another scheduler"
        assert (found["train"].reason, found["train"].request) == (
            "FilteringFailed",
            "3 whole cards, gpu_vendor=NVIDIA",
        )
        assert "the largest node has 2 cards" in found["train"].message
        assert found["new"].reason == "new"
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
        said = {"phase": "Pending", "conditions": [condition]}
        key = ("pods", "default", "new")
        server.do(lambda: server.rules.change(key, lambda pod: pod | {"status": said}, "status"))
        await until(lambda: b"0/1 nodes" in up.front.pods.objects["default", "new"].raw, "the condition is observed")
        assert (await up.waiting())["new"].message == "0/1 nodes"
        assert await up.place(server.do(lambda: server.rules.get(key)), ["a"]) == "!a"
        await until(lambda: up.front.pods.objects["default", "new"].spec.node_name, "the bind is observed")
        assert (await up.waiting()).keys() == {"train"}


async def test_a_pod_that_is_bound_without_kube_scheduler_has_its_reason_too(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 2))
    large, claiming = a_pod("large", 3), a_pod("claiming")
    for pod in (large, claiming):
        pod["spec"]["schedulerName"] = "ullage-direct"
    claiming["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    put(server, "pods", large, claiming)
    async with page(server, api) as up:
        await until(lambda: "not-enough-gpus-on-node" in note(up, "large"), "one waits for cards")
        await until(lambda: "persistentVolumeClaim" in note(up, "claiming"), "one needs kube-scheduler")
        found = await up.waiting()
        assert found.keys() == {"large", "claiming"}
        assert found["large"].reason == "not-enough-gpus-on-node"
        assert "persistentVolumeClaim" in found["claiming"].message


def note(up: Page, name: str) -> str:
    """Why a pod waits, as it says itself."""
    pod = up.front.pods.objects.get(("default", name))
    return "" if pod is None else str((pod.metadata.annotations or {}).get("ullage.io/queue-waits", ""))


async def test_queues_count_those_below_them_and_pods_have_their_position(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 3))
    pods = [waiting(f"p{number}", queue="research") for number in range(4)]
    async with page(server, api, queues=QUEUES) as up:
        put(server, "pods", *pods)
        await until(lambda: len(up.front.admission.gates.places()) == 2, "the limit of the queue is reached")
        await until(lambda: len(recorded(server)) >= 4, "two are admitted, two have their reason")
        named = {queue.name: queue for queue in (await up.overview()).queues}
        assert (named["research"].parent, named["research"].weight, named["research"].limit) == ("all", 2, "gpu=2")
        assert [(named[name].pending, named[name].running) for name in ("all", "research")] == [(2, 0), (2, 0)]
        found = await up.waiting()
        still = [pod for pod in found.values() if pod.position is not None]
        assert sorted((pod.queue, pod.position, pod.reason) for pod in still) == [
            ("research", 1, "queue-limit"),
            ("research", 2, "queue-limit"),
        ]
        (admitted, other) = [
            server.do(lambda name=name: server.rules.get(("pods", "default", name)))
            for name in sorted(found.keys() - {pod.pod for pod in still})
        ]
        assert await up.place(admitted, ["a"]) == "!a"
        named = {queue.name: queue for queue in (await up.overview()).queues}
        assert [(named[name].pending, named[name].running) for name in ("all", "research")] == [(2, 1), (2, 1)]
        assert named["all"].share == pytest.approx(1 / 3)
        assert other["metadata"]["name"] in found


async def test_bindings_are_shown_by_card(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("n1", {"GPU-1": "1", "GPU-2": ""}))
    put(server, "gpubindings", a_binding("b", "GPU-1", "comfyui", "alice", "default", memory=4096))
    async with page(server, api, bindings=BindingTerms(BindingScope.ON)) as up:
        found = (await up.overview()).bindings
        assert [(card.node, card.id, [(row.app_name, row.owner) for row in card.bindings]) for card in found] == [
            ("n1", "GPU-1", [("comfyui", "alice")])
        ]


async def test_a_reader_that_has_the_overview_gets_nothing_until_it_changes(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 1))
    (pod,) = put(server, "pods", a_pod("p"))
    async with page(server, api) as up:
        tag = (await up.browser.get("/v1/overview")).headers["etag"]
        again = await up.browser.get("/v1/overview", headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert await up.place(pod, ["a"]) == "!a"
        changed = await up.browser.get("/v1/overview", headers={"If-None-Match": tag})
        assert changed.status_code == 200
        assert changed.headers["etag"] != tag


async def test_a_reader_gets_the_overview_compressed_if_it_can_read_that(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 1))
    async with page(server, api) as up:
        packed = await up.browser.get("/v1/overview", headers={"Accept-Encoding": "br, gzip;q=0.5"})
        assert packed.headers["content-encoding"] == "gzip"
        for refused in ("identity", "gzip;q=0.0, br", ""):
            plain = await up.browser.get("/v1/overview", headers={"Accept-Encoding": refused})
            assert "content-encoding" not in plain.headers
            assert plain.json()["nodes"] == packed.json()["nodes"]
            assert plain.headers["etag"] == packed.headers["etag"]


async def test_a_plan_is_what_the_pod_gets_and_reserves_nothing(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", hami_node("a", "GPU-a-0", mib=16_000), hami_node("b", "GPU-b-0", mib=40_000))
    wants = a_pod("wants")
    wants["spec"]["containers"][0]["resources"]["limits"] |= {"nvidia.com/gpumem": "20000"}
    async with page(server, api) as up:
        plan = await up.plan(pod=wants)
        assert plan.choice is not None
        assert (plan.choice.node, [gpu.uuid for gpu in plan.choice.gpus]) == ("b", ["GPU-b-0"])
        assert plan.choice.gpus[0].vram_bytes == 20_000 << 20
        (whole,) = put(server, "pods", a_pod("whole"))
        assert await up.place(whole, ["b"]) == "!b", "nothing was reserved"
        plan = await up.plan(pod=wants)
        assert plan.refusal is not None
        assert plan.refusal.message.startswith("asks for 20000Mi on one card")
        assert "nvidia.com/gpumem: 16000 would fit on 1 node now" in plan.refusal.message
        assert plan.refusal.curable
        assert recorded(server)[-1:] == [] or all(name != "wants" for name, _, _ in recorded(server))


async def test_a_plan_of_a_pod_names_what_is_not_read(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", hami_node("a", "GPU-a-0", mib=16_000))
    wants = a_pod("wants", colour="red")
    wants["spec"]["containers"][0]["resources"]["limits"] |= {"nvidia.com/gpumemory": "20000"}
    async with page(server, api) as up:
        unknown, unread = (await up.plan(pod=wants)).warnings
        assert unknown == "metadata.annotations.ullage.io/colour: it is not read"
        assert unread.endswith("did you mean nvidia.com/gpumem?")
        for cards in (0, 1):
            misspelt = a_pod("misspelt", cards, **{"vram-reqest": "1Gi"})
            answer = await up.browser.post("/v1/plan", content=json.dumps({"pod": misspelt}))
            assert (answer.status_code, "did you mean ullage.io/vram-request?" in answer.text) == (400, True)


async def test_more_cards_than_the_largest_node_has_are_never_free(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 1), a_node("b", 2))
    async with page(server, api) as up:
        for pod in put(server, "pods", a_pod("one", 1), a_pod("two", 2)):
            assert (await up.place(pod, ["a", "b"]))[0] == "!"
        plan = await up.plan(pod=a_pod("wide", 3))
        assert plan.refusal is not None
        assert not plan.refusal.curable
        assert "the largest node has 2 cards" in plan.refusal.message
        assert "waiting does not help" in plan.refusal.message
        plan = await up.plan(pod=a_pod("pooled", gpupool="none-has-it"))
        assert plan.refusal is not None
        assert "the card is of another pool: there are cards of no pool " in plan.refusal.message
        plan = await up.plan(pod=a_pod("tiny", 0, **{"vram-request": "99999999999"}))
        assert plan.refusal is not None
        assert plan.refusal.message.startswith("asks for 99999999999 bytes on one card")


async def test_a_plan_of_a_pod_follows_bindings(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("n1", {"GPU-1": "1", "GPU-2": ""}))
    put(server, "gpubindings", a_binding("b", "GPU-1", "comfyui", "alice", "default", memory=4096))
    async with page(server, api, bindings=BindingTerms(BindingScope.ON)) as up:
        plan = await up.plan(pod=pod_of("mine"))
        assert plan.choice is not None
        assert [gpu.uuid for gpu in plan.choice.gpus] == ["GPU-1"]
        plan = await up.plan(pod=pod_of("other", app="other"))
        assert plan.refusal is not None
        assert "cards that are bound for its application alone" in plan.refusal.message


async def test_a_plan_of_amounts_has_all_steps(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", hami_node("a", "GPU-a-0", mib=16_000))
    async with page(server, api) as up:
        plan = await up.plan(resreq="gpu=1,vram=4g")
        assert plan.choice is not None
        assert plan.choice.node == "a"
        assert [stage.name for stage in plan.stages]
        plan = await up.plan(resreq="gpu=1,vram=40g")
        assert plan.refusal is not None
        assert plan.refusal.code == "insufficient-vram"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"resreq": "gpu=1", "pod": a_pod("p")}, "body"),
        ({"resreq": "gpu=many"}, "gpu"),
        ({"pod": {"spec": {}}}, "pod.metadata"),
        ({"pod": a_pod("plain", 0)}, "pod"),
        ({"pod": a_pod("wrong", **{"gpu-count": "many"})}, "ullage.io/gpu-count"),
        ({"resreq": "gpu=1", "qos": "best"}, "qos"),
        ({"unknown": 1}, "unknown"),
    ],
)
async def test_a_plan_that_cannot_be_read_names_its_fault(
    server: ApiServer, api: HttpKubeApi, body: dict[str, Any], field: str
):
    async with page(server, api) as up:
        answer = await up.browser.post("/v1/plan", content=json.dumps(body))
        assert answer.status_code == 400, answer.text
        assert field in answer.json()["message"]


async def test_who_does_not_lead_shows_the_books_and_plans_nothing(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 1))
    follower = make_front(api, Candidate(api, "ullage", "default"), Rules())
    async with running(server, api) as leader, at_work(follower, lambda front: front.mirror.ready):
        await until(lambda: bool(follower.candidate.holder), "it knows the leader")
        async with looked_at(follower, leader) as up:
            found = await up.overview()
            assert (found.front.leads, len(found.gpus)) == (False, 1)
            assert leader.front.candidate.identity in found.front.unready
            answer = await up.browser.post("/v1/plan", content=json.dumps({"resreq": "gpu=1"}))
            assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")


async def test_the_page_changes_nothing_and_knows_no_other_route(server: ApiServer, api: HttpKubeApi):
    async with page(server, api) as up:
        for path in ("/", "/static/cluster.js", "/v1/overview"):
            assert (await up.browser.get(path)).status_code == 200
            assert (await up.browser.post(path)).status_code == 405
        assert (await up.browser.get("/filter")).status_code == 404
        assert (await up.browser.get("/bind")).status_code == 404
        assert (await up.browser.post("/v1/plan", content=b"x" * (1 << 21))).status_code == 400


async def test_long_work_leaves_nine_tenths_of_the_time() -> None:
    now, paused = 0.0, list[float]()

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    async def works(seconds: float) -> bytes:
        nonlocal now
        now += seconds
        return b"done"

    sparing = Sparing(lambda: now, pause)
    assert await sparing.run(lambda: works(0.001)) == b"done"
    await sparing.run(lambda: works(0.5))
    await sparing.run(lambda: works(0.0))
    assert paused == [0.0, 0.0, pytest.approx(4.5)]
