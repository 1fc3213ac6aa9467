"""A node whose cards HAMi's device plugin cuts into slices: what it registers, makes and writes, from its protocol."""

from __future__ import annotations

import json
from typing import Any

from tests.kube.hami_node import GPU, REGISTER, TO_ALLOCATE, HamiNode, PluginError
from ullage.kube.client.api import Selection
from ullage.kube.client.kinds import PODS
from ullage.kube.client.objects import Pod

MIG = "hami.io/vgpu-mig-allocations"
Document = dict[str, Any]
Place = tuple[str, int, int]


def profile(name: str, mib: int, core: int, slices: int, starts: tuple[int, ...], size: int) -> Document:
    places = [{"start": start, "size": size} for start in starts]
    return {"name": name, "memoryMB": mib, "core": core, "sliceCount": slices, "placements": places}


A100 = [
    profile("1g.10gb", 9728, 15, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    profile("2g.20gb", 19968, 29, 2, (0, 2, 4), 2),
    profile("3g.40gb", 40192, 43, 3, (0, 4), 4),
    profile("7g.79gb", 80896, 100, 7, (0,), 8),
]
A30 = [
    profile("1g.6gb", 5952, 25, 1, (0, 1, 2, 3), 1),
    profile("2g.12gb", 11968, 50, 2, (0, 2), 2),
    profile("4g.24gb", 24064, 100, 4, (0,), 4),
]


def mig_card(uuid: str, profiles: list[Document] = A100, mib: int = 81920, **more: Any) -> Document:
    """A card in HAMi's register, in mode `mig`."""
    about = {"id": uuid, "count": 7, "devmem": mib, "devcore": 100, "type": "NVIDIA-A100-SXM4-80GB", "health": True}
    return about | {"mode": "mig", "migProfiles": profiles} | more


def mig_node(name: str, *cards: Document, offered: int = 28) -> Document:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(offered)}
    return {
        "metadata": {"name": name, "annotations": {REGISTER: json.dumps(cards)}},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


class MigNode(HamiNode):
    """A node whose plugin makes the slice of each device at its reserved place, and adds the ids of it.

    `instances` are the slices that there are, with the uid of their pod. The hardware refuses what overlaps.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.instances: dict[Place, tuple[str, str]] = {}

    async def _allocate(self, count: int) -> list[tuple[str, int, int]]:
        pod = await self._pending()
        await self._reconcile()
        annotations = pod.metadata.annotations or {}
        containers = annotations.get(TO_ALLOCATE, "").split(";")
        at = next((at for at, each in enumerate(containers) if "," in each), -1)
        devices = [device.split(",")[0] for device in containers[at].split(":") if device]
        reserved = json.loads(annotations.get(MIG, "[]"))
        mine = sorted((r for r in reserved if r["containerIndex"] == at), key=lambda r: r["deviceIndex"])
        if [each["gpuUUID"] for each in mine] != devices:
            await self._finish(pod.metadata.namespace, pod.metadata.name, "failed")
            raise PluginError(f"container {at} has {len(mine)} MIG reservations, requested {len(devices)} devices")
        for each in mine:
            each.update(self._make(pod, each))
        await self._note(pod.metadata.namespace, pod.metadata.name, {MIG: json.dumps(reserved, separators=(",", ":"))})
        return await super()._allocate(count)

    def _make(self, pod: Pod, reserved: Document) -> Document:
        start, size = reserved["placement"]["start"], reserved["placement"]["size"]
        place = (reserved["gpuUUID"], start, size)
        for gpu, other, length in self.instances:
            if gpu == place[0] and other < start + size and start < other + length and place != (gpu, other, length):
                raise PluginError(f"no room for {place} next to {(gpu, other, length)}")
        self.instances[place] = (pod.metadata.uid, reserved["profile"])
        return {"migUUID": f"MIG-{place[0]}-{start}", "gpuInstanceID": 7 + start, "computeInstanceID": 0}

    async def _reconcile(self) -> None:
        """Destroy the slices of pods that are gone."""
        there = set()
        async for page in self._api.pages(PODS, Selection(fields=f"spec.nodeName={self.name}")):
            there |= {pod.metadata.uid for pod in page.items if not pod.finished}
        self.instances = {place: user for place, user in self.instances.items() if user[0] in there}
