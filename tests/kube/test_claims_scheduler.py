"""kube-scheduler follows what was allocated: with a real control plane, whose scheduler has a mind of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("cel_expr_python", reason="cel-expr-python is in the lock, and not installed here")

from tests.kube.at_work import at_work
from tests.kube.claims import a_claim, a_class, cards, claiming, wants
from tests.kube.conftest import SHORT, until
from tests.kube.control_plane import ControlPlane, binary
from tests.kube.kubelet import Kubelets
from tests.kube.test_claims_crashes import Mortal
from ullage.bootstrap.kube_front import make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.changes import Create, Delete, Patch
from ullage.kube.client.connection import connect
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from ullage.kube.client.lease import Candidate
from ullage.kube.client.objects import Object, Pod
from ullage.kube.front import Front

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]
RIGHTS = "rbac.authorization.k8s.io"
CHART = Path(__file__).parents[2] / "charts/ullage"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose scheduler is asked for by the name of ours, and has no extender."""
    binary("kube-scheduler")
    plane = ControlPlane(tmp_path_factory.mktemp("claims"))
    try:
        plane.start_scheduler(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "leaderElection": {"leaderElect": False},
                "profiles": [{"schedulerName": "ullage"}, {"schedulerName": "default-scheduler"}],
            }
        )
        yield plane
    finally:
        plane.close()


class Seen:
    """What the API has, as an informer of the test sees it."""

    def __init__(self, api: HttpKubeApi) -> None:
        self.pods, self.claims = Informer(api, PODS), Informer(api, RESOURCE_CLAIMS)

    def node(self, pod: str) -> str:
        found = self.pods.objects.get(("default", pod))
        return "" if found is None else found.spec.node_name

    def status(self, claim: str) -> dict[str, Any]:
        found = self.claims.objects.get(("default", claim))
        return {} if found is None else found.document.get("status", {})

    def device(self, claim: str) -> str:
        results = (self.status(claim).get("allocation") or {}).get("devices", {}).get("results", [{}])
        return "/".join(results[0].get(word, "") for word in ("pool", "device"))


@asynccontextmanager
async def looking(plane: ControlPlane) -> AsyncIterator[tuple[HttpKubeApi, Seen]]:
    async with connect(plane.kubeconfig) as client:
        api = HttpKubeApi(client, SHORT)
        seen = Seen(api)
        work = [asyncio.create_task(each.run()) for each in (seen.pods, seen.claims)]
        try:
            async with Kubelets(api) as kubelets:
                await clean(api)
                for node, count in (("a", 2), ("b", 1)):
                    await kubelets.join(node)
                    await api.write(Create(RESOURCE_SLICES, cards(node, count)))
                await api.write(Create(DEVICE_CLASSES, a_class()))
                yield api, seen
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)


async def clean(api: HttpKubeApi) -> None:
    """Leave nothing of an earlier test."""
    for kind in (PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES, NODES):
        async for page in api.pages(kind):
            for item in page.items:
                await remove(api, kind, item)


async def remove(api: HttpKubeApi, kind: Any, item: Object) -> None:
    namespace, name = item.key
    if kind is RESOURCE_CLAIMS:
        status = {"status": {"reservedFor": None, "allocation": None}}
        await api.write(Patch(kind, name, status, namespace, subresource="status"))
        await api.write(Patch(kind, name, {"metadata": {"finalizers": None}}, namespace))
    await api.write(Delete(kind, name, namespace, grace_s=0 if kind is PODS else None))


@asynccontextmanager
async def leading(api: Any, errors: list[Any] | None = None) -> AsyncIterator[Front]:
    said = [] if errors is None else errors
    front = make_front(
        api, Candidate(api, "ullage", "kube-system"), Rules(), on_error=lambda *reported: said.append(reported)
    )
    async with at_work(front):
        yield front


async def test_the_scheduler_binds_to_the_node_and_keeps_the_devices_that_were_chosen(plane: ControlPlane):
    async with looking(plane) as (api, seen), leading(api):
        await api.write(Create(RESOURCE_CLAIMS, a_claim("one"), "default"))
        await api.write(Create(PODS, claiming("p", "one"), "default"))
        await until(lambda: bool(seen.node("p")), "the pod is bound", 60)
        pod: Pod = seen.pods.objects["default", "p"]
        assert seen.status("one")["reservedFor"] == [{"resource": "pods", "name": "p", "uid": pod.metadata.uid}]
        assert seen.device("one").startswith(f"{seen.node('p')}/")


