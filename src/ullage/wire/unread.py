"""Annotations under our domain that nobody reads: a request that is misspelt would be none, without a word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ullage.model.nearest import nearest
from ullage.wire.dialect import CARD_KEYS, TENSOR_FUSION
from ullage.wire.hami.results import OUTPUT as HAMI_OUTPUT
from ullage.wire.hami.words import NVIDIA
from ullage.wire.pod.bind import OUTPUT
from ullage.wire.pod.card_topology import TOPOLOGY_KEYS
from ullage.wire.pod.gate import NOTES
from ullage.wire.pod.keys import DOMAIN

ASKED = (
    *CARD_KEYS,
    *("qos", "eviction-protection", "workload", "partition-id", "numa-policy", "numa-pairs"),
    *TOPOLOGY_KEYS,
    *("gang-enabled", "gang-group-key", "gang-min-members", "gang-required-members", "gang-desired-members"),
    *("gang-timeout", "gang-domain", "gang-within"),
)
"""What whoever makes a pod may say of it."""

_WRITTEN = (*OUTPUT, *NOTES, "fence", "bindings-changed", "topology")
"""What is written on pods of a scheduler, and copied with them."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A key that nobody reads, and which one may have been meant ("": none is like it)."""

    key: str
    meant: str = ""

    def __str__(self) -> str:
        meant = f"; did you mean {self.meant}?" if self.meant else ""
        return f"metadata.annotations.{self.key}: nobody reads it{meant}"


def unread(annotations: Iterable[str], domain: str = DOMAIN) -> Iterator[Unread]:
    """Each key under the domain that is not known; of other schedulers those that are like one that is read here."""
    own = {f"{domain}/{name}" for name in ASKED}
    written = {f"{domain}/{name}" for name in _WRITTEN}
    others = {f"{TENSOR_FUSION}/{name}" for name in ASKED} | set(NVIDIA.annotations())
    known = own | written | others | set(HAMI_OUTPUT)
    for key in annotations:
        whose = key.partition("/")[0]
        if key in known:
            continue
        if whose == domain:
            yield Unread(key, nearest(key, own, _LIKE) or "")
        elif near := nearest(key, others, _LIKE):
            yield Unread(key, near)


_LIKE = 0.85
"""How alike two keys are, of which one may be the other misspelt."""
