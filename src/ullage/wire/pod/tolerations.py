"""The tolerations of a pod, or of a request of a claim, for taints of nodes and devices."""

from __future__ import annotations

from functools import lru_cache

from ullage.model.taint import Toleration
from ullage.wire.document import Document, mappings, text

_MOST = 1024


def tolerations_of(spec: Document, path: str = "spec.tolerations") -> tuple[Toleration, ...]:
    """Return the tolerations in the given order. Equal ones of many pods are kept once.

    Raises:
        InvalidRequest: they are not a list of mappings.

    """
    listed = spec.get("tolerations")
    return _shared(tuple(_toleration(each) for _, each in mappings(listed, path))) if listed else ()


def _toleration(raw: Document) -> Toleration:
    operator = text(raw.get("operator")) or "Equal"
    return Toleration(text(raw.get("key")), operator, text(raw.get("value")), text(raw.get("effect")))


@lru_cache(_MOST)
def _shared(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    return tolerations
