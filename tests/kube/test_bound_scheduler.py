"""Two owners of one application on a real control plane: their cards, their tokens, and a card that is given on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.kube.at_work import at_work
from tests.kube.conftest import SHORT, define, until
from tests.kube.control_plane import ControlPlane
from tests.kube.hami_node import HamiNodes
from tests.kube.hosting import ALONE, ROOT, SLICED, a_binding, a_deployment, a_machine, pod_of
from tests.kube.kubelet import Kubelets
from tests.kube.listening import served
from tests.kube.test_scheduler import CARDS, scheduled  # noqa: F401 - the fixture
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.bindings.callers import Admins, Authentication, Tokens, caller_of
from ullage.kube.bindings.compute_resources import compute_resources
from ullage.kube.bindings.terms import BindingTerms
from ullage.kube.client.changes import Call, Create, Delete, Patch
from ullage.kube.client.connection import ApiConnection, connect
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import DEPLOYMENTS, GPU_BINDINGS, NAMESPACES, NODES, PODS
from ullage.kube.client.lease import Candidate
from ullage.kube.extender.app import make_app
from ullage.kube.front import Front
from ullage.kube.mirror.cards import RegisteredCards
from ullage.model.error import AlreadyExists, UllageError

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]
COMFY = f"{ROOT}/apps/comfyui"
BOUND = f"{COMFY}/compute-resources/bindings"
CHART = Path(__file__).parents[2] / "charts/ullage/templates/crds.yaml"
TERMS = BindingTerms(allocations="os-framework/app-gpu-allocations")


def definition() -> dict[str, Any]:
    """The definition of GPUBindings that the chart installs."""
    text = re.sub(r"^\{\{.*\}\}$", "", CHART.read_text(), flags=re.MULTILINE)
    found: dict[str, Any] = next(each for each in yaml.safe_load_all(text) if each)
    assert found["metadata"]["name"] == "gpubindings.gpu.bytetrade.io"
    return found


class Users:
    """Calls of users with tokens of the cluster."""

    def __init__(self, http: httpx2.AsyncClient, tokens: dict[str, str]) -> None:
        self._http, self._tokens = http, tokens

    async def call(self, user: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._tokens.get(user, 'forged')}"}
        content = None if body is None else json.dumps(body)
        answer = await self._http.request(method, path, content=content, headers=headers)
        return answer.status_code, answer.json() if answer.headers["content-type"] == "application/json" else None


@asynccontextmanager
async def bound(plane: ControlPlane, port: int) -> AsyncIterator[tuple[HttpKubeApi, Kubelets, Front, Users]]:
    async with connect(plane.kubeconfig) as client:
        api = HttpKubeApi(client, SHORT)
        with suppress(AlreadyExists):
            await api.write(Create(NAMESPACES, {"metadata": {"name": "os-framework"}}))
        await define(api, GPU_BINDINGS, definition())
        tokens = {name: await _token(client, name) for name in ("alice", "bob", "root")}
        candidate = Candidate(api, "ullage-bound", "kube-system")
        front = make_front(api, candidate, Rules(), FrontSettings(readers=[RegisteredCards()], bindings=TERMS))
        known = Tokens(api, Admins(("root",)), prefix="system:serviceaccount:default:")
        routes = Authentication(compute_resources(front.bindings.use, caller_of), known)
        async with (
            Kubelets(api) as kubelets,
            HamiNodes(api),
            at_work(front, deadline_s=600),
            served(make_app(front.extender), port),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(routes), base_url="http://u") as http,
        ):
            yield api, kubelets, front, Users(http, tokens)


async def _token(client: ApiConnection, name: str) -> str:
    """A token of a service account, as the API server signs it."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await client.request(Call("POST", accounts, {}, json.dumps({"metadata": {"name": name}}).encode()), 60)
    made = await client.request(Call("POST", f"{accounts}/{name}/token", {}, b'{"spec": {"audiences": []}}'), 60)
    assert made.status == 201, made.content
    return str(json.loads(made.content)["status"]["token"])


async def _join(api: HttpKubeApi, kubelets: Kubelets, machine: dict[str, Any]) -> None:
    await kubelets.join(machine["metadata"]["name"], **{"nvidia.com/gpu": "20"})
    metadata = {key: machine["metadata"][key] for key in ("annotations", "labels")}
    await api.write(Patch(NODES, machine["metadata"]["name"], {"metadata": metadata}))


