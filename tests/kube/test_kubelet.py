"""Pods and nodes live and end as the API shows it, on either kind of server."""

import pytest

from tests.kube import bodies
from tests.kube.audience import running
from tests.kube.conftest import Cluster, until
from tests.kube.kubelet import HEARTBEATS, Kubelets
from ullage.kube.client.api import Selection
from ullage.kube.client.changes import Bind, Create, Delete
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import LEASES, NODES, PODS
from ullage.kube.client.objects import Pod

pytestmark = pytest.mark.anyio


async def test_pods_live_and_end(cluster: Cluster) -> None:
    api, namespace, node = cluster.api, cluster.namespace, f"{cluster.namespace}-n1"
    mirror: Informer[Pod] = Informer(api, PODS, Selection(namespace))

    def phase(name: str) -> str | None:
        pod = mirror.objects.get((namespace, name))
        return pod.status.phase if pod else None

    async with Kubelets(api, namespace) as kubelets, running(mirror):
        await kubelets.join(node, **{"nvidia.com/gpu": "8"})
        assert (await api.get(NODES, node)).ready
        for name in ("waits", "placed"):
            await api.write(Create(PODS, bodies.pod(name), namespace))
        pod = await api.get(PODS, "placed", namespace)
        await api.write(Bind(namespace, "placed", pod.metadata.uid, node))
        await until(lambda: phase("placed") == "Running", "it runs")
        kubelets.may_end.clear()
        await api.write(Delete(PODS, "placed", namespace))
        await until(lambda: mirror.objects[namespace, "placed"].terminating, "its deletion is requested")
        kubelets.may_end.set()
        await until(lambda: phase("placed") is None, "it is gone")
        assert phase("waits") == "Pending"
        await api.write(Create(PODS, bodies.pod("job", node=node), namespace))
        await until(lambda: phase("job") == "Running", "it runs")
        await kubelets.finish(namespace, "job", "Failed")
        await until(lambda: mirror.objects[namespace, "job"].finished, "it ended by itself")


async def test_a_pod_that_has_ended_never_starts_again(cluster: Cluster) -> None:
    api, namespace, node = cluster.api, cluster.namespace, f"{cluster.namespace}-n1"
    mirror: Informer[Pod] = Informer(api, PODS, Selection(namespace))
    async with Kubelets(api, namespace) as kubelets, running(mirror):
        await kubelets.join(node)
        kubelets.may_start.clear()
        await api.write(Create(PODS, bodies.pod("ended", node=node), namespace))
        await until(lambda: (namespace, "ended") in kubelets.starting, "it is about to start")
        await kubelets.finish(namespace, "ended")
        kubelets.may_start.set()
        await api.write(Create(PODS, bodies.pod("next", node=node), namespace))
        await until(lambda: _phase(mirror, namespace, "next") == "Running", "the next one runs")
        assert (await api.get(PODS, "ended", namespace)).finished


async def test_a_node_that_is_lost_neither_starts_nor_ends_pods(cluster: Cluster) -> None:
    api, namespace, node = cluster.api, cluster.namespace, f"{cluster.namespace}-n1"
    mirror: Informer[Pod] = Informer(api, PODS, Selection(namespace))
    async with Kubelets(api, namespace) as kubelets, running(mirror):
        await kubelets.join(node)
        await kubelets.say(node, ready=False)
        lost = await api.get(NODES, node)
        assert not lost.ready
        assert [taint.effect for taint in lost.spec.taints or ()] == ["NoExecute"]
        await api.write(Create(PODS, bodies.pod("stuck", node=node), namespace))
        await until(lambda: (namespace, "stuck") in mirror.objects, "it is there")
        await api.write(Delete(PODS, "stuck", namespace))
        await until(lambda: mirror.objects[namespace, "stuck"].terminating, "its deletion is requested")
        await api.write(Create(PODS, bodies.pod("elsewhere", node="another-node"), namespace))
        await until(lambda: _phase(mirror, namespace, "elsewhere") == "Running", "others run")
        assert _phase(mirror, namespace, "stuck") == "Pending"
        await kubelets.say(node, ready=True)
        await until(lambda: (namespace, "stuck") not in mirror.objects, "its node came back")


def _phase(mirror: Informer[Pod], namespace: str, name: str) -> str:
    pod = mirror.objects.get((namespace, name))
    return pod.status.phase if pod else ""


async def test_nodes_say_that_they_live(cluster: Cluster) -> None:
    kubelets = Kubelets(cluster.api, cluster.namespace)
    for time in ("2026-05-04T03:02:01.000000Z", "2026-05-04T03:02:11.000000Z"):
        await kubelets.beat(f"{cluster.namespace}-n1", time)
    lease = await cluster.api.get(LEASES, f"{cluster.namespace}-n1", HEARTBEATS)
    assert lease.spec.renew_time == "2026-05-04T03:02:11.000000Z"