async def test_devices_are_never_shared_also_with_pods_that_the_scheduler_serves_alone(plane: ControlPlane):
    """Three cards; pods of ours and of others, one after the other: each has a card of its own, and one waits."""
    async with looking(plane) as (api, seen), leading(api) as front:
        names = ["p0", "q0", "p1", "p2"]
        for name in names:
            await api.write(Create(RESOURCE_CLAIMS, a_claim(name), "default"))
            theirs = {"schedulerName": "default-scheduler", "schedulingGates": []} if name[0] == "q" else {}
            await api.write(Create(PODS, claiming(name, name, **theirs), "default"))
            if name != "p2":
                await until(lambda name=name: bool(seen.node(name)), f"{name} is bound", 60)
        given = [seen.device(name) for name in names[:3]]
        assert sorted(given) == ["a/gpu-0", "a/gpu-1", "b/gpu-0"]
        assert all(seen.device(name).startswith(f"{seen.node(name)}/") for name in names[:3])
        front.mirror.settle()
        books = front.cluster.allocator.fleet.ledger.values()
        assert sorted(card for held in books for card in held.gpus) == ["GPU-a-0", "GPU-a-1", "GPU-b-0"]
        assert seen.device("p2") == "/"
        await api.write(Delete(PODS, "q0", "default", grace_s=0))
        await remove(api, RESOURCE_CLAIMS, seen.claims.objects["default", "q0"])  # as a controller manager would
        await until(lambda: bool(seen.node("p2")), "p2 is bound", 60)
        assert seen.device("p2") == given[1]


async def test_a_claim_of_several_cards_with_a_constraint_is_followed(plane: ControlPlane):
    alike = [{"requests": ["gpu"], "matchAttribute": "gpu.nvidia.com/productName"}]
    async with looking(plane) as (api, seen), leading(api):
        await api.write(Create(RESOURCE_CLAIMS, a_claim("two", wants(count=2), constraints=alike), "default"))
        await api.write(Create(PODS, claiming("p", "two"), "default"))
        await until(lambda: bool(seen.node("p")), "the pod is bound", 60)
        assert seen.node("p") == "a"
        assert len(seen.status("two")["allocation"]["devices"]["results"]) == 2


async def usual(api: HttpKubeApi, seen: Seen) -> str:
    """The node that a pod with a claim goes to while nobody else is there."""
    await api.write(Create(RESOURCE_CLAIMS, a_claim("probe"), "default"))
    await api.write(Create(PODS, claiming("probe", "probe"), "default"))
    await until(lambda: bool(seen.node("probe")), "the pod is bound", 60)
    node = seen.node("probe")
    await api.write(Delete(PODS, "probe", "default", grace_s=0))
    await remove(api, RESOURCE_CLAIMS, seen.claims.objects["default", "probe"])
    return node


async def beside(api: HttpKubeApi, seen: Seen, node: str, **container: Any) -> list[str]:
    """Nodes of devices that a claim had, one after the other, whose pod asks for the same as one on that node."""
    devices: list[str] = []
    seen.claims.subscribe(lambda _: devices.append(seen.device("one").partition("/")[0]))
    main = {"name": "c", "image": "x", **container}
    there = {"nodeName": node, "schedulingGates": [], "containers": [main]}
    await api.write(Create(PODS, claiming("there", **there), "default"))
    await until(lambda: seen.node("there") == node, "the other pod is there")
    asking = {**main, "resources": {**main.get("resources", {}), "claims": [{"name": "c0"}]}}
    await api.write(Create(RESOURCE_CLAIMS, a_claim("one"), "default"))
    await api.write(Create(PODS, claiming("p", "one", containers=[asking]), "default"))
    await until(lambda: bool(seen.node("p")), "the pod is bound", 60)
    assert seen.node("p") != node
    return [node for node in dict.fromkeys(devices) if node]


async def test_a_node_whose_cpu_pods_without_cards_have_is_not_chosen(plane: ControlPlane):
    async with looking(plane) as (api, seen), leading(api):
        node = await usual(api, seen)
        chosen = await beside(api, seen, node, resources={"requests": {"cpu": "40"}})
        assert chosen == [seen.node("p")], "kube-scheduler had nothing to give up"


