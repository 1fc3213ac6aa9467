"""What pods of one template share: all but their identity, which is their name, their uid and their creation."""

from __future__ import annotations

from dataclasses import replace

from ullage.model.family_ids import family_id
from ullage.wire.document import Document, text
from ullage.wire.pod.owner import moment
from ullage.wire.pod.request import PodRequest

IDENTITY = frozenset({"name", "generateName", "uid", "creationTimestamp", "selfLink"})
"""The fields of the metadata that pods of one template do not share."""


def with_identity(asked: PodRequest, metadata: Document) -> PodRequest:
    """Return the request of a pod from that of its template, which was read without identity.

    Raises:
        InvalidRequest: the time of its creation cannot be read.

    """
    uid = text(metadata.get("uid"))
    name = text(metadata.get("name")) or text(metadata.get("generateName"))
    created_at = moment(metadata.get("creationTimestamp"), 0.0)
    further = tuple(
        _identified(each, family_id(uid, number), uid, name=name, created_at=created_at)
        for number, each in enumerate(asked.further, start=1)
    )
    first = _identified(asked, uid, uid, name=name, created_at=created_at)
    return replace(first, further=further) if further else first


def _identified(asked: PodRequest, own: str, uid: str, *, name: str, created_at: float) -> PodRequest:
    protection = asked.claim.protected_until
    until = created_at + protection if protection else 0.0
    claim = replace(asked.claim, pod=name, pod_uid=uid, created_at=created_at, protected_until=until)
    return replace(asked, uid=own, claim=claim)
