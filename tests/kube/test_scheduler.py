"""kube-scheduler itself asks Ullage about every pod: the whole way, with real programs only."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kube.at_work import at_work
from tests.kube.audience import running
from tests.kube.conftest import SHORT, until
from tests.kube.control_plane import ControlPlane, binary
from tests.kube.kubelet import Kubelets
from tests.kube.listening import served
from tests.ports import free_port
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.api import Selection
from ullage.kube.client.changes import Create, Delete
from ullage.kube.client.connection import connect
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.client.lease import Candidate
from ullage.kube.client.objects import Pod
from ullage.kube.extender.app import make_app
from ullage.kube.front import Front
from ullage.model.queue import Queue

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]
GPU = "nvidia.com/gpu"
CARDS = "ullage.io/gpu-ids"


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, int]]:
    """A control plane whose scheduler asks an extender, and the port on which that is expected."""
    binary("kube-scheduler")
    plane, port = ControlPlane(tmp_path_factory.mktemp("scheduled")), free_port()
    try:
        plane.start_asking_scheduler(port, {"managedResources": [{"name": GPU, "ignoredByScheduler": True}]})
        yield plane, port
    finally:
        plane.close()


@asynccontextmanager
async def answering(api: HttpKubeApi, port: int, *queues: Queue) -> AsyncIterator[Front]:
    """A front at work, with its extender on a socket."""
    front = make_front(api, Candidate(api, "ullage", "kube-system"), Rules(), FrontSettings(queues=queues))
    async with at_work(front, deadline_s=600), served(make_app(front.extender), port):
        yield front


def a_pod(name: str, gpus: int) -> dict[str, Any]:
    limits = {GPU: str(gpus)}
    container = {"name": "main", "image": "image", "resources": {"limits": limits, "requests": limits}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": "ullage", "containers": [container]}}


def why(pod: Pod) -> str:
    """What kube-scheduler says of a pod that it could not place."""
    conditions = pod.document["status"].get("conditions", ())
    return " ".join(found.get("message", "") for found in conditions if found["type"] == "PodScheduled")


class Watched:
    """The pods of the test; at no moment do two that live hold one card."""

    def __init__(self, api: HttpKubeApi) -> None:
        self.mirror: Informer[Pod] = Informer(api, PODS, Selection("default"))
        self.mirror.subscribe(self._look)

    def live(self) -> list[Pod]:
        return [pod for pod in self.mirror.objects.values() if pod.spec.node_name and not pod.finished]

    def cards(self) -> list[str]:
        return [card for pod in self.live() for card in (pod.metadata.annotations or {})[CARDS].split(",")]

    def phases(self) -> Counter[str]:
        return Counter(pod.status.phase for pod in self.mirror.objects.values())

    def reasons(self) -> set[str]:
        return {why(pod) for pod in self.mirror.objects.values() if not pod.spec.node_name}

    def _look(self, _: object) -> None:
        held = self.cards()
        assert len(held) == len(set(held)), held


@asynccontextmanager
async def machines(plane: ControlPlane, **gpus: int) -> AsyncIterator[tuple[HttpKubeApi, Kubelets, Watched]]:
    """Nodes with that many cards, and what is seen of their pods; all of it is gone afterwards."""
    async with connect(plane.kubeconfig) as client:
        api = HttpKubeApi(client, SHORT)
        watched = Watched(api)
        async with Kubelets(api) as kubelets, running(watched.mirror):
            for name, count in gpus.items():
                await kubelets.join(name, **{GPU: str(count)})
            yield api, kubelets, watched
            for name in gpus:
                await api.write(Delete(NODES, name))
            for pod in list(watched.mirror.objects.values()):
                await api.write(Delete(PODS, pod.metadata.name, "default", grace_s=0))


async def create(api: HttpKubeApi, *pods: dict[str, Any]) -> None:
    await asyncio.gather(*(api.write(Create(PODS, pod, "default")) for pod in pods))


async def test_every_pod_gets_cards_of_its_own_and_the_rest_has_a_reason(scheduled: tuple[ControlPlane, int]) -> None:
    plane, port = scheduled
    async with machines(plane, a=4, b=2, c=1) as (api, _, watched), answering(api, port):
        await create(api, a_pod("four", 4))
        await until(lambda: watched.phases() == {"Running": 1}, "the large one runs", 60)
        assert watched.live()[0].spec.node_name == "a"
        await create(api, *(a_pod(f"one-{number}", 1) for number in range(3)))
        await until(lambda: watched.phases() == {"Running": 4}, "all run", 60)
        assert len(watched.cards()) == 7
        await create(api, a_pod("more", 1))
        await until(
            lambda: any("0/3 nodes are available" in reason for reason in watched.reasons()), "the reason is shown", 60
        )
        await api.write(Delete(PODS, "four", "default"))
        await until(lambda: watched.phases() == {"Running": 4}, "what was freed is used", 400)


async def test_a_queue_is_worked_off_while_the_extender_starts_again(scheduled: tuple[ControlPlane, int]) -> None:
    plane, port = scheduled
    async with machines(plane, d=2, e=2) as (api, kubelets, watched):
        await create(api, *(a_pod(f"job-{number}", 1) for number in range(12)))
        for done in (4, 8, 12):
            async with answering(api, port):
                await until(lambda: watched.phases()["Running"] == 4, "every card is used", 400)
                assert len(watched.cards()) == 4
            for pod in watched.live():
                await kubelets.finish("default", pod.metadata.name)
            await until(lambda done=done: watched.phases()["Succeeded"] == done, "they are done", 60)
