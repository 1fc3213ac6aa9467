"""Where in a machine an allocation lies, and how well that is known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rank(StrEnum):
    """How well a placement is known, in falling order; what is known better replaces the whole of it.

    OBSERVED was seen on the node, BOUND is committed and not seen yet, PREDICTED is a draft's.
    """

    OBSERVED = "observed"
    BOUND = "bound"
    PREDICTED = "predicted"


@dataclass(frozen=True, slots=True)
class ZonePlacement:
    """The zones, CPUs, devices and memory of one allocation on its node.

    `zones` is the mask, ascending (empty: nothing was aligned); `cpus` are ids, ascending. `devices` has
    ids by resource (`gpu`: uuids of cards), sorted by resource. `memory` has bytes by zone. `rule` is the
    rule of the minimum width it was chosen by, "" if it was not chosen here.

    A source that knows no ids, such as another scheduler's word, leaves `amounts` instead: (zone,
    resource, amount) in whole units of that resource: CPUs, devices, bytes of huge pages.
    """

    zones: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    memory: tuple[tuple[int, int], ...] = ()
    rank: Rank = Rank.PREDICTED
    rule: str = ""
    amounts: tuple[tuple[int, str, int], ...] = ()
