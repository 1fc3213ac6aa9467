"""What HAMi's scheduler has chosen for a pod that it has not bound yet, as annotations of the pod say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache

from ullage.model.error import InvalidRequest
from ullage.model.quantity import MAX_INT32, parse_count
from ullage.wire.document import Document, section
from ullage.wire.hami.mig import MIG_ALLOCATIONS
from ullage.wire.hami.results import card_records, node_in
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod.containers import containers_of
from ullage.wire.vendors.family import Family

_MOST_SECONDS = 2**40


def choice_in(annotations: Mapping[str, str], families: tuple[Family, ...]) -> tuple[str, ...]:
    """Return what is written of a choice: two that are equal are one choice. Nothing if no node is named."""
    if not node_in(annotations, families):
        return ()
    return tuple(annotations.get(key, "") for key in (*_stamps(families), *card_records(families), MIG_ALLOCATIONS))


@cache
def _stamps(families: tuple[Family, ...]) -> tuple[str, ...]:
    """Return the annotations with the node and the time of a choice."""
    return tuple(dict.fromkeys(key for family in families for key in (family.results.node, family.results.time)))


def chosen_at(annotations: Mapping[str, str], families: tuple[Family, ...]) -> float | None:
    """Return the time of a choice in seconds since 1970; None if it is not stated, or cannot be read."""
    for rule in (family.results for family in families if annotations.get(family.results.node)):
        with suppress(InvalidRequest):
            return float(parse_count(annotations.get(rule.time, ""), rule.time, _MOST_SECONDS))
    return None


def requested_devices(pod: Document, families: Sequence[Family]) -> int:
    """Return how many devices the containers of a pod request of HAMi's plugins, also if their amounts are wrong.

    A container that states amounts alone requests one.
    """
    return sum(
        _devices({**section(container, "resources", "requests"), **section(container, "resources", "limits")}, family)
        for _, _, container in containers_of(section(pod, "spec"))
        for family in families
    )


def _devices(amounts: Document, family: Family) -> int:
    words = family.resources
    if words.count in amounts:
        with suppress(InvalidRequest):
            return parse_quantity(amounts[words.count], words.count, maximum=MAX_INT32)
        return 0
    return int(any(name and name in amounts for name in (words.memory, words.percent, words.cores)))
