"""Values that many objects have in common are kept once: a large cluster has tens of thousands of pods.

The pods of one workload have equal labels, those on one node equal specs as far as these are parsed, and most are in
one phase. Only the values of recent objects are known, so that none is kept for long after its last object.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TypeVar

from msgspec.structs import force_setattr

from ullage.kube.client.objects import Object, Phase, Pod, PodSpec
from ullage.wire.shared import shared_texts

_SHORT = 32
"""Characters of the longest texts that many objects have: names of nodes, phases, times in seconds."""

T = TypeVar("T", PodSpec, Phase)


def share_values(found: Object) -> None:
    """Replace values of an object that was just parsed by equal ones of other objects."""
    metadata = found.metadata
    force_setattr(metadata, "namespace", sys.intern(metadata.namespace))
    annotations = metadata.annotations or {}
    for key, value in annotations.items():
        if len(value) <= _SHORT:
            annotations[key] = sys.intern(value)
    if metadata.labels is not None:
        force_setattr(metadata, "labels", shared_texts(tuple(metadata.labels.items())))
    if isinstance(found, Pod):
        force_setattr(found, "spec", _shared(found.spec))
        force_setattr(found, "status", _shared(found.status))


@lru_cache(16384)
def _shared(value: T) -> T:
    return value
