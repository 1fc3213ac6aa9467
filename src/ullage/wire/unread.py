"""Annotations under our domain that nobody reads: a request that is misspelt would be none, without a word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from ullage.wire.dialect import CARD_KEYS
from ullage.wire.pod.bind import OUTPUT
from ullage.wire.pod.gate import NOTES
from ullage.wire.pod.keys import DOMAIN

ASKED = (
    *CARD_KEYS,
    *("qos", "eviction-protection", "workload", "partition-id", "numa-policy", "numa-pairs"),
    *("gang-enabled", "gang-group-key", "gang-min-members", "gang-required-members", "gang-desired-members"),
    *("gang-timeout", "gang-domain", "gang-within"),
)
"""What whoever makes a pod may say of it."""

_WRITTEN = (*OUTPUT, *NOTES, "fence", "bindings-changed", "topology")
"""What is written on pods of a scheduler, and copied with them."""


def unread(annotations: Iterable[str], domain: str = DOMAIN) -> Iterator[str]:
    """Of each key under the domain that is not known, that it is not, and which one may have been meant."""
    known = {*ASKED, *_WRITTEN}
    for key in annotations:
        whose, _, name = key.partition("/")
        if whose == domain and name not in known:
            near = get_close_matches(name, ASKED, 1)
            meant = f"; did you mean {domain}/{near[0]}?" if near else ""
            yield f"metadata.annotations.{key}: nobody reads it{meant}"
