"""Ullage and a second scheduler place pods on the same cards, with HAMi's plugin: no card is ever above 100 %.

At every look the pods of the API are added up by an oracle that shares nothing with either of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kube.cards_oracle import CardsOracle, overfull
from tests.kube.control_plane import ControlPlane, binary
from tests.kube.hami_node import GPU, SPLIT, HamiNodes, hami_node
from tests.kube.second_scheduler import CORES, MIB, NAME, SecondScheduler
from tests.kube.stage import OWNERS, Stage, dies
from tests.kube.test_stories import Scheduled, cluster, play
from tests.ports import free_port
from ullage.kube.client.changes import Delete, Patch
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.client.objects import Pod

pytestmark = [pytest.mark.timeout(1800), pytest.mark.anyio]
__all__ = ["cluster", "play"]  # fixtures

SIZE_MIB = 16000
SCHEDULERS = ("ullage", NAME)
Document = dict[str, Any]


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduled]:
    """A real control plane whose scheduler leaves the amounts of cards to the extender."""
    binary("kube-scheduler")
    plane, port = ControlPlane(tmp_path_factory.mktemp("two")), free_port()
    try:
        managed = [{"name": name, "ignoredByScheduler": True} for name in (GPU, MIB, CORES)]
        plane.start_asking_scheduler(port, {"managedResources": managed, "httpTimeout": "30s"}, podMaxBackoffSeconds=2)
        yield Scheduled(plane, port)
    finally:
        plane.close()


def asking(name: str, scheduler: str, chance: random.Random) -> Document:
    """A pod that asks for one or two whole cards, or for parts of them."""
    limits = {GPU: chance.choice([1, 1, 1, 2])}
    if chance.random() < 0.75:
        limits |= {MIB: chance.randint(1, 7) * 1024, CORES: chance.randint(1, 5) * 10}
    amounts = {key: str(amount) for key, amount in limits.items()}
    container = {"name": "main", "image": "image", "resources": {"limits": amounts, "requests": amounts}}
    return {
        "metadata": {"name": name, "namespace": OWNERS[chance.randrange(len(OWNERS))]},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


class Shared:
    """Nodes with HAMi's plugin that both schedulers use."""

    def __init__(self, play: Stage, count: int, cards: int) -> None:
        self._play = play
        self.nodes = {
            f"n{number:03}": {f"GPU-{number:03}-{at}": SIZE_MIB for at in range(cards)} for number in range(count)
        }
        capacity = {card: mib for cards in self.nodes.values() for card, mib in cards.items()}
        self._oracle = CardsOracle(capacity, {card: node for node, cards in self.nodes.items() for card in cards})

        self.side_by_side = False

    async def join(self) -> None:
        for name, cards in self.nodes.items():
            node = hami_node(name, *cards, mib=SIZE_MIB)
            await self._play.kubelets.join(name, **node["status"]["allocatable"])
            annotations = node["metadata"]["annotations"]
            await self._play.api.write(Patch(NODES, name, {"metadata": {"annotations": annotations}}))

    async def look(self) -> list[Document]:
        """Return the pods, of which none are together above a card."""
        pods = await self._play.pods()
        self.side_by_side |= len({pod["spec"]["schedulerName"] for pod in pods if _runs(pod)}) == len(SCHEDULERS)
        assert overfull(self._oracle, pods, SPLIT) == {}, self._play.log()
        return pods

    async def placed(self, second: SecondScheduler, new: int, chance: random.Random) -> None:
        """Wait until every pod has been placed. While that does not go on, pods that run end, in either way."""
        before, since, loop = set[str](), 0, asyncio.get_running_loop()
        end = loop.time() + 120 + 2 * new
        while waiting := _waiting(pods := await self.look()):
            assert loop.time() < end, f"{waiting} wait; {self._play.log()}"
            second.check()
            since = since + 1 if waiting.keys() == before else 0
            before = set(waiting)
            if since >= 3:
                await self.end(pods, chance, share=0.2)
            await asyncio.sleep(0.5)

    async def end(self, pods: list[Document], chance: random.Random, *, share: float) -> None:
        """Some of the pods that run end by themselves, or are deleted."""
        live = [pod for pod in pods if _runs(pod)]
        ended = chance.sample(live, max(1, int(len(live) * share))) if live else []
        for meta in (pod["metadata"] for pod in ended):
            if chance.random() < 0.5:
                await self._play.kubelets.finish(meta["namespace"], meta["name"])
            else:
                await self._play.api.write(Delete(PODS, meta["name"], meta["namespace"], grace_s=0))


def _is_bound(pod: Pod, prefix: str) -> bool:
    """Whether a pod of this step is bound by Ullage."""
    ours = pod.spec.scheduler_name == SCHEDULERS[0]
    return ours and pod.metadata.name.startswith(prefix) and bool(pod.spec.node_name)


def _waiting(pods: list[Document]) -> dict[str, str]:
    """What is said of pods without a node."""
    without = (pod for pod in pods if not pod["spec"].get("nodeName"))
    return {
        pod["metadata"]["name"]: " ".join(each.get("message", "") for each in pod["status"].get("conditions", ()))
        for pod in without
    }


def _runs(pod: Document) -> bool:
    """Whether a plugin has handed out the devices of a pod, which has not ended."""
    notes, phase = pod["metadata"].get("annotations", {}), pod["status"].get("phase")
    return notes.get("hami.io/bind-phase") == "success" and phase not in ("Succeeded", "Failed")


@asynccontextmanager
async def both(play: Stage, shared: Shared, chance: random.Random) -> AsyncIterator[SecondScheduler]:
    await shared.join()
    async with HamiNodes(play.api), SecondScheduler(play.api, shared.nodes, chance) as second:
        yield second


async def come_and_go(play: Stage, *, count: int, steps: int, nodes: int, seed: int) -> None:
    chance, shared = random.Random(seed), Shared(play, nodes, cards=4)
    async with both(play, shared, chance) as second:
        front = await play.front()
        await asyncio.to_thread(front.wait_ready)
        for step in range(steps):
            new = [asking(f"p{step}-{number}", SCHEDULERS[number % 2], chance) for number in range(count // steps)]
            submitting = asyncio.create_task(play.submit(new))
            if step == steps // 2:
                await play.until(
                    lambda pods, step=step: any(_is_bound(pod, f"p{step}-") for pod in pods), "one is bound"
                )
                front.kill_now()
                await dies(front)
                await shared.look()
                await asyncio.to_thread(front.start)
                await asyncio.to_thread(front.wait_ready)
            await submitting
            await shared.placed(second, len(new), chance)
            await shared.end(await shared.look(), chance, share=0.5)
        assert second.placed == count // 2
        assert shared.side_by_side, "pods of both ran at a time"


async def test_two_schedulers_share_nodes_while_one_is_killed(play: Stage) -> None:
    await come_and_go(play, count=60, steps=3, nodes=4, seed=1)


@pytest.mark.long
async def test_two_schedulers_place_two_thousand_pods(play: Stage) -> None:
    await come_and_go(play, count=2000 if play.is_real else 500, steps=10, nodes=40, seed=2)
