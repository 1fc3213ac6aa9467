"""A second scheduler that places pods in HAMi's words: it locks a node, reads what is held there, chooses and binds.

HAMi's own chooses before it locks. A scheduler that decides under the lock, as this one does, never overfills a card.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Self

from tests.kube.audience import running
from tests.kube.hami_node import ALLOCATED, GPU, SPLIT, Document, HamiScheduler, unlock
from ullage.kube.client.api import KubeApi, Selection
from ullage.kube.client.informer import Added, Delta, Informer
from ullage.kube.client.kinds import PODS
from ullage.kube.client.objects import Pod

NAME = "hami-scheduler"
MIB, CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"
_AT_ONCE = 4


class SecondScheduler:
    """While entered, pods for the scheduler `hami-scheduler` are placed on nodes (their cards, and the MiB of each)."""

    def __init__(self, api: KubeApi, nodes: Mapping[str, Mapping[str, int]], chance: random.Random) -> None:
        self._api, self._nodes, self._chance, self._hami = api, nodes, chance, HamiScheduler(api)
        self._pods = Informer(api, PODS)
        self._pods.subscribe(self._on_pod)
        self._work: asyncio.Queue[Document] = asyncio.Queue()
        self.placed = 0

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        await self._stack.enter_async_context(running(self._pods))
        self._tasks = [asyncio.create_task(self._run()) for _ in range(_AT_ONCE)]
        for task in self._tasks:
            self._stack.push_async_callback(_end, task)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
        for task in self._tasks:
            if task.done():
                task.result()

    def _on_pod(self, delta: Delta[Pod]) -> None:
        if isinstance(delta, Added) and delta.new.spec.scheduler_name == NAME and not delta.new.spec.node_name:
            self._work.put_nowait(dict(delta.new.document))

    async def _run(self) -> None:
        while True:
            pod = await self._work.get()
            if await self._place(pod):
                self.placed += 1
            else:
                self._work.put_nowait(pod)
                await asyncio.sleep(0.1)  # until something may have changed

    async def _place(self, pod: Document) -> bool:
        """Bind a pod to a node with room by the cache, if it has room by the API under its lock."""
        meta = pod["metadata"]
        on = defaultdict[str, list[Pod]](list)
        for each in self._pods.objects.values():
            on[each.spec.node_name].append(each)
        for node in self._chance.sample(sorted(self._nodes), len(self._nodes)):
            if not self._choice(pod, node, on[node]) or not await self._hami.try_lock(pod, node):
                continue
            pages = self._api.pages(PODS, Selection(fields=f"spec.nodeName={node}"))
            written = self._choice(pod, node, [each async for page in pages for each in page.items])
            if written:
                await self._hami.choose(pod, node, written)
                await self._hami.bind(pod, node)
                return True
            await unlock(self._api, node, meta["namespace"], meta["name"])
        return False

    def _choice(self, pod: Document, node: str, there: Iterable[Pod]) -> str:
        """Return the devices for the only container of a pod; "" where a node lacks them."""
        (container,) = pod["spec"]["containers"]
        limits, cards = container["resources"]["limits"], self._nodes[node]
        users, mibs, cores = _held(there)
        found = []
        for card, size in cards.items():
            mib, percent = int(limits.get(MIB, size)), int(limits.get(CORES, 0 if MIB in limits else 100))
            alone = percent == 100 and users[card]
            if users[card] < SPLIT and mibs[card] + mib <= size and cores[card] + percent <= 100 and not alone:
                found.append(f"{card},NVIDIA,{mib},{percent}:")
        count = int(limits[GPU])
        return "".join(self._chance.sample(found, count)) + ";" if len(found) >= count else ""


def _held(pods: Iterable[Pod]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return the number of users, the MiB and the percent of cores of each card, as pods have them."""
    users, mibs, cores = Counter[str](), Counter[str](), Counter[str]()
    for pod in pods:
        written = (pod.metadata.annotations or {}).get(ALLOCATED, "")
        for device in () if pod.finished else filter(None, written.replace(";", ":").split(":")):
            card, _, mib, percent = device.split(",")
            users[card] += 1
            mibs[card] += int(mib)
            cores[card] += int(percent)
    return users, mibs, cores


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
