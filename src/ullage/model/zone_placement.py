"""The place of an allocation in a machine, and how it is known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rank(StrEnum):
    """How a placement is known, best first; one of a better rank replaces the whole of it.

    OBSERVED was seen on the node, BOUND is committed but not yet seen, PREDICTED belongs to a draft.
    """

    OBSERVED = "observed"
    BOUND = "bound"
    PREDICTED = "predicted"


@dataclass(frozen=True, slots=True)
class ZonePlacement:
    """The zones, CPUs, devices and memory of one allocation on its node.

    `zones` are all zones that it touches, ascending (none: nothing was aligned); `cpus` are ids, ascending. `devices`
    has ids by resource (`gpu`: uuids of cards), sorted by resource. `memory` has bytes by zone. `rule` is the width
    rule by which it was chosen, "" if it was not chosen here. `amounts` has resources without ids, as (zone, resource,
    amount): bytes of huge pages, and from a source without ids, such as another scheduler, numbers of CPUs and
    devices.
    """

    zones: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    memory: tuple[tuple[int, int], ...] = ()
    rank: Rank = Rank.PREDICTED
    rule: str = ""
    amounts: tuple[tuple[int, str, int], ...] = ()
