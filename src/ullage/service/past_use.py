"""The past use of each queue and owner, from the stays of the history.

It is derived, so it is as durable as the history: a server that starts reads the same stays, and has the same sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ullage.model.history import HistoryQuery, Stay
from ullage.model.past_use import KEPT, DecayedUse, HalfLife, ShareKey, used_by
from ullage.service.store_port import Store

_PAGE = 10_000
"""Stays that are read at a time."""


class PastUse:
    """Sums of decayed use. Of ended stays there is one sum for each queue and owner, whatever their number."""

    def __init__(self, half_life: HalfLife) -> None:
        self.half_life = half_life
        self._ended: dict[ShareKey, tuple[DecayedUse, float]] = {}
        """What is left of ended stays, and at what time."""

    def read(self, store: Store, now: float) -> None:
        """Add the stays of the store that have ended."""
        for stay in _ended_stays(store, now - KEPT * self.half_life.seconds):
            self.add(stay)

    def add(self, stay: Stay) -> None:
        """Add a stay that has ended. A request for cards is in no queue, and is not counted."""
        if stay.session is None or stay.ended_at is None:
            return
        key = ShareKey(stay.queue, stay.owner)
        known, at = self._ended.get(key, (DecayedUse(), stay.ended_at))
        now = max(at, stay.ended_at)
        self._ended[key] = known.times(self.half_life.left(now - at)).plus(used_by(stay, self.half_life, now)), now

    def sums(self, going_on: Iterable[Stay], now: float) -> dict[ShareKey, DecayedUse]:
        """Return what is left now, with stays that go on; forget that of which nothing is left."""
        oldest = now - KEPT * self.half_life.seconds
        self._ended = {key: (used, at) for key, (used, at) in self._ended.items() if at > oldest}
        found = {key: used.times(self.half_life.left(max(0.0, now - at))) for key, (used, at) in self._ended.items()}
        for stay in going_on:
            if stay.session is not None:
                key = ShareKey(stay.queue, stay.owner)
                found[key] = found.get(key, DecayedUse()).plus(used_by(stay, self.half_life, now))
        return found


def _ended_stays(store: Store, since: float) -> Iterator[Stay]:
    after = 0
    while page := store.stays(HistoryQuery(since=since, after=after, limit=_PAGE)):
        yield from (stay for stay in page if stay.ended_at is not None)
        after = page[-1].number