def _deployment(owner: str) -> dict[str, Any]:
    body = a_deployment(owner=owner)
    labels = body["metadata"]["labels"]
    template = {"metadata": {"labels": labels}, "spec": body["spec"]["template"]["spec"]}
    return {
        "metadata": body["metadata"],
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def _pod(name: str, owner: str) -> dict[str, Any]:
    pod = pod_of(name, owner=owner)
    del pod["status"]
    pod["spec"]["schedulerName"] = "ullage"
    return pod


async def _cards(api: HttpKubeApi, name: str) -> list[str]:
    pod = await api.get(PODS, name, "default")
    return (pod.metadata.annotations or {}).get(CARDS, "").split(",") if pod.spec.node_name else []


async def _until_placed(api: HttpKubeApi, name: str) -> list[str]:
    clock = asyncio.get_running_loop().time
    end = clock() + 120
    while clock() < end:
        if found := await _cards(api, name):
            return found
        await asyncio.sleep(0.1)
    pod = await api.get(PODS, name, "default")
    raise AssertionError(f"{name} is not placed: {pod.document['status']}")


async def test_two_owners_of_one_application_are_kept_apart(request: pytest.FixtureRequest) -> None:
    plane, port = request.getfixturevalue("scheduled")
    async with bound(plane, port) as (api, kubelets, front, users):
        await _join(api, kubelets, a_machine("bound-a", {"GPU-1": ALONE, "GPU-2": SLICED}))
        for owner in ("alice", "bob"):
            await api.write(Create(DEPLOYMENTS, _deployment(owner), "default"))
        await until(lambda: len(front.bindings.store.informers[1].objects) == 2, "the workloads are heard of")
        assert (await users.call("mallory", "GET", f"{ROOT}/compute-resources"))[0] == 401

        def choose(card: str, mib: int = 0) -> dict[str, Any]:
            return {"computeBinding": [{"nodeName": "bound-a", "deviceId": card, "memory": mib << 20}]}

        status, reported = await users.call("alice", "POST", f"{COMFY}/resume", choose("GPU-1"))
        assert (status, reported["code"]) == (200, 200), reported
        status, reported = await users.call("bob", "POST", f"{COMFY}/resume", choose("GPU-1"))
        assert reported["data"]["Data"]["validation"]["code"] == "exclusive-already-bound:GPU-1"
        status, reported = await users.call("bob", "POST", f"{COMFY}/resume", choose("GPU-2", 8000))
        assert (status, reported["code"]) == (200, 200), reported
        for owner in ("alice", "bob"):
            found = await api.get(DEPLOYMENTS, f"comfyui-{owner}", "default")
            assert found.document["spec"]["replicas"] == 1  # the controller would make their pods now
            await api.write(Create(PODS, _pod(f"{owner}-1", owner), "default"))
        assert await _until_placed(api, "alice-1") == ["GPU-1"]
        assert await _until_placed(api, "bob-1") == ["GPU-2"]
        objects = front.bindings.store.objects.objects
        await until(lambda: len(objects) == 2, "both bindings are objects")
        shown = {each.document["spec"]["owner"]: each.document["spec"] for each in objects.values()}
        assert (shown["alice"]["uuid"], shown["bob"]["uuid"], shown["bob"]["memory"]) == ("GPU-1", "GPU-2", "8000")

        await api.write(Create(PODS, _pod("alice-2", "alice"), "default"))
        kubelets.may_end.clear()
        assert (await users.call("alice", "DELETE", BOUND))[0] == 200
        await api.write(Delete(PODS, "alice-1", "default"))
        status, reported = await users.call("bob", "POST", f"{COMFY}/resume", choose("GPU-1"))
        assert reported["code"] == 422  # its pod still runs
        assert await _cards(api, "alice-2") == []
        kubelets.may_end.set()
        await until(lambda: len(objects) == 1, "its row is gone with its pod", 60)
        status, reported = await users.call("bob", "POST", f"{COMFY}/resume", choose("GPU-1"))
        assert (status, reported["code"]) == (200, 200), reported
        assert await _cards(api, "alice-2") == []
        await _clear(api, "bound-a", ["alice-2", "bob-1"], ["alice", "bob"])


async def test_bindings_that_others_write_are_taken_as_they_are(request: pytest.FixtureRequest) -> None:
    plane, port = request.getfixturevalue("scheduled")
    async with bound(plane, port) as (api, kubelets, front, _):
        await _join(api, kubelets, a_machine("bound-b", {"GPU-3": ALONE, "GPU-4": SLICED}))
        await api.write(Create(GPU_BINDINGS, a_binding("x", "GPU-3", owner="carol", namespace="default")))
        await api.write(Create(GPU_BINDINGS, a_binding("y", "GPU-4", owner="dave", memory=8192)))
        with pytest.raises(UllageError):
            await api.write(Create(GPU_BINDINGS, a_binding("z", "GPU-4", memory="much")))
        for owner in ("carol", "dave"):
            await api.write(Create(PODS, _pod(f"{owner}-1", owner), "default"))
        assert await _until_placed(api, "carol-1") == ["GPU-3"]
        assert await _until_placed(api, "dave-1") == ["GPU-4"]
        held = front.cluster.held((await api.get(PODS, "dave-1", "default")).metadata.uid)
        assert held is not None
        assert held.charges[0].vram == 8192 << 20
        for name in ("x", "y"):
            await api.write(Delete(GPU_BINDINGS, name))
        await _clear(api, "bound-b", ["carol-1", "dave-1"], [])


async def _clear(api: HttpKubeApi, node: str, pods: list[str], owners: list[str]) -> None:
    await api.write(Delete(NODES, node))
    for name in pods:
        await api.write(Delete(PODS, name, "default", grace_s=0))
    for owner in owners:
        await api.write(Delete(DEPLOYMENTS, f"comfyui-{owner}", "default"))
