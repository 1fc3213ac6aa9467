"""A node with HAMi's device plugin, and HAMi's own scheduler: what they do to the API, written from their protocol.

Nothing here is shared with what Ullage reads and writes in their words.
"""

import asyncio
import json
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from ullage.kube.client.api import KubeApi, Selection
from ullage.kube.client.changes import Bind, Create, Delete, Patch, PatchType
from ullage.kube.client.informer import Added, Changed, Delta, Informer
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.client.objects import KubeNode, Pod
from ullage.model.error import Conflict, NotFound

GPU = "nvidia.com/gpu"
REGISTER = "hami.io/node-nvidia-register"
LOCK = "hami.io/mutex.lock"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
ALLOCATED = "hami.io/vgpu-devices-allocated"
PHASE = "hami.io/bind-phase"
SPLIT = 10
Document = dict[str, Any]


def hami_node(name: str, *uuids: str, mib: int = 16000, offered: bool = True) -> Document:
    """A node whose cards HAMi's plugin has registered."""
    cards = [
        {"id": uuid, "index": at, "count": SPLIT, "devmem": mib, "devcore": 100, "type": "NVIDIA-A100", "health": True}
        for at, uuid in enumerate(uuids)
    ]
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(len(uuids) * SPLIT if offered else 0)}
    return {
        "metadata": {"name": name, "annotations": {REGISTER: json.dumps(cards)}},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


class PluginError(Exception):
    """What a kubelet gets instead of devices."""


class HamiNode:
    """While entered, the kubelet of a node admits each pod in its turn and asks the plugin, container by container.

    `granted` is what each container was handed out: uuids, MiB and percent of cores. While `deaf` no pod is admitted;
    a plugin that `fails` hands out nothing. `resource` is what the plugin offers, and `phase` where it reports.
    """

    resource, phase = GPU, PHASE

    def __init__(self, api: KubeApi, name: str) -> None:
        self._api, self.name = api, name
        self._pods = Informer(api, PODS, Selection(fields=f"spec.nodeName={name}"))
        self._pods.subscribe(self._hear)
        self._work: asyncio.Queue[Pod] = asyncio.Queue()
        self._admitted: set[str] = set()
        self._admitting = asyncio.Lock()
        self.granted: dict[tuple[str, str], list[tuple[str, int, int]]] = {}
        self.errors: list[str] = []
        self.fails = False
        self.hears = asyncio.Event()
        self.hears.set()

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        for work in (self._pods.run(), self._serve()):
            self._stack.push_async_callback(_end, asyncio.create_task(work))
        return self

    async def __aexit__(self, *error: object) -> None:
        async with self._admitting:  # only Ullage is killed at any time: nodes end between two pods
            await self._stack.aclose()

    def knows(self, namespace: str, name: str) -> bool:
        """Whether it has not heard that the pod is gone."""
        return (namespace, name) in self._pods.objects

    def _hear(self, delta: Delta[Pod]) -> None:
        if isinstance(delta, Added | Changed):
            self._work.put_nowait(delta.new)

    async def _serve(self) -> None:
        while True:
            pod = await self._work.get()
            await self.hears.wait()
            if pod.metadata.uid in self._admitted or pod.finished or not self.knows(*pod.key):
                continue
            self._admitted.add(pod.metadata.uid)
            async with self._admitting:
                with suppress(NotFound):  # it was deleted
                    await self._admit(pod)

    async def _admit(self, pod: Pod) -> None:
        spec, phase = pod.document["spec"], "Running"
        handed_out = (pod.metadata.annotations or {}).get(
            self.phase
        ) == "success"  # a kubelet remembers that over its end
        try:
            for container in () if handed_out else (*spec.get("initContainers", ()), *spec["containers"]):
                if count := int(container.get("resources", {}).get("limits", {}).get(self.resource, 0)):
                    self.granted[pod.metadata.name, container["name"]] = await self._allocate(count)
        except PluginError as error:
            self.errors.append(f"{pod.metadata.name}: {error}")
            phase = "Failed"
        status = {"status": {"phase": phase}}
        await self._api.write(
            Patch(PODS, pod.metadata.name, status, pod.metadata.namespace, PatchType.STRATEGIC, "status")
        )

    async def _allocate(self, count: int) -> list[tuple[str, int, int]]:
        """The plugin does not learn for which pod: it takes the pod in the lock, else the first that waits."""
        pod = await self._pending()
        name, namespace, notes = pod.metadata.name, pod.metadata.namespace, pod.metadata.annotations or {}
        containers = notes.get(TO_ALLOCATE, "").split(";")
        devices = next(([d for d in each.split(":") if "," in d] for each in containers if "," in each), [])
        if self.fails or len(devices) != count:
            await self._finish(namespace, name, "failed")
            raise PluginError(f"asked for {count}, got {devices}")
        first = next(at for at, each in enumerate(containers) if "," in each)
        containers[first] = ""
        await self._note(namespace, name, {TO_ALLOCATE: ";".join(containers)})
        if "NVIDIA" not in ";".join(containers):
            await self._finish(namespace, name, "success")
        fields = [device.split(",") for device in devices]
        return [(uuid, int(mib), int(cores)) for uuid, _, mib, cores in fields]

    async def _pending(self) -> Pod:
        node = await self._api.get(NODES, self.name)
        lock = (node.metadata.annotations or {}).get(LOCK, "")
        if lock.count(",") == 2:
            _, namespace, name = lock.split(",")
            try:
                return await self._api.get(PODS, name, namespace)
            except NotFound:
                raise PluginError(f"the lock names {name}, which is gone") from None
        async for page in self._api.pages(PODS, Selection(fields=f"spec.nodeName={self.name}")):
            for pod in page.items:
                notes = pod.metadata.annotations or {}
                waits = notes.get(PHASE) in ("allocating", "success") and "hami.io/bind-time" in notes
                if pod.status.phase == "Pending" and waits and notes.get("hami.io/vgpu-node") == self.name:
                    return pod
        raise PluginError("no binding pod found")

    async def _finish(self, namespace: str, name: str, phase: str) -> None:
        await self._note(namespace, name, {PHASE: phase})
        await unlock(self._api, self.name, namespace, name)

    async def _note(self, namespace: str, name: str, notes: dict[str, str]) -> None:
        await self._api.write(Patch(PODS, name, {"metadata": {"annotations": notes}}, namespace))


class HamiNodes:
    """While entered, every node with a register has its kubelet and plugin."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._nodes = Informer(api, NODES)
        self._new: asyncio.Queue[str] = asyncio.Queue()
        self._known: set[str] = set()
        self._nodes.subscribe(self._hear)

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        for work in (self._nodes.run(), self._serve()):
            self._stack.push_async_callback(_end, asyncio.create_task(work))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    def _hear(self, delta: Delta[KubeNode]) -> None:
        if not isinstance(delta, Added | Changed) or REGISTER not in (delta.new.metadata.annotations or {}):
            return
        if delta.new.metadata.name not in self._known:
            self._known.add(delta.new.metadata.name)
            self._new.put_nowait(delta.new.metadata.name)

    async def _serve(self) -> None:
        while True:
            await self._stack.enter_async_context(HamiNode(self._api, await self._new.get()))


class HamiScheduler:
    """HAMi's own scheduler, which chooses for pods of its own and binds them."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def place(self, pod: Document, node: str, uuid: str) -> None:
        """Bind a pod with one container to one card, as soon as the node is not locked."""
        await self.choose(pod, node, f"{uuid},NVIDIA,1000,10:;")
        while not await self.try_lock(pod, node):
            pass  # as kube-scheduler has it tried again and again
        await self.bind(pod, node)

    async def choose(self, pod: Document, node: str, devices: str) -> None:
        """Answer `filter`: what it has chosen is written, and counts from now on."""
        now = str(int(datetime.now(UTC).timestamp()))
        notes = {"hami.io/vgpu-node": node, "hami.io/vgpu-time": now, TO_ALLOCATE: devices, ALLOCATED: devices}
        await self._note(pod, notes)

    async def try_lock(self, pod: Document, node: str) -> bool:
        """Return whether the node is locked for the pod."""
        return await self._lock(node, pod["metadata"]["namespace"], pod["metadata"]["name"])

    async def bind(self, pod: Document, node: str) -> None:
        """Bind a pod to a node that is locked for it."""
        meta, now = pod["metadata"], str(int(datetime.now(UTC).timestamp()))
        await self._note(pod, {PHASE: "allocating", "hami.io/bind-time": now})
        await self._api.write(Bind(meta["namespace"], meta["name"], meta["uid"], node))

    async def _note(self, pod: Document, notes: dict[str, str]) -> None:
        meta = pod["metadata"]
        await self._api.write(Patch(PODS, meta["name"], {"metadata": {"annotations": notes}}, meta["namespace"]))

    async def _lock(self, node: str, namespace: str, name: str) -> bool:
        found = await self._api.get(NODES, node)
        lock = (found.metadata.annotations or {}).get(LOCK)
        if lock is not None and not await self._dangles(lock):
            return False
        value = {LOCK: f"{datetime.now(UTC).isoformat(timespec='seconds')},{namespace},{name}"}
        metadata = {"annotations": value, "resourceVersion": found.metadata.resource_version}
        try:
            await self._api.write(Patch(NODES, node, {"metadata": metadata}))
        except Conflict:
            return False
        return True

    async def _dangles(self, lock: str) -> bool:
        moment, *owner = lock.split(",")
        if datetime.now(UTC) - datetime.fromisoformat(moment) > timedelta(minutes=5):
            return True
        if len(owner) != 2:
            return False
        try:
            await self._api.get(PODS, owner[1], owner[0])
        except NotFound:
            return True
        return False


async def unlock(api: KubeApi, node: str, namespace: str, name: str) -> None:
    """Take the lock of a node away, if it is for that pod."""
    while True:
        found = await api.get(NODES, node)
        if not (found.metadata.annotations or {}).get(LOCK, "").endswith(f",{namespace},{name}"):
            return
        metadata = {"annotations": {LOCK: None}, "resourceVersion": found.metadata.resource_version}
        try:
            await api.write(Patch(NODES, node, {"metadata": metadata}))
        except Conflict:
            continue
        return


async def lock_of(api: KubeApi, node: str) -> str | None:
    return ((await api.get(NODES, node)).metadata.annotations or {}).get(LOCK)


async def put_lock(api: KubeApi, node: str, text: str) -> None:
    await api.write(Patch(NODES, node, {"metadata": {"annotations": {LOCK: text}}}))


async def remove(api: KubeApi, name: str) -> None:
    await api.write(Delete(PODS, name, "default", grace_s=0))


async def create(api: KubeApi, *pods: Document) -> None:
    for pod in pods:
        await api.write(Create(PODS, pod, pod["metadata"]["namespace"]))


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
