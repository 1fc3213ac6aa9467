"""The informer and the election on the API server in this process and on a real one."""

from contextlib import aclosing

import pytest

from tests.kube import bodies
from tests.kube.audience import Audience, running
from tests.kube.conftest import Cluster, until
from ullage.kube.client.api import Selection
from ullage.kube.client.changes import Bind, Create, Delete, Patch
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import LEASES, PODS
from ullage.kube.client.lease import Candidate

pytestmark = pytest.mark.anyio


async def states(cluster: Cluster) -> dict[str, tuple[str, str]]:
    found = {}
    async with aclosing(cluster.api.pages(PODS, Selection(cluster.namespace), 2)) as pages:
        async for page in pages:
            found |= {pod.metadata.name: pod.state for pod in page.items}
    return found


async def test_a_mirror_recovers_when_a_server_no_longer_knows_its_version(cluster: Cluster) -> None:
    api, namespace = cluster.api, cluster.namespace
    for name in ("a", "b", "c"):
        await api.write(Create(PODS, bodies.pod(name), namespace))
    informer = Informer(api, PODS, Selection(namespace))
    audience = Audience(informer)
    async with running(informer):
        await informer.wait_synced()
        pod = informer.objects[namespace, "a"]
        await api.write(Bind(namespace, "a", pod.metadata.uid, "n1", {"ullage.dev/gpu-ids": "GPU-1"}))
        await api.write(Delete(PODS, "b", namespace))
        now = await states(cluster)
        await until(lambda: audience.states() == now, "all events are delivered")
        assert informer.objects[namespace, "a"].spec.node_name == "n1"
        cluster.forget()
        await api.write(Patch(PODS, "c", {"metadata": {"labels": {"new": "yes"}}}, namespace))
        await api.write(Create(PODS, bodies.pod("b"), namespace))
        now = await states(cluster)
        await until(lambda: audience.states() == now, "what happened after that too", 60)
    assert set(now) == {"a", "b", "c"}


async def test_two_candidates_lead_one_after_the_other(cluster: Cluster) -> None:
    now = 100.0
    first, second = (Candidate(cluster.api, "leader", cluster.namespace, clock=lambda: now) for _ in range(2))
    for candidate in (first, second, first, second):
        await candidate.attempt()
    assert (first.epoch, second.epoch, second.last_error) == (1, None, None)
    now += 15
    await second.attempt()
    assert (first.epoch, second.epoch) == (None, 2)
    await first.attempt()
    assert first.holder == second.identity
    await second.release()
    assert second.last_error is None
    assert not (await cluster.api.get(LEASES, "leader", cluster.namespace)).spec.holder_identity
    await first.attempt()
    assert first.epoch == 3
    await cluster.api.write(Delete(LEASES, "leader", cluster.namespace))
    await first.attempt()
    assert first.epoch == 4
