"""A node with Volcano's vGPU device plugin, and what Volcano's scheduler writes: from their protocol.

Nothing here is shared with what Ullage reads and writes in their words.
"""

from __future__ import annotations

from typing import Any

from tests.kube.hami_node import HamiNode, PluginError
from tests.kube.vendor_nodes import a_node
from ullage.kube.client.api import Selection
from ullage.kube.client.changes import Patch
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.client.objects import Pod
from ullage.model.error import Conflict

NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
REGISTER = "volcano.sh/node-vgpu-register"
NODE, TIME = "volcano.sh/vgpu-node", "volcano.sh/vgpu-time"
IDS, TO_ALLOCATE = "volcano.sh/vgpu-ids-new", "volcano.sh/devices-to-allocate"
PHASE, BIND_TIME = "volcano.sh/bind-phase", "volcano.sh/bind-time"
LOCK = "hamivgpu"
NEVER = str(2**64 - 1)
SPLIT = 10
Document = dict[str, Any]


def volcano_node(name: str, *uuids: str, mib: int = 16000, mode: str = "hami-core") -> Document:
    """A node whose cards Volcano's plugin has registered."""
    text = "".join(f"{uuid},{SPLIT},{mib},NVIDIA-T1,true,{mode}:" for uuid in uuids)
    amounts = {NUMBER: str(len(uuids) * SPLIT), MEMORY: str(len(uuids) * mib), CORES: str(len(uuids) * 100)}
    return a_node(name, {REGISTER: text}, **amounts)


def placed_by_volcano(node: str, devices: str, at: int) -> dict[str, str]:
    """What Volcano's scheduler writes with the binding of a pod."""
    stamps = {NODE: node, TIME: str(at), BIND_TIME: str(at), PHASE: "allocating"}
    return {**stamps, IDS: devices, TO_ALLOCATE: devices}


class VolcanoNode(HamiNode):
    """As `HamiNode`, with Volcano's plugin. It takes the oldest pod of the node with that number of devices left."""

    resource, phase = NUMBER, PHASE

    async def _allocate(self, count: int) -> list[tuple[str, int, int]]:
        pod = await self._oldest(count)
        name, namespace = pod.metadata.name, pod.metadata.namespace
        containers = [_devices(each) for each in (pod.metadata.annotations or {})[TO_ALLOCATE].split(";")]
        at, devices = next((at, each) for at, each in enumerate(containers) if each)
        if self.fails:
            await self._finish(namespace, name, "failed")
            raise PluginError("it fails")
        assert pod.document["spec"]["containers"][at]["resources"]["limits"].get(NUMBER), "the cache of that container"
        left = [[] if position == at else each for position, each in enumerate(containers)]
        await self._note(namespace, name, {TO_ALLOCATE: ";".join("".join(f"{d}:" for d in each) for each in left)})
        if not any(left):
            await self._finish(namespace, name, "success")
        fields = [device.split(",") for device in devices]
        assert all(kind == "NVIDIA" for _, kind, _, _ in fields)
        return [(uuid, int(mib), int(cores)) for uuid, _, mib, cores in fields]

    async def _oldest(self, count: int) -> Pod:
        found = []
        async for page in self._api.pages(PODS, Selection()):
            for pod in page.items:
                notes = pod.metadata.annotations or {}
                left = [device for each in notes.get(TO_ALLOCATE, "").split(";") for device in _devices(each)]
                if notes.get(NODE) == self.name and len(left) == count:
                    found.append((int(notes[TIME]), pod))
        if not found:
            await self._unlock()
            raise PluginError("no pending pod found on node")
        return min(found, key=lambda each: each[0])[1]

    async def _finish(self, namespace: str, name: str, phase: str) -> None:
        await self._note(namespace, name, {PHASE: phase, TIME: NEVER})
        await self._unlock()

    async def _unlock(self) -> None:
        while True:
            found = await self._api.get(NODES, self.name)
            if LOCK not in (found.metadata.annotations or {}):
                return
            metadata = {"annotations": {LOCK: None}, "resourceVersion": found.metadata.resource_version}
            try:
                await self._api.write(Patch(NODES, self.name, {"metadata": metadata}))
            except Conflict:
                continue
            return


def _devices(text: str) -> list[str]:
    return [device for device in text.split(":") if "," in device]
