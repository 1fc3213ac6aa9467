"""Pods that are bound without kube-scheduler, before an API server: in whose order, by which writes, after what."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.kube.api_server import ApiServer, Canned
from tests.kube.conftest import until
from tests.kube.hami_node import hami_node, put_lock, unlock
from tests.kube.patches import apply_operations
from tests.kube.test_events import recorded
from tests.kube.test_front import GPU, a_node, a_pod, put
from tests.kube.test_queue_admission import GATE, Story, pods_of, story
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.webhook.webhook import AdmissionSettings, Webhook
from ullage.model.queue import Queue, parse_queue
from ullage.wire.admission import read_review
from ullage.wire.hami.lock import LOCK_WAIT_S

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]


def direct(name: str, gpus: int = 1, queue: str = "x", **annotations: str) -> dict[str, Any]:
    pod = a_pod(name, gpus, **annotations)
    pod["metadata"]["labels"] = {GATE: queue}
    pod["spec"]["schedulerName"] = "ullage-direct"
    return pod


def cards_of(up: Story) -> list[str]:
    """The cards of all bound pods, as their annotations say."""
    found = pods_of(up.server)
    return sorted(
        card for name in up.bound for card in found[name]["metadata"]["annotations"]["ullage.io/gpu-ids"].split(",")
    )


def writes_about(server: ApiServer, name: str) -> list[str]:
    return [path.rpartition("/")[2] for _, path in server.writes if f"/pods/{name}" in path]


async def test_pods_go_in_the_order_of_shares_by_one_write_each(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 4), a_node("b", 4))
    async with story(server, api, Queue("x", weight=3)) as up:
        put(server, "pods", *(direct(f"x{n}") for n in range(8)), *(direct(f"y{n}", queue="y") for n in range(8)))
        await until(lambda: len(up.bound) == 8, "all cards are used")
        assert up.queues() == {"x": 6, "y": 2}
        assert cards_of(up) == [f"{node}/{GPU}/{n}" for node in "ab" for n in range(4)]
        assert {tuple(writes_about(server, name)) for name in up.bound} == {("binding",)}
        left = sorted(pods_of(server).keys() - up.bound)
        for name in left:
            await up.reported(name, "insufficient-gpu: ")
        await until(lambda: up.front.admission.gates.figures()["x"].opened == 6, "they count as admitted")
        up.end(next(name for name in up.bound if name.startswith("y")))
        await until(lambda: len(up.bound) == 8, "the next one goes")
        assert up.queues() == {"x": 6, "y": 2}


async def test_a_gang_is_bound_whole(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 2), a_node("b", 1))
    put(server, "podgroups", {"metadata": {"name": "train", "namespace": "default"}, "spec": {"minMember": 3}})
    members = [direct(f"m{n}", queue="y") for n in range(3)]
    for member in members:
        member["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "train"
    put(server, "pods", direct("s"))
    async with story(server, api) as up:
        await until(lambda: up.bound == {"s"}, "who is alone goes")
        put(server, "pods", *members)
        await up.reported("m2", "gang-does-not-fit: ")
        assert up.bound == {"s"}
        up.end("s")
        await until(lambda: up.bound == {"m0", "m1", "m2"}, "all of them go")


async def test_the_plugin_of_a_node_is_told_which_card(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=8000))
    pod = direct("p", 0)
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: "1", "nvidia.com/gpumem": "3000"}}
    put(server, "pods", pod)
    async with story(server, api) as up:
        await until(lambda: up.bound == {"p"}, lambda: f"it is bound: {up.note('p')}")
        assert "A0,NVIDIA,3000" in pods_of(server)["p"]["metadata"]["annotations"]["hami.io/vgpu-devices-to-allocate"]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            "spec.volumes[0].persistentVolumeClaim",
        ),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "spec.topologySpreadConstraints"),
        ({"containers": [{"name": "c", "image": "x"}]}, "the pod requests no card"),
    ],
)
async def test_a_pod_that_needs_kube_scheduler_waits_and_says_for_what(
    server: ApiServer, api: HttpKubeApi, changed: dict[str, Any], why: str
) -> None:
    put(server, "nodes", a_node("a", 2))
    pod = direct("p")
    pod["spec"] |= changed
    put(server, "pods", pod, direct("q"))
    async with story(server, api) as up:
        await up.reported("p", why)
        await until(lambda: "q" in up.bound, "the other one goes")
        assert "name ullage as spec.schedulerName" in up.note("p")
        assert up.bound == {"q"}


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_bind_without_an_answer_is_not_repeated_on_another_card(
    server: ApiServer, api: HttpKubeApi, carried_out: bool
) -> None:
    put(server, "nodes", a_node("a", 1), a_node("b", 1))
    server.canned.append(Canned("POST", "/pods/p/binding", 500, carried_out=carried_out))
    put(server, "pods", direct("p"), direct("q"))
    async with story(server, api) as up:
        await until(lambda: up.bound == {"p", "q"}, "both are bound")
        assert len(set(cards_of(up))) == 2
        assert len(up.front.cluster.allocator.fleet.ledger) == 2


async def test_a_node_that_refuses_a_pod_is_not_tried_again_at_once(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1), a_node("b", 1))
    server.canned.append(Canned("POST", "/pods/p/binding", 403))
    put(server, "pods", direct("p"))
    async with story(server, api) as up:
        await until(lambda: up.bound == {"p"}, "it is bound elsewhere")
        assert len(up.front.cluster.allocator.fleet.ledger) == 1
        await until(
            lambda: any(
                (name, reason) == ("p", "BindingFailed") and "as the test wants it" in message
                for name, reason, message in recorded(server)
            ),
            "the refusal is an event",
        )


@pytest.mark.parametrize(("status", "times"), [(429, 1), (409, 4)])
async def test_a_refusal_that_says_nothing_of_the_node_is_tried_there_again(
    server: ApiServer, api: HttpKubeApi, status: int, times: int
) -> None:
    put(server, "nodes", a_node("a", 1))
    refusal = Canned("POST", "/pods/p/binding", status, {"Retry-After": "600"}, times)
    server.canned.append(refusal)
    put(server, "pods", direct("p"))
    async with story(server, api) as up:
        await until(lambda: up.bound == {"p"}, lambda: f"it is bound: {up.note('p')}")
        assert not refusal.times


async def test_a_locked_node_keeps_no_pod_from_another_node_and_is_tried_again(
    server: ApiServer, api: HttpKubeApi
) -> None:
    nodes = hami_node("a", *(f"A{n}" for n in range(4)), mib=8000), a_node("b", 1)
    for node in nodes:
        node["metadata"]["labels"] = {"name": node["metadata"]["name"]}
    put(server, "nodes", *nodes)
    sharing = [direct(f"a{n:02}", 0) for n in range(20)]
    for pod in sharing:
        pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: "1", "nvidia.com/gpumem": "1000"}}
        pod["spec"]["nodeSelector"] = {"name": "a"}
    put(server, "pods", a_pod("holder"), *sharing)
    await put_lock(api, "a", f"{datetime.now(UTC).isoformat(timespec='seconds')},default,holder")
    async with story(server, api, holds={"holder"}) as up:
        await until(lambda: len(up.front.admission.gates.places()) == 20, "all have their place")
        last = direct("b")
        last["spec"]["nodeSelector"] = {"name": "b"}
        put(server, "pods", last)
        await until(lambda: up.bound == {"b"}, "it does not wait for them", 10.0)
        up.clock.now += LOCK_WAIT_S
        await until(
            lambda: any("node a is locked" in message for _, _, message in recorded(server)), "one has waited too long"
        )
        await unlock(api, "a", "default", "holder")
        await until(lambda: len(up.bound) == 2, "the first one goes")


async def test_a_restart_goes_on_with_those_that_wait(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 2))
    put(server, "pods", *(direct(f"{'xy'[n % 2]}{n}", queue="xy"[n % 2]) for n in range(6)))
    async with story(server, api) as up:
        await until(lambda: len(up.bound) == 2, "two go")
        first = up.bound
    async with story(server, api) as up:
        for name in first:
            up.end(name)
        await until(lambda: len(up.bound) == 2, "the next ones go")
        assert up.queues() == {"x": 1, "y": 1}


async def test_followers_bind_nothing(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1))
    async with story(server, api):
        put(server, "pods", direct("p", 2))
        async with story(server, api, leads=False) as follower:
            await until(lambda: len(follower.front.pods.objects) == 1, "it is heard of")
            put(server, "nodes", a_node("b", 2))
            await until(lambda: "p" in follower.bound, "the leader binds it")
            assert not follower.front.admission.gates.places()
            assert [path for path in writes_about(server, "p") if path == "binding"] == ["binding"]


async def test_limits_of_queues_hold(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 4))
    put(server, "pods", *(direct(f"x{n}") for n in range(4)))
    async with story(server, api, parse_queue("x", "root", 1, None, "gpu=2")) as up:
        await up.reported("x3", "queue-limit: ")
        await until(lambda: up.bound == {"x0", "x1"}, "the others go")


async def test_a_pod_is_kept_away_by_the_anti_affinity_of_those_that_run(server: ApiServer, api: HttpKubeApi) -> None:
    node = a_node("a", 2)
    node["metadata"]["labels"] = {"kubernetes.io/hostname": "a"}
    put(server, "nodes", node)
    alone = a_pod("alone", 0)
    alone["spec"] |= {
        "nodeName": "a",
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "noisy"}}}
                ]
            }
        },
    }
    noisy = direct("p")
    noisy["metadata"]["labels"]["app"] = "noisy"
    put(server, "pods", alone, noisy, direct("q"))
    async with story(server, api) as up:
        await up.reported("p", "pod-anti-affinity: ")
        await until(lambda: "q" in up.bound, "the other one goes")
        up.end("alone")
        await until(lambda: "p" in up.bound, "it goes when that has ended")


async def test_a_tainted_node_is_for_pods_that_tolerate_it(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 2, taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]))
    able = direct("able")
    able["spec"]["tolerations"] = [{"key": "team", "operator": "Equal", "value": "x"}]
    put(server, "pods", able, direct("other"))
    async with story(server, api) as up:
        await until(lambda: up.bound == {"able"}, "who tolerates it goes")
        await up.reported("other", "node-tainted: ")


def reviewed(pod: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The patched pod, and the outcome."""
    request = {"uid": "r", "operation": "CREATE", "kind": {"kind": "Pod", "version": "v1"}, "namespace": "default"}
    asked = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**request, "object": pod}}
    webhook = Webhook(AdmissionSettings(queues="named", binds_itself=True))
    answer, outcome = webhook.answer(read_review(json.dumps(asked).encode()))
    response = json.loads(answer)["response"]
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return apply_operations(pod, patch), f"{outcome} {response.get('status', {}).get('message', '')}"