async def test_a_node_that_the_scheduler_refuses_is_given_up_by_it_and_the_books_follow(plane: ControlPlane):
    """Ports of hosts are not in our books: the scheduler gives the claim back, and makes its own."""
    async with looking(plane) as (api, seen), leading(api) as front:
        node = await usual(api, seen)
        chosen = await beside(api, seen, node, ports=[{"containerPort": 80, "hostPort": 8080}])
        assert chosen == [node, seen.node("p")]

        def books() -> list[str]:
            front.mirror.settle()
            return [card for held in front.cluster.allocator.fleet.ledger.values() for card in held.gpus]

        await until(lambda: books() == [f"GPU-{seen.node('p')}-0"], "the books follow")


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
async def test_a_restart_in_the_middle_completes_it(plane: ControlPlane, at: int):
    async with looking(plane) as (api, seen):
        for name in ("one", "two"):
            await api.write(Create(RESOURCE_CLAIMS, a_claim(name), "default"))
        await api.write(Create(PODS, claiming("p", "one", "two"), "default"))
        mortal = Mortal(api, at, after=at % 2 == 0)
        async with leading(mortal):
            await asyncio.wait_for(mortal.dead.wait(), 60)
        async with leading(api):
            await until(lambda: bool(seen.node("p")), "the pod is bound", 60)
            assert seen.node("p") == "a"
            assert {seen.device("one"), seen.device("two")} == {"a/gpu-0", "a/gpu-1"}
            for name in ("one", "two"):
                assert [user["name"] for user in seen.status(name)["reservedFor"]] == ["p"]


async def test_the_rights_that_the_chart_gives_are_enough(plane: ControlPlane):
    """Allocations are written with a right of their own since 1.36; and nothing that is needed is missing."""
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is in the lock, and not installed here")
    rendered = helm.Chart.load(CHART).render({}, name="ullage", namespace="kube-system")
    documents = [each for text in rendered.values() for each in yaml.safe_load_all(text) if each]
    user = {"kind": "User", "name": "front", "apiGroup": RIGHTS}
    async with looking(plane) as (api, seen):
        for role in documents:
            if role["kind"] not in ("ClusterRole", "Role") or role["metadata"]["name"] != "ullage":
                continue
            name, namespace = role["kind"], role["metadata"].get("namespace", "")
            kind = Kind(RIGHTS, "v1", name, f"{name.lower()}s", Object, bool(namespace))
            binding = Kind(RIGHTS, "v1", f"{name}Binding", f"{name.lower()}bindings", Object, bool(namespace))
            await api.write(Create(kind, role, namespace))
            ref = {"apiGroup": RIGHTS, "kind": name, "name": "ullage"}
            body = {"metadata": {"name": "ullage"}, "roleRef": ref, "subjects": [user]}
            await api.write(Create(binding, body, namespace))
        async with connect(plane.user("front", "people")) as client:
            errors: list[Any] = []
            async with leading(HttpKubeApi(client, SHORT), errors):
                await api.write(Create(RESOURCE_CLAIMS, a_claim("one"), "default"))
                await api.write(Create(PODS, claiming("p", "one"), "default"))
                await until(lambda: bool(seen.node("p")), f"the pod is bound: {errors}", 60)
                await api.write(Create(PODS, claiming("q", "one", nodeSelector={"no": "such"}), "default"))
                await api.write(Delete(PODS, "p", "default", grace_s=0))
            assert errors == []


async def test_a_pod_that_is_deleted_before_it_is_bound_leaves_its_claim_free(plane: ControlPlane):
    async with looking(plane) as (api, seen), leading(api):
        await api.write(Create(RESOURCE_CLAIMS, a_claim("one"), "default"))
        big = claiming("p", "one")
        big["spec"]["nodeSelector"] = {"no": "such"}
        big["spec"]["schedulingGates"].append({"name": "example.com/later"})
        await api.write(Create(PODS, big, "default"))
        await until(lambda: ("default", "p") in seen.pods.objects, "it is there")
        await api.write(Delete(PODS, "p", "default", grace_s=0))
        again = claiming("p", "one")
        await api.write(Create(PODS, again, "default"))
        await until(lambda: bool(seen.node("p")), "the next of that name is bound", 60)
        uid = seen.pods.objects["default", "p"].metadata.uid
        assert [user["uid"] for user in seen.status("one")["reservedFor"]] == [uid]
