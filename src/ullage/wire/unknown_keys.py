"""Unknown annotations and labels under our domain: a misspelt request would otherwise be ignored silently.

A pod may have thousands of keys: similar known keys are searched for the first of them only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ullage.model.nearest import nearest
from ullage.wire.dialect import LABELS, REQUEST_ANNOTATIONS, TENSOR_FUSION
from ullage.wire.document import Document, mapping
from ullage.wire.dra.made_claim import ASKED_CLAIMS
from ullage.wire.hami.results import result_keys
from ullage.wire.pod.bind import OUTPUT
from ullage.wire.pod.containers import containers_of
from ullage.wire.pod.gate import GATE_ANNOTATIONS, QUEUE
from ullage.wire.pod.keys import DOMAIN
from ullage.wire.vendors.family import ANNOTATIONS, Family
from ullage.wire.vendors.shipped import FAMILIES, NATIVE_RESOURCES, NVIDIA, by_resource

_WRITTEN = (*OUTPUT, *GATE_ANNOTATIONS, "fence", "bindings-changed", "topology", ASKED_CLAIMS)
"""Annotations that a scheduler writes on its pods, and that are copied with them."""


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """An unknown key, and the similar known key ("" if there is none); `kind` is its section of the metadata."""

    key: str
    similar: str = ""
    kind: str = "annotations"
    similar_kind: str = "annotations"

    def __str__(self) -> str:
        where = "" if self.kind == self.similar_kind else f" under {self.similar_kind}"
        meant = f"; did you mean {self.similar}{where}?" if self.similar else ""
        return f"metadata.{self.kind}.{self.key}: it is not read{meant}"


def unknown_annotations(
    annotations: Iterable[str], domain: str = DOMAIN, families: tuple[Family, ...] = FAMILIES
) -> Iterator[UnknownKey]:
    """Yield each unknown key under our domain and under those of other schedulers whose annotations are read.

    Of any other domain, yield the keys that are similar to a known key.
    """
    table, near = _annotations_of(domain, families), _Near()
    for key in annotations:
        if key in table.known:
            continue
        whose, _, name = key.partition("/")
        meant = table.elsewhere.get(name, "") if whose in table.read else ""
        meant = meant or near.of(key, table.own if whose == domain else table.asked)
        if whose == domain and name == QUEUE:
            yield UnknownKey(key, key, similar_kind="labels")
        elif meant or whose in (domain, TENSOR_FUSION, ANNOTATIONS):
            yield UnknownKey(key, meant)


def unknown_labels(
    labels: Iterable[str], domain: str = DOMAIN, families: tuple[Family, ...] = FAMILIES
) -> Iterator[UnknownKey]:
    """Yield each label that would be a request as an annotation, or that is similar to a known label."""
    asked = {*_asked(domain), *_asked(TENSOR_FUSION), *_keys_of(families)}
    known = {f"{whose}/{name}" for whose in (domain, TENSOR_FUSION) for name in LABELS}
    near = _Near()
    for key in labels:
        if key in known:
            continue
        if key in asked:
            yield UnknownKey(key, key, "labels")
        elif meant := near.of(key, {f"{domain}/{name}" for name in LABELS}):
            yield UnknownKey(key, meant, "labels", "labels")


def unknown_resources(pod: Document, families: tuple[Family, ...] = FAMILIES) -> Iterator[str]:
    """Yield a sentence for each resource of a container under the prefix of a vendor that is no request for its cards.

    Slices of a name that is not read (`nvidia.com/mig-1g.10gb.shared`) are left to the scheduler.
    """
    known, vendors = _resources_of(families)
    near, seen = _Near(), set[str]()
    for _, path, container in containers_of(mapping(pod.get("spec"), "spec")):
        resources = mapping(container.get("resources"), f"{path}.resources")
        for kind in ("limits", "requests"):
            for name in mapping(resources.get(kind), f"{path}.resources.{kind}"):
                unread_here = _domain(name) in vendors and name not in known and not _name(name).startswith(_SLICES)
                if not unread_here or name in seen:
                    continue
                seen.add(name)
                meant = near.of(name, {each for each in known if _domain(each) == _domain(name)})
                fix = f"; did you mean {meant}?" if meant else ""
                yield f"{path}.resources.{kind}.{name}: it is not read as a request for cards{fix}"


@dataclass(frozen=True, slots=True)
class _Annotations:
    """The `own` annotations of requests, all that are `asked`, all that are `known`, and the domains that are `read`.

    `elsewhere` has the key by the name that it has in its domain.
    """

    own: frozenset[str]
    asked: frozenset[str]
    known: frozenset[str]
    read: frozenset[str]
    elsewhere: Mapping[str, str]


@cache
def _annotations_of(domain: str, families: tuple[Family, ...]) -> _Annotations:
    theirs, own = _keys_of(families), frozenset(_asked(domain))
    asked = own | _asked(TENSOR_FUSION) | set(theirs)
    return _Annotations(
        own,
        asked,
        known=asked | {f"{domain}/{name}" for name in _WRITTEN} | set(result_keys(families)),
        read=frozenset((domain, TENSOR_FUSION, ANNOTATIONS, *map(_domain, theirs))),
        elsewhere={_name(each): each for each in (*theirs, *own)},
    )


class _Resources(NamedTuple):
    """The names of resources that are requests for cards, and the domains of these."""

    known: frozenset[str]
    domains: frozenset[str]


@cache
def _resources_of(families: tuple[Family, ...]) -> _Resources:
    known = frozenset((*NATIVE_RESOURCES, *by_resource(families)))
    return _Resources(known, frozenset(map(_domain, known)))


@cache
def _keys_of(families: tuple[Family, ...]) -> tuple[str, ...]:
    """Return the annotations of requests of all families; those of NVIDIA last, as the most likely ones."""
    last = sorted(families, key=lambda family: family.name == NVIDIA.name)
    return tuple(dict.fromkeys(key for family in last for key in family.annotation_keys()))


class _Near:
    """Looks for the known key that is similar to a key, in a limited number of searches."""

    def __init__(self) -> None:
        self._left = _SEARCHES

    def of(self, key: str, known: Iterable[str]) -> str:
        """Return the known key that is similar to a key in any case of its letters; "" if there is none."""
        if self._left <= 0:
            return ""
        self._left -= 1
        candidates = {each.casefold(): each for each in known if abs(len(each) - len(key)) <= _LONGER}
        found = nearest(key.casefold(), candidates, _LIKE)
        if found is None or nearest(_name(key).casefold(), [_name(found)], _NAME_LIKE) is None:
            return ""
        return candidates[found]


def _name(key: str) -> str:
    return key.partition("/")[2]


def _domain(key: str) -> str:
    return key.partition("/")[0]


def _asked(domain: str) -> set[str]:
    return {f"{domain}/{name}" for name in REQUEST_ANNOTATIONS}


_SLICES = "mig-"
"""The begin of the names of hardware slices."""
_LIKE = 0.85
"""The least similarity of two keys of which one may be a misspelling of the other."""
_NAME_LIKE = 0.65
"""The least similarity of the names without their domains, which all keys share."""
_LONGER = 3
"""The largest difference of their lengths in characters."""
_SEARCHES = 64
"""The most keys of one pod for which a similar one is searched."""
