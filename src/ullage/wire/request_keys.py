"""The labels with which a pod requests something, and the comparison of its annotations and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from ullage.wire.dialect import TENSOR_FUSION, PodSettings
from ullage.wire.unknown_keys import LABELS


@cache
def request_labels(settings: PodSettings) -> frozenset[str]:
    """Return the keys of all labels that a request may have."""
    return frozenset(f"{domain}/{name}" for domain in (settings.domain, TENSOR_FUSION) for name in LABELS)


def select_keys(there: Mapping[str, str] | None, keys: frozenset[str]) -> dict[str, str]:
    """Return the annotations or labels with these keys."""
    return {key: value for key, value in (there or {}).items() if key in keys}


def changed_keys(before: Mapping[str, object], after: Mapping[str, object], keys: Iterable[str]) -> list[str]:
    """Return those keys whose values differ, in order."""
    return sorted(key for key in keys if before.get(key) != after.get(key))
