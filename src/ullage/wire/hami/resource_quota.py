"""A ResourceQuota of Kubernetes, as far as it is about parts of cards: what API servers themselves do not count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ullage.model.quota import Caps, Quota
from ullage.wire.hami.containers import MIB
from ullage.wire.hami.words import Words
from ullage.wire.kubernetes_quantity import parse_quantity

_MOST_MIB = 2**30


def quota_of(hard: Iterable[Mapping[str, str]], words: Iterable[Words]) -> Quota | None:
    """The quota that these come to together: of each amount the smallest; None if none is about memory of cards.

    `hard` are those of the quotas of one namespace. `limits.nvidia.com/gpumem` (and the like of other vendors) is in
    MiB; 0 allows nothing. Whole cards (`requests.nvidia.com/gpu`) are counted by the API server when a pod is created.

    Raises:
        InvalidRequest: an amount cannot be read.

    """
    told = list(hard)
    amounts = [
        parse_quantity(each[key], key, maximum=_MOST_MIB) * one.memory_factor * MIB
        for one in words
        for each in told
        if (key := f"limits.{one.memory}") in each
    ]
    return Quota(total_limits=Caps(vram_bytes=min(amounts)), max_workers=None) if amounts else None
