"""Annotations and labels under our domain that nobody reads: a request that is misspelt would be none, without a word.

Whoever makes a pod may write thousands of keys: what is like a known key is looked for among the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ullage.model.nearest import nearest
from ullage.wire.dialect import CARD_KEYS, TENSOR_FUSION
from ullage.wire.hami.results import OUTPUT as HAMI_OUTPUT
from ullage.wire.hami.words import ANNOTATIONS, NVIDIA
from ullage.wire.pod.bind import OUTPUT
from ullage.wire.pod.card_topology import TOPOLOGY_KEYS
from ullage.wire.pod.gate import NOTES, QUEUE
from ullage.wire.pod.keys import DOMAIN

ASKED = (
    *CARD_KEYS,
    *("qos", "eviction-protection", "workload", "partition-id", "numa-policy", "numa-pairs"),
    *TOPOLOGY_KEYS,
    *("gang-enabled", "gang-group-key", "gang-min-members", "gang-required-members", "gang-desired-members"),
    *("gang-timeout", "gang-domain", "gang-within"),
)
"""What whoever makes a pod may say of it."""

LABELS = (QUEUE, "workload")
"""What is read of labels under a domain of ours."""

_WRITTEN = (*OUTPUT, *NOTES, "fence", "bindings-changed", "topology")
"""What is written on pods of a scheduler, and copied with them."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A key that nobody reads, and which one may have been meant ("": none is like it); `kind` is where it stands."""

    key: str
    meant: str = ""
    kind: str = "annotations"
    meant_kind: str = "annotations"

    def __str__(self) -> str:
        where = "" if self.kind == self.meant_kind else f" under {self.meant_kind}"
        meant = f"; did you mean {self.meant}{where}?" if self.meant else ""
        return f"metadata.{self.kind}.{self.key}: nobody reads it{meant}"


def unread(annotations: Iterable[str], domain: str = DOMAIN) -> Iterator[Unread]:
    """Each key under our domain and those of others whose words are read that is not known.

    Of any other domain, the keys that are like one that is read here.
    """
    own, others = _asked(domain), {*_asked(TENSOR_FUSION), *NVIDIA.annotations()}
    written = {f"{domain}/{name}" for name in _WRITTEN}
    known = {*own, *others, *written, *HAMI_OUTPUT}
    read = {domain, TENSOR_FUSION, ANNOTATIONS, NVIDIA.domain}
    elsewhere = {_name(each): each for each in (*NVIDIA.annotations(), *own)}
    near = _Near()
    for key in annotations:
        if key in known:
            continue
        whose, _, name = key.partition("/")
        meant = near.of(key, own if whose == domain else own | others)
        if not meant and whose in read:
            meant = elsewhere.get(name, "")
        if whose == domain and name == QUEUE:
            yield Unread(key, key, meant_kind="labels")
        elif meant or whose in (domain, TENSOR_FUSION, ANNOTATIONS):
            yield Unread(key, meant)


def unread_labels(labels: Iterable[str], domain: str = DOMAIN) -> Iterator[Unread]:
    """Each label that would be a request if it were an annotation, and those that are like a label that is read."""
    asked = {*_asked(domain), *_asked(TENSOR_FUSION), *NVIDIA.annotations()}
    known = {f"{whose}/{name}" for whose in (domain, TENSOR_FUSION) for name in LABELS}
    near = _Near()
    for key in labels:
        if key in known:
            continue
        if key in asked:
            yield Unread(key, key, "labels")
        elif meant := near.of(key, {f"{domain}/{name}" for name in LABELS}):
            yield Unread(key, meant, "labels", "labels")


class _Near:
    """Looks for the known key that another one is like, so often and no more."""

    def __init__(self) -> None:
        self._left = _SEARCHES

    def of(self, key: str, known: Iterable[str]) -> str:
        """Return the known key that a key is like in any case of its letters; "" if none is."""
        if self._left <= 0:
            return ""
        self._left -= 1
        alike = {each.casefold(): each for each in known if abs(len(each) - len(key)) <= _LONGER}
        found = nearest(key.casefold(), alike, _LIKE)
        if found is None or nearest(_name(key).casefold(), [_name(found)], _NAME_LIKE) is None:
            return ""
        return alike[found]


def _name(key: str) -> str:
    return key.partition("/")[2]


def _asked(domain: str) -> set[str]:
    return {f"{domain}/{name}" for name in ASKED}


_LIKE = 0.85
"""How alike two keys are, of which one may be the other misspelt."""
_NAME_LIKE = 0.65
"""How alike they are without their domains, which all keys share."""
_LONGER = 3
"""By how many letters one of them is longer at most."""
_SEARCHES = 64
"""Keys of one pod for which one is looked for that may have been meant."""
