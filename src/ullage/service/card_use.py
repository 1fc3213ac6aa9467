"""The use of cards over the last hour: what is held of each, and how busy it is where its driver says so.

Samples are in memory only: they are a picture, not a record, and begin again with the server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.model.card_load import CardLoad
from ullage.model.quantity import PPM

SPAN_S = 3600.0
"""Seconds that are kept."""

STEP_S = 10.0
"""The least seconds between two samples."""


class Sample(NamedTuple):
    """One time: the fraction that is held of each card, and the load of those that are measured, by uuid."""

    at: float
    held: Mapping[str, float]
    load: Mapping[str, CardLoad]


class CardUse:
    """Samples of the last hour, the oldest first. One thread adds to it and reads it."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    @property
    def samples(self) -> Sequence[Sample]:
        """Return what was sampled so far."""
        return tuple(self._samples)

    def is_due(self, now: float) -> bool:
        """Return whether the last sample is old enough for another one."""
        return not self._samples or now - self._samples[-1].at >= STEP_S

    def add(self, now: float, fleet: Fleet, load: Iterable[CardLoad]) -> None:
        """Add what is held of each card of the books now, and what drivers measured."""
        held = {gpu.uuid: 1 - free_ppm(fleet, card) / PPM for card, gpu in enumerate(fleet.cards)}
        self._samples.append(Sample(now, held, {each.uuid: each for each in load}))
        while now - self._samples[0].at > SPAN_S:
            self._samples.popleft()


def free_ppm(fleet: Fleet, card: int) -> int:
    """Return the largest fraction of a card that is free, in millionths, rounded down."""
    if None in fleet.holders[card].values():
        return 0
    pairs = (
        (int(fleet.compute_free[card]), int(fleet.compute_total[card])),
        (int(fleet.vram_free[card]), int(fleet.vram_total[card])),
    )
    return min(max(0, free) * PPM // total for free, total in pairs if total)
