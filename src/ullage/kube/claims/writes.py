"""Writes on ResourceClaims. Each step is one write, which the server refuses if the claim has changed since.

Only the pod's own reservation, and an allocation made here, are removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ullage.kube.client.api import KubeApi
from ullage.kube.client.changes import Patch, PatchType
from ullage.kube.client.errors import VersionConflict
from ullage.kube.client.kinds import RESOURCE_CLAIMS
from ullage.kube.client.lease import Candidate
from ullage.kube.client.objects import Object, Pod
from ullage.model.device_claim import DeviceClaim
from ullage.model.error import Conflict
from ullage.wire.document import Document
from ullage.wire.dra.allocation import Pick, allocation_body, reservation
from ullage.wire.dra.claim import FINALIZER


@dataclass(frozen=True, slots=True)
class ClaimWrites:
    """Writes within a leadership term.

    `mark` is the annotation that names the pod for which a claim was allocated. `queue_key` is the annotation that
    names the queue in which the claim counts; pods have a label of that name.
    """

    api: KubeApi
    candidate: Candidate
    mark: str
    queue_key: str
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def fresh(self, claim: DeviceClaim) -> Object:
        """Read the claim from the server.

        Raises:
            NotFound: it is deleted. Conflict: another claim has its name by now, or it is being deleted.

        """
        found = await self.api.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        if found.metadata.uid != claim.uid:
            raise Conflict(f"claim {claim.namespace}/{claim.name} was replaced by another claim", code="claim-replaced")
        if found.metadata.deletion_timestamp is not None:
            raise Conflict(f"claim {claim.namespace}/{claim.name} is being deleted", code="claim-deleting")
        return found

    async def allocate(
        self, epoch: int, pod: Pod, found: Object, classes: Mapping[str, Document], picks: Sequence[Pick], node: str
    ) -> Object:
        """Allocate these devices and reserve them for a pod, in one write after that of the finalizer.

        Raises:
            VersionConflict: another client has changed the claim.

        """
        if _status(found).get("allocation"):
            raise VersionConflict(f"claim {'/'.join(found.key)} was allocated by another client meanwhile")
        found = await self._protect(epoch, pod, found)
        now = self.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = allocation_body(found.document, classes, picks, node, share_id=lambda: str(uuid.uuid4()), now=now)
        return await self._set(epoch, found, body, [_user(pod)])

    async def reserve(self, epoch: int, pod: Pod, found: Object) -> Object:
        """Reserve an allocated claim for a pod.

        Raises:
            Conflict: it is no longer allocated. VersionConflict: another client has changed the claim.

        """
        status = _status(found)
        users = status.get("reservedFor") or []
        if not status.get("allocation"):
            raise Conflict(f"claim {'/'.join(found.key)} is not allocated any more", code="claim-deallocated")
        if any(user.get("uid") == pod.metadata.uid for user in users):
            return found
        return await self._set(epoch, found, status["allocation"], [*users, _user(pod)])

    async def free(self, epoch: int, uid: str, found: Object) -> Object:
        """Remove the reservation for a pod, and an allocation made here that has no users.

        A claim that was or might be allocated here is always written to. So no earlier write whose response was lost
        can take effect after this one.
        """
        status = _status(found)
        users, marked = status.get("reservedFor") or [], self.mark in (found.metadata.annotations or {})
        others = [user for user in users if user.get("uid") != uid]
        allocation = None if marked and not others else status.get("allocation")
        if allocation != status.get("allocation") or len(others) != len(users):
            found = await self._set(epoch, found, allocation, others)
        if marked and allocation is None:
            stated = {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}
            found = await self._patch(
                epoch, found, {"metadata": {**stated, "annotations": {self.mark: None, self.queue_key: None}}}
            )
        return found

    async def _protect(self, epoch: int, pod: Pod, found: Object) -> Object:
        finalizers = found.document["metadata"].get("finalizers") or []
        notes = found.metadata.annotations or {}
        if FINALIZER in finalizers and notes.get(self.mark) == pod.metadata.uid:
            return found
        wanted = {
            "uid": found.metadata.uid,
            "resourceVersion": found.metadata.resource_version,
            "finalizers": list(dict.fromkeys([*finalizers, FINALIZER])),
            "annotations": {
                self.mark: pod.metadata.uid,
                self.queue_key: (pod.metadata.labels or {}).get(self.queue_key),
            },
        }
        return await self._patch(epoch, found, {"metadata": wanted})

    async def _set(
        self, epoch: int, found: Object, allocation: dict[str, Any] | None, users: list[dict[str, Any]]
    ) -> Object:
        stated = {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}
        status = {"allocation": allocation, "reservedFor": users or None}
        return await self._patch(epoch, found, {"metadata": stated, "status": status}, "status")

    async def _patch(self, epoch: int, found: Object, body: dict[str, Any], subresource: str = "") -> Object:
        namespace, name = found.key
        change = Patch(RESOURCE_CLAIMS, name, body, namespace=namespace, type=PatchType.MERGE, subresource=subresource)
        return RESOURCE_CLAIMS.read(await self.candidate.write(epoch, change))


def _status(found: Object) -> dict[str, Any]:
    return dict(found.document.get("status") or {})


def _user(pod: Pod) -> dict[str, Any]:
    return reservation(pod.metadata.name, pod.metadata.uid)
