"""Where a story plays: an API server, somebody who schedules, kubelets, and Ullage as processes that can be killed.

A story is written once and plays twice: before the API server and the small scheduler of these tests, and before a
real kube-apiserver and kube-scheduler where they are installed. What is true is read from the API alone.
"""

import asyncio
import itertools
import json
import os
import re
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.kube.api_server import ApiServer, Canned
from tests.kube.audience import running
from tests.kube.conftest import until, write_kubeconfig
from tests.kube.control_plane import ControlPlane
from tests.kube.kubelet import Kubelets
from tests.kube.live_front import BriefFront
from tests.kube.service import Service
from tests.kube.small_scheduler import GPU, SmallScheduler
from ullage.kube.client.api import KubeApi
from ullage.kube.client.changes import Create, Delete
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import NAMESPACES, NODES, PODS, Kind
from ullage.kube.client.objects import Object, Pod
from ullage.model.error import AlreadyExists

OWNERS = ("team-a", "team-b", "team-c")
PRIORITY = 1_000
"""Above that of a pod without a class."""

CLASSES = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", Object, namespaced=False)
_WHOLE = 1_000_000
"""Millionths of a card."""

_NUMBERS = itertools.count(1)
Document = dict[str, Any]
Holdings = set[tuple[str, str, str]]
"""Namespace and name of a pod, and a card that it holds."""


