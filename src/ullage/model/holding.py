"""Holdings observed on a node: the containers of pods, with CPUs, devices and memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ullage.model.quantity import check_amount
from ullage.model.topology import CARD, MAX_ZONE_BYTES, MAX_ZONES


@dataclass(frozen=True, slots=True)
class MemoryHolding:
    """Bytes of memory, or of huge pages (`kind` is `hugepages-2Mi`), taken from these zones as a group.

    Raises:
        InvalidRequest: the amount is negative or too large (`amount-out-of-range`).

    """

    kind: str
    zones: tuple[int, ...]
    amount_bytes: int

    def __post_init__(self) -> None:
        check_amount(self.amount_bytes, self.kind, MAX_ZONES * MAX_ZONE_BYTES)


@dataclass(frozen=True, slots=True)
class Holding:
    """The holding of one container: exclusive CPUs, ascending, and the ids of devices by resource (`gpu` for cards).

    `counts` are numbers of devices, by resource, from a source that does not name them.
    """

    container: str
    cpus: tuple[int, ...] = ()
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    memory: tuple[MemoryHolding, ...] = ()


@dataclass(frozen=True, slots=True)
class PodHolding:
    """The holdings of a pod. A source knows its uid, or its namespace and name, or both; "" is not known."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    containers: tuple[Holding, ...] = ()


ZoneAmounts = tuple[tuple[int, str, int], ...]
"""Amounts by zone: the zone, the resource (`memory` and huge pages in bytes), and how much of it."""


@dataclass(frozen=True, slots=True)
class Use:
    """All holdings on a node. `stale`: they come from a file that may still name pods that have ended."""

    pods: tuple[PodHolding, ...] = ()
    stale: bool = False


def card_ids(containers: Iterable[Holding]) -> Iterator[str]:
    """Yield the ids of cards that containers hold; the id of a part of a card begins with the card's (`GPU-1::2`)."""
    for container in containers:
        for resource, ids in container.devices:
            if resource == CARD:
                yield from (id_.partition("::")[0] for id_ in ids)
