"""The past use of each queue and owner, from the stays of the history.

It is derived, so it is as durable as the history: a server that starts reads the same stays, and has the same sums.
Sums follow each stay that ends. So what an update costs depends on the stays that go on and on the owners it asks for,
and not on the past.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from ullage.model.history import HistoryQuery, Stay
from ullage.model.past_use import KEPT, DecayedUse, HalfLife, ShareKey, used_by
from ullage.service.store_port import Store

_PAGE = 10_000
"""Stays that are read at a time."""

NO_USE = DecayedUse()

_Key = TypeVar("_Key", bound=Hashable)


class _Ended(Generic[_Key]):
    """What is left of ended stays: one sum for each key, whatever their number."""

    def __init__(self, half_life: HalfLife, known: Mapping[_Key, tuple[DecayedUse, float]]) -> None:
        self._half_life, self._known = half_life, dict(known)
        """Sums, and at what time."""

    def copy(self) -> _Ended[_Key]:
        """Return a copy, for another thread."""
        return _Ended(self._half_life, self._known)

    def add(self, key: _Key, stay: Stay, ended_at: float) -> None:
        known, at = self._known.get(key, (NO_USE, ended_at))
        now = max(at, ended_at)
        self._known[key] = known.times(self._half_life.left(now - at)).plus(used_by(stay, self._half_life, now)), now

    def left(self, key: _Key, now: float) -> DecayedUse:
        found = self._known.get(key)
        if found is None:
            return NO_USE
        used, at = found
        return used.times(self._half_life.left(max(0.0, now - at)))

    def forget(self, oldest: float) -> None:
        self._known = {key: (used, at) for key, (used, at) in self._known.items() if at > oldest}

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._known)


class PastUse:
    """Sums of decayed use: of each queue, without those below it, and of each owner in it."""

    def __init__(self, half_life: HalfLife) -> None:
        self.half_life = half_life
        self._owners: _Ended[ShareKey] = _Ended(half_life, {})
        self._queues: _Ended[str] = _Ended(half_life, {})

    def copy(self) -> PastUse:
        """Return a copy, for another thread."""
        found = PastUse(self.half_life)
        found._owners, found._queues = self._owners.copy(), self._queues.copy()
        return found

    def read(self, store: Store, now: float) -> None:
        """Add the stays of the store that have ended."""
        for stay in _ended_stays(store, now - KEPT * self.half_life.seconds):
            self.add(stay)

    def add(self, stay: Stay) -> None:
        """Add a stay that has ended. A request for cards is in no queue, and is not counted."""
        if stay.session is not None and stay.ended_at is not None:
            self._owners.add(ShareKey(stay.queue, stay.owner), stay, stay.ended_at)
            self._queues.add(stay.queue, stay, stay.ended_at)

    def forget(self, now: float) -> None:
        """Forget that of which nothing is left."""
        oldest = now - KEPT * self.half_life.seconds
        self._owners.forget(oldest)
        self._queues.forget(oldest)

    def used(
        self, going_on: Iterable[Stay], now: float, owners: Collection[ShareKey] | None = None
    ) -> dict[ShareKey, DecayedUse]:
        """Return what is left now of each queue and of these owners, by default of all, with stays that go on."""
        found: dict[ShareKey, DecayedUse] = {}
        for stay in going_on:
            if stay.session is not None:
                used = used_by(stay, self.half_life, now)
                for key in (ShareKey(stay.queue, stay.owner), ShareKey(stay.queue)):
                    found[key] = found.get(key, NO_USE).plus(used)
        wanted = {*found, *self._owners} if owners is None else set(owners)
        sums = {key: self._owners.left(key, now) for key in wanted if key.owner is not None}
        sums |= {
            ShareKey(name): self._queues.left(name, now) for name in {*self._queues, *(key.queue for key in found)}
        }
        return {key: left.plus(found.get(key, NO_USE)) for key, left in sums.items()}


def _ended_stays(store: Store, since: float) -> Iterator[Stay]:
    after = 0
    while page := store.stays(HistoryQuery(since=since, after=after, limit=_PAGE)):
        yield from (stay for stay in page if stay.ended_at is not None)
        after = page[-1].number
