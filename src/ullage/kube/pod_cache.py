"""A cache of parsed pods: pods that differ in their identity alone, such as those of one Job, are parsed once."""

from __future__ import annotations

from typing import Any

import msgspec

from ullage.kube.client.unread_fields import CONTAINERS, OF_CONTAINERS, OF_SPEC
from ullage.kube.recent import Recent
from ullage.wire.dialect import PodReader, PodSettings
from ullage.wire.document import Document
from ullage.wire.pod import PodRequest, ReadPod
from ullage.wire.pod.gate import GATE_ANNOTATIONS
from ullage.wire.pod.keys import DOMAIN
from ullage.wire.pod.template import IDENTITY, with_identity

_MOST = 4096
"""Maximum number of cached templates, each of a few KB."""

_TYPE = frozenset({"apiVersion", "kind"})
"""A watch gives them, and kube-scheduler leaves them out."""

_UNREAD = IDENTITY | {"managedFields", "resourceVersion", "generation", "ownerReferences"}
_DECISIONS = frozenset({"nodeName", "schedulingGates"})


class CachedReader:
    """Reads pods as `settings` say, and caches the last templates."""

    def __init__(self, settings: PodSettings) -> None:
        self.settings = settings
        self._read = cached(PodReader(settings), settings.domain)

    def __call__(self, pod: Document) -> PodRequest | None:
        """Return the request of a pod; None if it requests no card; raise as `PodReader`."""
        return self._read(pod)


def cached(read: ReadPod, domain: str = DOMAIN) -> ReadPod:
    """Return a reader that caches the last templates. A pod whose request may have changed has another template.

    A request does not depend on what is decided about the pod, or on its versions: see `_read_fields`.
    """
    known: Recent[bytes, PodRequest | None] = Recent(_MOST)
    written = frozenset(f"{domain}/{name}" for name in GATE_ANNOTATIONS)

    def read_cached(pod: Document) -> PodRequest | None:
        metadata = pod.get("metadata")
        if not isinstance(metadata, dict):
            return read(pod)
        fields = _read_fields(pod, written)
        if fields in known:
            template = known[fields]
            known.move_to_end(fields)
        else:
            template = known[fields] = read({**pod, "metadata": _without(metadata, IDENTITY)})
        return None if template is None else with_identity(template, metadata)

    return read_cached


def _read_fields(pod: Document, written: frozenset[str]) -> bytes:
    """Return, as JSON, the fields of a pod that its request may depend on; of its status only the class of service.

    `written` are annotations about the place of the pod.
    """
    metadata, status = _without(pod.get("metadata"), _UNREAD), pod.get("status")
    if isinstance(metadata, dict) and "annotations" in metadata:
        left = _without(metadata.pop("annotations"), written)
        metadata |= {"annotations": left} if left else {}
    quality = status.get("qosClass") if isinstance(status, dict) else status
    fields = {
        **{key: value for key, value in pod.items() if key not in _TYPE},
        "metadata": metadata,
        "spec": _spec(pod.get("spec")),
        "status": quality,
    }
    return msgspec.json.encode(fields, order="sorted")


def _spec(spec: Any) -> Any:
    """Return a spec without what is decided about it, and what no client of the API keeps."""
    left = _without(spec, _DECISIONS | OF_SPEC)
    for name in CONTAINERS if isinstance(left, dict) else ():
        if isinstance(left.get(name), list):
            left[name] = [_without(each, OF_CONTAINERS) for each in left[name]]
    return left


def _without(found: Any, keys: frozenset[str]) -> Any:
    """Return an object without some keys; anything else as it is."""
    return {key: value for key, value in found.items() if key not in keys} if isinstance(found, dict) else found
