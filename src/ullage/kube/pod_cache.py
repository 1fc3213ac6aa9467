"""A cache of parsed pods: a pod that appears in several consecutive requests is parsed once."""

from __future__ import annotations

from ullage.kube.recent import Recent
from ullage.wire.document import Document
from ullage.wire.pod import PodRequest, ReadPod

_MOST = 64
"""Maximum number of cached pods. A scheduler asks about one pod after another, and about few at a time."""


def cached(read: ReadPod) -> ReadPod:
    """Return a reader that caches the last pods. A pod that changed is parsed again."""
    known: Recent[str, tuple[Document, PodRequest | None]] = Recent(_MOST)

    def read_cached(pod: Document) -> PodRequest | None:
        metadata = pod.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, dict) else None
        if not isinstance(uid, str):
            return read(pod)
        last = known.pop(uid, None)
        found = read(pod) if last is None or last[0] != pod else last[1]
        known[uid] = pod, found
        return found

    return read_cached
