"""How the cards of a pod are split between its containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from ullage.model.counted import counted
from ullage.model.error import invalid
from ullage.wire.pod.keys import Keys

_Count = Annotated[int, msgspec.Meta(ge=0)]


def container_gpu_counts(keys: Keys, count: int) -> dict[str, int]:
    """Return the cards per container, which add up to `count`; nothing if they are not split."""
    counts = keys.json("container-gpu-count", dict[str, _Count], 'write JSON such as {"main": 2, "helper": 1}')
    if counts and sum(counts.values()) != count:
        fix = f"the counts add up to {sum(counts.values())}, the pod requests {counted(count, 'card')}; make them equal"
        raise keys.invalid("container-gpu-count", fix)
    return counts or {}


def split_container_gpus(counts: Mapping[str, int], gpus: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the cards of each container by name: in the order of `gpus`, to the sorted names."""
    if any(count < 0 for count in counts.values()) or sum(counts.values()) != len(gpus):
        raise invalid("container-gpu-count", dict(counts), f"the counts must add up to {len(gpus)}")
    split, start = {}, 0
    for name in sorted(counts):
        split[name] = tuple(gpus[start : start + counts[name]])
        start += counts[name]
    return split
