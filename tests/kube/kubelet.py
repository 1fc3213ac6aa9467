"""What the kubelets of all nodes do, as far as the API server sees it: start pods, end them, say that nodes live."""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Any, Self

from ullage.kube.client.api import KubeApi, Selection
from ullage.kube.client.changes import Change, Create, Delete, Patch, PatchType
from ullage.kube.client.informer import Added, Changed, Delta, Informer
from ullage.kube.client.kinds import LEASES, NODES, PODS
from ullage.kube.client.objects import Pod
from ullage.model.error import Conflict, NotFound

HEARTBEATS = "kube-node-lease"


class Kubelets:
    """While entered, every pod on a node runs if `may_start` is set, and ends after its deletion if `may_end` is set.

    Each pod is served by itself: one that waits keeps no other waiting. With a `namespace` only its pods are served,
    for tests that share a control plane with others.
    """

    def __init__(self, api: KubeApi, namespace: str = "") -> None:
        self._api = api
        self._pods = Informer(api, PODS, Selection(namespace))
        self._pods.subscribe(self._hear)
        self._work: asyncio.Queue[Pod] = asyncio.Queue()
        self._dead: set[str] = set()
        self.starting: set[tuple[str, str]] = set()
        """Pods that are about to start."""
        self.may_start, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_start.set()
        self.may_end.set()

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        for work in (self._pods.run(), self._serve()):
            task = asyncio.create_task(work)
            self._stack.push_async_callback(_end, task)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def finish(self, namespace: str, name: str, phase: str = "Succeeded") -> None:
        """The processes of a pod end by themselves."""
        await self._api.write(
            _status(PODS, name, {"phase": phase, "conditions": _condition("Ready", "False")}, namespace)
        )

    async def join(self, name: str, **allocatable: str) -> None:
        """A machine comes, with these amounts."""
        await self._api.write(Create(NODES, {"metadata": {"name": name}}))
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"} | allocatable
        await self._api.write(_status(NODES, name, {"allocatable": amounts, "capacity": amounts}))
        await self.say(name, ready=True)

    async def say(self, node: str, *, ready: bool) -> None:
        """A node becomes ready, or not; one that is not starts and ends no pods."""
        (self._dead.discard if ready else self._dead.add)(node)
        await self._api.write(_status(NODES, node, {"conditions": _condition("Ready", "True" if ready else "Unknown")}))
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
        await self._api.write(Patch(NODES, node, {"spec": {"taints": [] if ready else [taint]}}))
        for pod in self._pods.objects.values() if ready else ():
            self._work.put_nowait(pod)

    async def beat(self, node: str, time: str) -> None:
        """A node says that it lives."""
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": time}
        try:
            await self._api.write(Patch(LEASES, node, {"spec": spec}, HEARTBEATS))
        except NotFound:
            await self._api.write(Create(LEASES, {"metadata": {"name": node}, "spec": spec}, HEARTBEATS))

    def _hear(self, delta: Delta[Pod]) -> None:
        if isinstance(delta, Added | Changed):
            self._work.put_nowait(delta.new)

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                pod = await self._work.get()
                if pod.spec.node_name and pod.spec.node_name not in self._dead:
                    tasks.create_task(self._see_to(pod))

    async def _see_to(self, pod: Pod) -> None:
        namespace, name = pod.key
        with suppress(NotFound, Conflict):  # it changed meanwhile, and that event follows
            if pod.terminating:
                await self.may_end.wait()
                await self._api.write(Delete(PODS, name, namespace, pod.metadata.uid, grace_s=0))
            elif pod.status.phase == "Pending":
                self.starting.add(pod.key)
                await self.may_start.wait()
                running = {"phase": "Running", "conditions": _condition("Ready", "True")}
                await self._api.write(_status(PODS, name, running, namespace, pod.metadata.resource_version))


def _status(kind: Any, name: str, status: dict[str, Any], namespace: str = "", version: str = "") -> Change:
    """A new status; with a `version` only if the object still has it: one that has ended never starts again."""
    body = {"status": status} | ({"metadata": {"resourceVersion": version}} if version else {})
    return Patch(kind, name, body, namespace, PatchType.STRATEGIC, "status")


def _condition(name: str, status: str) -> list[dict[str, str]]:
    return [{"type": name, "status": status}]


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
