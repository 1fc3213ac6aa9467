"""The annotations and labels with which a pod requests something, in every dialect: fixed once it is placed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from ullage.wire.dialect import TENSOR_FUSION, PodSettings
from ullage.wire.pod.alignment import VOLCANO, VOLCANO_POLICY
from ullage.wire.unknown_keys import ASKED, LABELS


@cache
def request_annotations(settings: PodSettings) -> frozenset[str]:
    """Return the keys of all annotations that a request may have."""
    domains = (settings.domain, TENSOR_FUSION)
    own = (f"{domain}/{name}" for domain in domains for name in ASKED)
    theirs = (key for words in settings.hami for key in words.annotations())
    return frozenset((*own, *theirs, f"{VOLCANO}/{VOLCANO_POLICY}"))


@cache
def request_labels(settings: PodSettings) -> frozenset[str]:
    """Return the keys of all labels that a request may have."""
    return frozenset(f"{domain}/{name}" for domain in (settings.domain, TENSOR_FUSION) for name in LABELS)


def words_of(there: Mapping[str, str] | None, keys: frozenset[str]) -> dict[str, str]:
    """Return the annotations or labels with these keys."""
    return {key: value for key, value in (there or {}).items() if key in keys}


def changed(before: Mapping[str, object], after: Mapping[str, object], keys: Iterable[str]) -> list[str]:
    """Return those keys whose values differ, in order."""
    return sorted(key for key in keys if before.get(key) != after.get(key))