class Front(BriefFront):
    """`ullage kube` that others know by its name."""

    name = ""

    def kill_now(self) -> None:
        """End without notice, as on a machine that runs out of memory."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)

    def stop(self, *, stopped: bool) -> None:
        """Freeze it, or let it go on."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP if stopped else signal.SIGCONT)

    @property
    def dead(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    async def known(self) -> Holdings:
        """Who holds what, as it says itself."""
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            page = (await http.get(f"{self.url('metrics')}/metrics")).text
        lines = re.findall(r"^hami_vgpu_core_allocated_ratio\{(.*)\}", page, re.MULTILINE)
        found = [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in lines]
        return {(each["namespace"], each["pod"], each["device_uuid"]) for each in found}


def a_part(name: str, percent: int, owner: str = OWNERS[0], **spec: Any) -> Document:
    """A pod that asks for that much of the compute of one card."""
    words = {"ullage.io/gpu-count": "1", "ullage.io/compute-percent-request": str(percent)}
    return _pod(name, owner, {}, words, spec)


def whole(name: str, cards: int = 1, owner: str = OWNERS[0], **spec: Any) -> Document:
    """A pod that asks for whole cards."""
    return _pod(name, owner, {GPU: str(cards)}, {}, spec)


def _pod(name: str, owner: str, limits: dict[str, str], words: dict[str, str], spec: Document) -> Document:
    container = {"name": "main", "image": "image", "resources": {"limits": limits, "requests": limits}}
    metadata = {"name": name, "namespace": owner, "annotations": words}
    return {"metadata": metadata, "spec": {"schedulerName": "ullage", "containers": [container]} | spec}


@dataclass
class Stage:
    """One story's cluster. `is_real` distinguishes the two where needed."""

    folder: Path
    api: KubeApi
    kubelets: Kubelets
    server: ApiServer | ControlPlane
    seen: Informer[Pod]
    fronts: list[Front]

    @property
    def is_real(self) -> bool:
        return isinstance(self.server, ControlPlane)

    # --- what there is ---

    async def machines(self, count: int, cards: int) -> None:
        """So many machines with so many cards each."""
        names = [f"n{number:03}" for number in range(count)]
        for some in _batched(names):
            await asyncio.gather(*(self.kubelets.join(name, **{GPU: str(cards)}) for name in some))

    async def submit(self, pods: Iterable[Document]) -> None:
        for some in _batched(list(pods)):
            await asyncio.gather(*(self._create(pod) for pod in some))

    async def _create(self, pod: Document) -> None:
        await self.api.write(Create(PODS, pod, pod["metadata"]["namespace"]))

    def urgent(self, pod: Document) -> Document:
        """The pod, before all others."""
        own = {"priorityClassName": "urgent"} if self.is_real else {"priority": PRIORITY, "priorityClassName": "urgent"}
        return {**pod, "spec": pod["spec"] | own}

    async def front(self, settings: str = "") -> Front:
        """One more process of Ullage; it serves, and leads if nobody else does."""
        name = f"ullage-{next(_NUMBERS)}"
        folder = self.folder / name
        folder.mkdir()
        made = Front(folder, self._kubeconfig(folder, name), settings)
        made.name = name
        self.fronts.append(made)
        await asyncio.to_thread(made.start)
        return made

    def _kubeconfig(self, folder: Path, name: str) -> Path:
        if isinstance(self.server, ControlPlane):
            return self.server.user(name, "system:masters")
        return write_kubeconfig(folder, self.server.url, name)

    async def restart_api(self) -> None:
        """The API server ends and starts again; no watch goes on."""
        if isinstance(self.server, ControlPlane):
            await asyncio.to_thread(self.server.forget)
            return
        await asyncio.to_thread(self.server.stop)
        self.server.forget()
        await asyncio.to_thread(self.server.start)

    # --- what is true ---

    async def pods(self) -> list[Document]:
        found: list[Document] = []
        async for page in self.api.pages(PODS):
            found += [dict(pod.document) for pod in page.items if pod.metadata.namespace in OWNERS]
        return found

    async def holdings(self) -> Holdings:
        """Who holds what, as the annotations of pods say; no card is held more than once over."""
        found: Holdings = set()
        held: defaultdict[str, int] = defaultdict(int)
        for pod in await self.pods():
            meta, notes = pod["metadata"], pod["metadata"].get("annotations", {})
            if not pod["spec"].get("nodeName"):
                assert "ullage.io/gpu-ids" not in notes, meta["name"]
                continue
            cards = notes["ullage.io/gpu-ids"].split(",")
            charges = json.loads(notes["ullage.io/allocation"]).get("cards") or [{"compute": _WHOLE}] * len(cards)
            assert len(set(cards)) == len(cards) == len(charges)
            for card, charge in zip(cards, charges, strict=True):
                assert card.startswith(f"{pod['spec']['nodeName']}/"), (meta["name"], card)
                held[card] += charge["compute"]
                found.add((meta["namespace"], meta["name"], card))
        assert all(part <= _WHOLE for part in held.values()), {c: part for c, part in held.items() if part > _WHOLE}
        return found

    async def placed(self, count: int, deadline_s: float = 120.0) -> Holdings:
        """Wait until so many pods have a node; who holds what then."""
        await self.until(lambda pods: sum(bool(pod.spec.node_name) for pod in pods) >= count, f"{count}", deadline_s)
        return await self.holdings()

    async def until(self, condition: Callable[[list[Pod]], bool], what: str, deadline_s: float = 120.0) -> None:
        """Wait for an event on the pods."""
        clock = asyncio.get_running_loop().time
        end = clock() + deadline_s
        while not condition(pods := list(self.seen.objects.values())):
            assert clock() < end, f"not within {deadline_s:g} s: {what}; {_standing(pods)}\n{self.log()}"
            await asyncio.sleep(0.05)

    async def bound(self, name: str) -> Holdings:
        """Wait until a pod has a node; who holds what then."""
        await self.until(lambda pods: any(pod.metadata.name == name and pod.spec.node_name for pod in pods), name)
        return await self.holdings()

    async def node_of(self, name: str) -> str:
        (pod,) = (pod for pod in await self.pods() if pod["metadata"]["name"] == name)
        return str(pod["spec"].get("nodeName", ""))

    def writes_of(self, front: Front) -> list[str]:
        """Paths of its writes that were carried out. One that a frozen leader had begun may be refused later."""
        reported = self.server.writes() if isinstance(self.server, ControlPlane) else self.server.writes
        return [path for who, path in reported if who == front.name]

    def log(self) -> str:
        return "\n".join(front.log_text()[-2000:] for front in self.fronts)

    # --- when it is killed ---

    def at_write(self, path_end: str, then: Callable[[], None], *, carried_out: bool) -> None:
        """Before the next write there is answered, something happens; it is carried out first, or not at all."""
        assert isinstance(self.server, ApiServer)
        method = "POST" if path_end == "/binding" else "PUT"
        self.server.canned.append(Canned(method, path_end, 500, carried_out=carried_out, then=then))


@asynccontextmanager
async def stage(server: ApiServer | ControlPlane, api: KubeApi, folder: Path, port: int) -> AsyncIterator[Stage]:
    """A cluster with kubelets and a scheduler, which asks the extender at `port` (0: any); all gone afterwards."""
    for owner in OWNERS:
        with suppress(AlreadyExists):
            await api.write(Create(NAMESPACES, {"metadata": {"name": owner}}))
    async with AsyncExitStack() as stack:
        kubelets = await stack.enter_async_context(Kubelets(api))
        found = Stage(folder, api, kubelets, server, Informer(api, PODS), [])
        await stack.enter_async_context(running(found.seen))
        service = await stack.enter_async_context(Service(lambda: found.fronts, port))
        if isinstance(server, ApiServer):
            await stack.enter_async_context(SmallScheduler(api, service.url))
        try:
            yield found
        finally:
            with ExitStack() as ends:
                for front in found.fronts:
                    ends.callback(front.close)
            if found.is_real:
                await _clean(api)


def _standing(pods: list[Pod]) -> str:
    """How many have a node, and what is said of some that have none."""
    without = [pod for pod in pods if not pod.spec.node_name]
    said = [
        f"{pod.metadata.name}: {pod.metadata.annotations} {pod.document['spec'].get('schedulingGates', '')} "
        f"{pod.document.get('status', {}).get('conditions', '')}"
        for pod in without[:5]
    ]
    return "\n".join([f"{len(pods) - len(without)} of {len(pods)} are bound", *said])


async def _clean(api: KubeApi) -> None:
    """Delete all there is, until nothing is left: the next story begins with nothing."""
    clock = asyncio.get_running_loop().time
    for kind, grace_s in ((PODS, 0), (NODES, None)):
        end = clock() + 120
        while there := [each async for page in api.pages(kind) for each in page.items]:
            assert clock() < end, f"{len(there)} of {kind.plural} stay"
            for some in _batched(there):
                gone = (Delete(kind, each.metadata.name, each.metadata.namespace, grace_s=grace_s) for each in some)
                await asyncio.gather(*(api.write(each) for each in gone), return_exceptions=True)


def _batched(things: list[Any], size: int = 50) -> Iterable[list[Any]]:
    return (things[start : start + size] for start in range(0, len(things), size))


async def dies(front: Front) -> None:
    await until(lambda: front.dead, "the process is killed")
