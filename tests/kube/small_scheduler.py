"""As much of kube-scheduler as its extender sees: one pod after the other, concurrent bindings, and victims.

It counts whole cards itself, as kube-scheduler counts a resource of a device plugin, and leaves parts of cards to
the extender. It keeps to the node of claims that are allocated, and allocates none. It runs where there is no
kube-scheduler.
"""

import asyncio
import json
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Any, Self

import httpx2

from ullage.kube.client.api import KubeApi
from ullage.kube.client.changes import Delete, Patch, PatchType
from ullage.kube.client.informer import Added, Changed, Delta, Informer, Removed
from ullage.kube.client.kinds import NODES, PODS, RESOURCE_CLAIMS
from ullage.kube.client.objects import KubeNode, Pod
from ullage.model.error import UllageError

GPU = "nvidia.com/gpu"
_BACKOFF_S, _LONGEST_S = 0.2, 2.0
Document = dict[str, Any]


class SmallScheduler:
    """While entered, pods for the scheduler `ullage` are placed by the extender at `url`."""

    def __init__(self, api: KubeApi, url: str) -> None:
        self._api, self._url = api, url
        self._nodes, self._pods = Informer(api, NODES), Informer(api, PODS)
        self._claims = Informer(api, RESOURCE_CLAIMS)
        self._waiting: dict[str, Document] = {}  # by uid, those without a node
        self._on: defaultdict[str, dict[str, Document]] = defaultdict(dict)  # by node and uid
        self._tries: defaultdict[str, int] = defaultdict(int)
        self._not_before: dict[str, float] = {}
        self._binding: dict[str, asyncio.Task[None]] = {}
        self._bound: set[str] = set()  # by uid: they wait no more, though the watch may report it later
        self._delta = asyncio.Event()
        self._pods.subscribe(self._hear)
        self._nodes.subscribe(lambda _: self._retry())

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self._http = await self._stack.enter_async_context(
            httpx2.AsyncClient(base_url=self._url, timeout=5, trust_env=False)
        )
        for work in (self._nodes.run(), self._pods.run(), self._claims.run(), self._run()):
            self._stack.push_async_callback(_end, asyncio.create_task(work))
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*self._binding.values(), return_exceptions=True)
        await self._stack.aclose()

    def _hear(self, delta: Delta[Pod]) -> None:
        if isinstance(delta, Added | Changed):
            self._take(delta.new)
        elif isinstance(delta, Removed):
            self._forget(delta.last)
        self._delta.set()

    def _take(self, pod: Pod) -> None:
        if pod.finished:
            self._forget(pod)
        elif pod.spec.node_name:
            self._waiting.pop(pod.metadata.uid, None)
            self._on[pod.spec.node_name][pod.metadata.uid] = pod.document
        elif pod.spec.scheduler_name == "ullage" and not pod.terminating and pod.metadata.uid not in self._bound:
            self._waiting[pod.metadata.uid] = pod.document
        else:
            self._waiting.pop(pod.metadata.uid, None)

    def _forget(self, pod: Pod) -> None:
        self._waiting.pop(pod.metadata.uid, None)
        if self._on[pod.spec.node_name].pop(pod.metadata.uid, None) is not None:
            self._retry()

    def _retry(self) -> None:
        """Something may fit by now."""
        self._not_before.clear()
        self._delta.set()

    async def _run(self) -> None:
        await self._nodes.wait_synced()
        while True:
            self._delta.clear()
            pod = self._next()
            if pod is None:
                await _wait(self._delta, _BACKOFF_S / 2)
            else:
                await self._cycle(pod)

    def _next(self) -> Document | None:
        """The pod with the highest priority, of several the oldest, that has no gate and need not wait."""
        now = asyncio.get_running_loop().time()
        able = (
            pod
            for uid, pod in self._waiting.items()
            if uid not in self._binding
            and not pod["spec"].get("schedulingGates")
            and self._not_before.get(uid, 0) <= now
        )
        return min(able, key=lambda pod: (-_priority(pod), pod["metadata"]["creationTimestamp"]), default=None)

    async def _cycle(self, pod: Document) -> None:
        names = [node.metadata.name for node in self._nodes.objects.values() if self._has_room(node, pod)]
        try:
            found = await self._ask("filter", Pod=pod, NodeNames=names) if names else {"NodeNames": []}
            if found.get("Error"):
                return self._fail(pod)
            if not found["NodeNames"]:
                await self._make_room(pod)
                return self._fail(pod)
            scores = await self._ask("prioritize", Pod=pod, NodeNames=found["NodeNames"])
        except httpx2.HTTPError:
            return self._fail(pod)
        ranked = {each["Host"]: each["Score"] for each in scores}
        best = max(found["NodeNames"], key=lambda name: (ranked.get(name, 0), name))
        self._binding[pod["metadata"]["uid"]] = asyncio.create_task(self._bind(pod, best))
        return None

    async def _bind(self, pod: Document, node: str) -> None:
        meta = pod["metadata"]
        self._on[node][meta["uid"]] = pod  # it is assumed to be there meanwhile
        names = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        try:
            said = (await self._ask("bind", **names, Node=node))["Error"]
        except httpx2.HTTPError as error:
            said = str(error) or type(error).__name__  # that of a timeout is empty
        finally:
            del self._binding[meta["uid"]]
        there = self._pods.objects.get((meta["namespace"], meta["name"]))
        if said and (there is None or not there.spec.node_name):
            self._on[node].pop(meta["uid"], None)
            self._fail(pod)
        else:
            self._bound.add(meta["uid"])
            self._waiting.pop(meta["uid"], None)
        self._delta.set()

    def _fail(self, pod: Document) -> None:
        uid = pod["metadata"]["uid"]
        pause = min(_BACKOFF_S * 2 ** self._tries[uid], _LONGEST_S)
        self._tries[uid] += 1
        self._not_before[uid] = asyncio.get_running_loop().time() + pause

    def _has_room(self, node: KubeNode, pod: Document) -> bool:
        return (
            self._may_use_claims(node, pod)
            and _takes_pods(node)
            and not self._lacking(node, pod, list(self._on[node.metadata.name].values()))
        )

    def _may_use_claims(self, node: KubeNode, pod: Document) -> bool:
        namespace = pod["metadata"]["namespace"]
        for each in pod["spec"].get("resourceClaims", ()):
            claim = self._claims.objects.get((namespace, each["resourceClaimName"]))
            allocation = None if claim is None else claim.document.get("status", {}).get("allocation")
            if allocation is None:
                return False
            terms = allocation.get("nodeSelector", {}).get("nodeSelectorTerms", ())
            if terms and node.metadata.name not in terms[0]["matchFields"][0]["values"]:
                return False
        return True

    def _lacking(self, node: KubeNode, pod: Document, there: list[Document]) -> int:
        """Whole cards that a pod lacks in addition to those that exist."""
        has = int((node.status.allocatable or {}).get(GPU, "0"))
        return max(0, sum(map(_cards, there)) + _cards(pod) - has) if _cards(pod) else 0

    # --- who gives way ---

    async def _make_room(self, pod: Document) -> None:
        """Evict as few as possible of lower priority from one node, if that is how there is room for it."""
        if any(_is_leaving(other) for there in self._on.values() for other in there.values()):
            return  # somebody gives way already
        candidates = {
            node.metadata.name: victims
            for node in self._nodes.objects.values()
            if _takes_pods(node) and (victims := self._victims(node, pod))
        }
        if not candidates:
            return
        victims = {
            node: {"Pods": [{"UID": other["metadata"]["uid"]} for other in others], "NumPDBViolations": 0}
            for node, others in candidates.items()
        }
        found = (await self._ask("preempt", Pod=pod, NodeNameToMetaVictims=victims))["NodeNameToMetaVictims"]
        if not found:
            return
        node = min(found, key=lambda name: (len(found[name]["Pods"]), name))
        meta = pod["metadata"]
        nominated = {"status": {"nominatedNodeName": node}}
        pod |= nominated  # known before the watch reports it
        try:
            await self._api.write(
                Patch(PODS, meta["name"], nominated, meta["namespace"], PatchType.STRATEGIC, "status")
            )
            for uid in (each["UID"] for each in found[node]["Pods"]):
                other = self._on[node][uid]["metadata"]
                await self._api.write(Delete(PODS, other["name"], other["namespace"], uid))
        except (UllageError, KeyError):
            return  # it is looked at again

    def _victims(self, node: KubeNode, pod: Document) -> list[Document]:
        """Those who would have to leave a node for whole cards: of the lowest priority, the youngest first."""
        there = list(self._on[node.metadata.name].values())
        lower = [other for other in there if _priority(other) < _priority(pod)]
        lower.sort(key=lambda other: other["metadata"]["creationTimestamp"], reverse=True)
        lower.sort(key=_priority)
        leaving: list[Document] = []
        while self._lacking(node, pod, [other for other in there if other not in leaving]):
            if not lower:
                return []
            leaving.append(lower.pop(0))
        return leaving

    async def _ask(self, verb: str, **body: Any) -> Any:
        answer = await self._http.post(f"/{verb}", content=json.dumps(body))
        answer.raise_for_status()
        return answer.json()


def _takes_pods(node: KubeNode) -> bool:
    return node.ready and not node.spec.unschedulable and not node.spec.taints


def _is_leaving(pod: Document) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _priority(pod: Document) -> int:
    return int(pod["spec"].get("priority") or 0)


def _cards(pod: Document) -> int:
    asked = (each.get("resources", {}).get("limits", {}).get(GPU, 0) for each in pod["spec"]["containers"])
    return sum(map(int, asked))


async def _wait(event: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await event.wait()
    except TimeoutError:
        return


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
