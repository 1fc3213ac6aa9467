"""Pods whose cards are gone: a card is waited for, then its pods are told to leave, a few at a time.

A driver that comes up late, a node that is silent, and a card that comes back cost nobody anything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

GRACE_S = 300.0
"""How long a card is waited for."""

MOST = 5
"""Pods that are told to leave in one round. Who was and has not left comes after those who were not."""

_SLICE = re.compile(r"\[[^\]]*\]$")


class Holder(NamedTuple):
    """A pod that has not been told to end, by its uid, its node, and the cards that it was given."""

    uid: str
    node: str
    cards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vanished:
    """What a round found: per pod the cards that are waited for since this round, and pods that have to leave now."""

    quarantined: Mapping[str, tuple[str, ...]]
    leaving: tuple[str, ...]


class VanishedCards:
    """Since when cards are missing. `delay_s` is how long after the first round nothing is missed at all."""

    def __init__(self, delay_s: float, *, grace_s: float = GRACE_S, most: int = MOST) -> None:
        self._delay_s, self._grace_s, self._most = delay_s, grace_s, most
        self._began: float | None = None
        self._since: dict[str, float] = {}
        self._told: Counter[str] = Counter()

    def look(
        self, now: float, holders: Iterable[Holder], cards: Collection[str], speaking: Collection[str]
    ) -> Vanished:
        """One round at a time in seconds. `cards` are on some node, `speaking` are nodes that tell theirs."""
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
        leaving = sorted(due, key=lambda uid: (self._told[uid], uid))[: self._most]
        self._told = Counter({uid: self._told[uid] + (uid in leaving) for uid in due})
        quarantined = {uid: gone for uid, gone in missing.items() if not fresh.isdisjoint(gone)}
        return Vanished(quarantined, tuple(leaving))


def card_of(uuid: str) -> str:
    """A card by the name of it or of a slice of it: `UUID[0-1]` is on `UUID`."""
    return _SLICE.sub("", uuid)