def asking(**spec: Any) -> dict[str, Any]:
    pod = direct("p")
    del pod["spec"]["schedulerName"]
    pod["spec"] |= spec
    return pod


def test_the_webhook_has_pods_of_queues_bound_directly_unless_they_need_kube_scheduler() -> None:
    pod, _ = reviewed(asking())
    assert pod["spec"]["schedulerName"] == "ullage-direct"
    assert "schedulingGates" not in pod["spec"]
    again, _ = reviewed(pod)
    assert again == pod
    gated, _ = reviewed(asking(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]))
    assert (gated["spec"]["schedulerName"], gated["spec"]["schedulingGates"]) == ("ullage", [{"name": GATE}])
    without = asking()
    del without["metadata"]["labels"][GATE]
    alone, _ = reviewed(without)
    assert alone["spec"]["schedulerName"] == "ullage"
    assert "schedulingGates" not in alone["spec"]


def test_the_webhook_refuses_a_pod_that_names_the_direct_scheduler_and_needs_another() -> None:
    (container,) = a_pod("p")["spec"]["containers"]
    container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    _, outcome = reviewed(asking(schedulerName="ullage-direct", containers=[container]))
    assert outcome.startswith("invalid-request")
    assert "spec.containers[0].ports[0].hostPort" in outcome
    assert "name ullage as spec.schedulerName" in outcome
