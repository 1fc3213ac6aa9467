"""Applications of a cluster for tests of bindings: their workloads, pods and cards, and a front that knows bindings."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from tests.kube.api_server import ApiServer
from tests.kube.at_work import at_work
from tests.kube.conftest import until
from tests.kube.hami_node import HamiNodes
from tests.kube.test_front import Running, a_node, a_pod
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.bindings.callers import Admins, Authentication, ProxyHeaders, caller_of
from ullage.kube.bindings.compute_resources import compute_resources
from ullage.kube.bindings.hosted_apps import REQUIREMENTS
from ullage.kube.bindings.nodes import TYPE_LABEL
from ullage.kube.bindings.terms import BindingTerms
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.lease import Candidate
from ullage.kube.extender.app import make_app
from ullage.kube.front import Front
from ullage.kube.mirror.cards import RegisteredCards
from ullage.wire.gpubinding import APP_LABEL, CONSUME_LABEL, OWNER_LABEL, SHARE_MODE

ROOT = "/app-service/v1"
RESOURCES = f"{ROOT}/compute-resources"
ALONE, SLICED, TURNS = "0", "1", "2"
MIB = 2**20
TERMS = BindingTerms()


def a_machine(name: str, cards: dict[str, str], mib: int = 16_000, kind: str = "nvidia") -> dict[str, Any]:
    """A node with cards by uuid, each with the number of its mode ("" for none)."""
    node = a_node(name, 10 * len(cards))
    register = [
        {"id": uuid, "index": at, "count": 10, "devmem": mib, "devcore": 100, "type": "RTX", "health": True}
        for at, uuid in enumerate(cards)
    ]
    notes = {f"{SHARE_MODE}{uuid}": mode for uuid, mode in cards.items() if mode}
    node["metadata"] |= {
        "annotations": {"hami.io/node-nvidia-register": json.dumps(register), **notes},
        "labels": {TYPE_LABEL: kind},
    }
    return node


def labels_of(app: str, owner: str) -> dict[str, str]:
    return {key: value for key, value in ((APP_LABEL, app), (OWNER_LABEL, owner)) if value}


def pod_of(name: str, app: str = "comfyui", owner: str = "alice", gpus: int = 1, **more: Any) -> dict[str, Any]:
    """A pod; `mib` is what it asks of each card, `consume` says how it takes cards, `labels` are more labels."""
    pod = a_pod(name, gpus)
    consume = {CONSUME_LABEL: more["consume"]} if "consume" in more else {}
    pod["metadata"]["labels"] = labels_of(app, owner) | consume | more.get("labels", {})
    pod["metadata"]["namespace"] = more.get("namespace", "default")
    if "mib" in more:
        pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = str(more["mib"])
    return pod


def a_binding(name: str, uuid: str, app: str = "comfyui", owner: str = "", namespace: str = "", **spec: Any) -> dict:
    said = {"owner": owner, "namespace": namespace} | {"podSelector": {}} | spec
    kept = {key: value for key, value in said.items() if value not in ("", None)}
    return {"metadata": {"name": name}, "spec": {"uuid": uuid, "appName": app, **kept}}


def a_deployment(app: str = "comfyui", owner: str = "alice", replicas: int = 0, mib: int = 8000) -> dict[str, Any]:
    asks = [{"mode": "nvidia", "requiredGpu": mib * MIB}]
    return {
        "metadata": {
            "name": f"{app}-{owner}",
            "namespace": "default",
            "labels": labels_of(app, owner),
            "annotations": {REQUIREMENTS: json.dumps(asks)},
        },
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}},
        "status": {"replicas": replicas, "readyReplicas": replicas},
    }


class Hosting(Running):
    """A front with bindings, and the calls of users."""

    def __init__(self, front: Front, http: httpx2.AsyncClient, server: ApiServer, users: httpx2.AsyncClient) -> None:
        super().__init__(front, http, server)
        self._users = users

    async def call(self, method: str, path: str, body: Any = None, user: str = "alice", **headers: str) -> Any:
        answer = await self._users.request(
            method, path, content=None if body is None else json.dumps(body), headers={"x-remote-user": user, **headers}
        )
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return answer.json()

    async def status(self, method: str, path: str, body: Any = None, user: str = "alice") -> tuple[int, str]:
        content = None if body is None else json.dumps(body)
        answer = await self._users.request(method, path, content=content, headers={"x-remote-user": user})
        return answer.status_code, answer.text

    async def offered(self, pod: dict[str, Any], *names: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.ask("filter", Pod=pod, NodeNames=list(names))
        assert found["Error"] == "", found
        return found

    async def heard(self, *names: str) -> None:
        """The front has heard of these bindings."""
        assert self.front.bindings is not None
        objects = self.front.bindings.store.objects.objects
        await until(lambda: all(("", name) in objects for name in names), f"{names} are heard of")

    def objects(self) -> dict[str, Any]:
        """The GPUBindings that are there."""
        found = self.server.do(lambda: self.server.store.at(self.server.store.revision))
        return {name: item for (plural, _, name), item in found.items() if plural == "gpubindings"}

    def replicas(self, name: str) -> int:
        found = self.server.do(lambda: self.server.rules.get(("deployments", "default", name)))
        return int(found["spec"]["replicas"])


@asynccontextmanager
async def hosting(
    server: ApiServer, api: HttpKubeApi, terms: BindingTerms = TERMS, **settings: Any
) -> AsyncIterator[Hosting]:
    candidate = Candidate(api, "ullage", "default")
    front = make_front(
        api, candidate, Rules(), FrontSettings(**{"readers": [RegisteredCards()], "bindings": terms, **settings})
    )
    assert front.bindings is not None
    routes = Authentication(compute_resources(front.bindings.use, caller_of), ProxyHeaders(Admins(("root",))))
    async with (
        HamiNodes(api),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(make_app(front.extender)), base_url="http://e") as http,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(routes), base_url="http://u") as users,
        at_work(front),
    ):
        yield Hosting(front, http, server, users)


def delete(server: ApiServer, plural: str, name: str, **options: Any) -> None:
    server.do(lambda: server.rules.delete((plural, "default" if plural == "pods" else "", name), options))
