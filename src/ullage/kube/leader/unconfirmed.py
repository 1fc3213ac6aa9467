"""Binds with an unknown outcome, and how their outcome becomes certain.

A write without a response may take effect at any later time. So may a write of a process that was suspended. Every bind
states the resourceVersion of the pod that it was decided on. The API server refuses the bind once the pod has another
version. So this module patches an annotation on a pod that has no node yet. From then on no earlier bind can take
effect, however late it arrives. Only then is the reservation of the pod released.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

from ullage.kube.bindings.filter import BindingFilter
from ullage.kube.client.changes import Patch
from ullage.kube.client.errors import VersionConflict
from ullage.kube.client.informer import Delta, Removed
from ullage.kube.client.kinds import PODS
from ullage.kube.client.lease import NotLeading
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import Controller
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.model.error import InvalidRequest, NotFound, UllageError

FENCE = "fence"
"""The name of the annotation, under the domain of the other annotations."""

AGAIN_S = 1.0
"""Seconds before the second attempt to determine the outcome of a bind."""

GIVE_UP_S = 90.0
"""Seconds after which a pod that cannot be patched counts as settled. API servers end a request after 60 seconds."""

OBSERVED_S = 60.0
"""Seconds after which a bound pod that the watch has not reported is read from the API: it may be deleted."""

_AT_ONCE = 16
"""Maximum number of pods that are patched concurrently."""


class UnconfirmedBinds:
    """Pods with a reservation whose bind has an unknown outcome. They are resolved while this process leads."""

    def __init__(self, context: KubeContext, term: ReadyTerm, binding_filter: BindingFilter | None = None) -> None:
        self._api, self._candidate, self._cluster = context.api, context.candidate, context.cluster
        self._mirror, self._term, self._key = term.mirror, term, context.key(FENCE)
        self._binding_filter = binding_filter
        self._on_error, self._clock, self._pause = context.on_error, context.clock, context.pause
        self._open: dict[str, tuple[Pod, float]] = {}
        self._unobserved: dict[str, tuple[Pod, float]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.controller = Controller(
            "Pod", self.reconcile, on_error=context.on_error, guard=term.begun, at_once=_AT_ONCE
        )
        self._pods = context.followed.pods
        self._pods.subscribe(self._on_pod)

    @property
    def count(self) -> int:
        return len(self._open)

    @property
    def quiet(self) -> bool:
        """Whether no outcome is unknown and no bind is in progress."""
        return not self._open and not any(lock.locked() for lock in self._locks.values())

    def is_gone(self, uid: str) -> bool:
        """Return whether a pod is known to be deleted. Its scheduler may learn this later and ask once more."""
        return self._pods.has_ended(uid)

    @asynccontextmanager
    async def exclusive(self, uid: str) -> AsyncIterator[None]:
        """Serialize all decisions about a pod."""
        lock = self._locks.setdefault(uid, asyncio.Lock())
        async with lock:
            yield

    def write(self, pod: Pod, node: str, annotations: Mapping[str, str]) -> None:
        """Note what the next bind of a pod writes of the cards that are reserved for it."""
        self._mirror.write(pod, node, annotations)

    def add(self, pod: Pod) -> None:
        """Add a bind without a response. `pod` is the version that the bind was decided on."""
        self._open[pod.metadata.uid] = pod, self._clock()
        self.controller.add(pod.metadata.uid)

    def release(self, uid: str) -> None:
        """Release the reservation of a bind that did not and cannot take effect."""
        self._cluster.undo(uid)
        self._mirror.forget_write(uid)
        if self._binding_filter is not None:
            self._binding_filter.undo(uid)

    def _gone(self, uid: str) -> None:
        self.release(uid)
        self._cluster.free(uid)

    def confirmed(self, pod: Pod) -> None:
        """Note that a bind of this pod took effect."""
        self._cluster.confirm(pod.metadata.uid)
        self._expect(pod)

    def observe(self, pod: Pod) -> None:
        """Enter a pod that was just read and has a node, unless the watch is ahead of that response."""
        if not self._is_observed(pod):
            self._mirror.observe(pod)
        self._expect(pod)

    def _expect(self, pod: Pod) -> None:
        """Expect the watch to report that the pod has its node, if it has not done so."""
        if not self._is_observed(pod):
            self._unobserved[pod.metadata.uid] = pod, self._clock()
            self.controller.add(pod.metadata.uid, OBSERVED_S)

    def _is_observed(self, pod: Pod) -> bool:
        """Return whether the watch has reported that a pod has its node, or that it is deleted."""
        known = self._pods.objects.get(pod.key)
        if known is None or known.metadata.uid != pod.metadata.uid:
            return self._pods.has_ended(pod.metadata.uid)
        return bool(known.spec.node_name)

    def _on_pod(self, delta: Delta[Pod]) -> None:
        """Resolve a pod that the watch reports as bound or deleted: the mirror has already entered it."""
        pod = delta.last if isinstance(delta, Removed) else delta.new
        if pod.spec.node_name or isinstance(delta, Removed):
            self._open.pop(pod.metadata.uid, None)
            self._unobserved.pop(pod.metadata.uid, None)

    async def resolve(self, epoch: int, uid: str) -> None:
        """Determine the outcome of the bind of a pod, if it is unknown. The caller is in `exclusive` for the pod.

        Raises:
            UllageError: the outcome is still unknown.

        """
        if uid not in self._open:
            return
        pod, since = self._open[uid]
        try:
            await self._fence(epoch, pod)
        except NotLeading:
            raise
        except UllageError as error:
            if self._clock() - since < GIVE_UP_S:
                raise
            self._on_error("Pod", "/".join(pod.key), error)
            self.release(uid)
        self._open.pop(uid, None)

    async def reconcile(self, uid: str) -> float | None:
        """Resolve the bind of a pod, and read a bound pod that the watch has not reported for `OBSERVED_S`."""
        epoch = self._term.check()
        async with self.exclusive(uid):
            await self.resolve(epoch, uid)
            if uid not in self._unobserved:
                return None
            pod, since = expected = self._unobserved[uid]
            left_s = since + OBSERVED_S - self._clock()
            if left_s > 0:
                return left_s
            await self._look_at(pod)
            if self._unobserved.get(uid) is expected:
                del self._unobserved[uid]
            return None

    async def begin(self, epoch: int, pods: Iterable[Pod]) -> None:
        """Make sure that no bind of an earlier term can still take effect on these pods, which have no node.

        Return as soon as this is certain for all of them, at the latest after `GIVE_UP_S`.

        Raises:
            NotLeading: the term is over.

        """
        for pod in pods:
            if not pod.spec.node_name:
                self.add(pod)
        while left := list(self._open):
            for at in range(0, len(left), _AT_ONCE):
                await asyncio.gather(*(self._try(epoch, uid) for uid in left[at : at + _AT_ONCE]))
            self._candidate.check(epoch)
            if self._open:
                await self._pause(AGAIN_S)

    async def _try(self, epoch: int, uid: str) -> None:
        async with self.exclusive(uid):
            with suppress(UllageError):
                await self.resolve(epoch, uid)

    async def _fence(self, epoch: int, pod: Pod) -> None:
        """Patch a pod that has no node. If it has changed since it was read, read it again first."""
        uid = pod.metadata.uid
        try:
            written = await self._candidate.write(epoch, self._change(pod))
        except NotFound:
            self._gone(uid)
        except (VersionConflict, InvalidRequest):
            await self._fence_again(epoch, pod)
        else:
            self._pods.apply_write(pod, PODS.read(written))
            self.release(uid)

    async def _fence_again(self, epoch: int, pod: Pod) -> None:
        now = await self._look_at(pod)
        if now is not None:
            await self._candidate.write(epoch, self._change(now))
            self.release(pod.metadata.uid)

    async def _look_at(self, pod: Pod) -> Pod | None:
        """Return the current pod; None if it has a node or is deleted, which is entered in the books."""
        uid = pod.metadata.uid
        try:
            now = await self._api.get(PODS, pod.metadata.name, pod.metadata.namespace)
        except NotFound:
            self._gone(uid)
            return None
        if now.metadata.uid != uid:
            self._gone(uid)
            return None
        if now.spec.node_name:
            self.observe(now)
            return None
        return now

    def _change(self, pod: Pod) -> Patch:
        """Return the patch. It applies only to the version read, and its value differs from all earlier ones."""
        meta = pod.metadata
        written = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {"metadata": {**written, "annotations": {self._key: meta.resource_version}}}
        return Patch(PODS, meta.name, body, meta.namespace)
