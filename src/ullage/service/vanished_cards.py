"""Pods whose cards are missing: after a grace period they are evicted, a few at a time.

Nothing is evicted because a driver starts late, a node does not report, or a card comes back in time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

GRACE_S = 300.0
"""Seconds for which a missing card is waited for."""

MOST = 5
"""The most pods to evict in one round. Pods that were named in earlier rounds come last."""

_SLICE = re.compile(r"\[[^\]]*\]$")


class PodCards(NamedTuple):
    """A pod that is not terminating: its uid, its node, and the cards that it was given."""

    uid: str
    node: str
    cards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vanished:
    """The result of a round: by pod, the cards missing since this round; and the pods to evict now."""

    quarantined: Mapping[str, tuple[str, ...]]
    leaving: tuple[str, ...]


class VanishedCards:
    """Remembers since when cards are missing. In the first `delay_s` seconds no card counts as missing."""

    def __init__(self, delay_s: float, *, grace_s: float = GRACE_S, most: int = MOST) -> None:
        self._delay_s, self._grace_s, self._most = delay_s, grace_s, most
        self._began: float | None = None
        self._since: dict[str, float] = {}
        self._named: Counter[str] = Counter()

    def look(
        self, now: float, holders: Iterable[PodCards], cards: Collection[str], speaking: Collection[str]
    ) -> Vanished:
        """Run one round at `now` (seconds). `cards` exist on some node; `speaking` are the nodes that report theirs."""
        self._began = now if self._began is None else self._began
        if now < self._began + self._delay_s:
            return Vanished({}, ())
        missing = {
            each.uid: gone
            for each in holders
            if each.node in speaking and (gone := tuple(card for card in map(card_of, each.cards) if card not in cards))
        }
        waited = {card for gone in missing.values() for card in gone}
        fresh = waited - self._since.keys()
        self._since = {card: self._since.get(card, now) for card in waited}
        due = [uid for uid, gone in missing.items() if any(self._since[card] + self._grace_s <= now for card in gone)]
        leaving = sorted(due, key=lambda uid: (self._named[uid], uid))[: self._most]
        self._named = Counter({uid: self._named[uid] + (uid in leaving) for uid in due})
        quarantined = {uid: gone for uid, gone in missing.items() if not fresh.isdisjoint(gone)}
        return Vanished(quarantined, tuple(leaving))


def card_of(uuid: str) -> str:
    """Return the card of a uuid, which may be that of a slice: `UUID[0-1]` is on `UUID`."""
    return _SLICE.sub("", uuid)
