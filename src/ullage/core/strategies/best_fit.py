"""Best fit and its opposite: what is left over decides. Best fit is what sessions are placed by."""

from __future__ import annotations

from ullage.core.fleet import Fleet
from ullage.core.strategies.strategy import best_cards
from ullage.model.request import ResourceRequirement

_FULL = 1 << 20
"""A whole node's worth of one term of the score; terms are integers so that every CPU agrees."""


class BestFit:
    """Nodes in use before empty ones, then the tightest; nodes without cards for work without cards.

    Whole cards come from the fullest zone that has enough, parts from the card they fill best.
    """

    name = "best-fit"
    _spread = False

    def node(self, fleet: Fleet, row: int, asked: ResourceRequirement, eligible: list[int]) -> int:
        """Three terms of what is left: cpu, memory, cards; before them whether the node is in use."""
        left = 0
        for free, total, need in (
            (fleet.cpu_free, fleet.cpu_total, asked.cpu_milli),
            (fleet.memory_free, fleet.memory_total, asked.memory_bytes),
        ):
            if need:
                left += (int(free[row]) - need) * _FULL // int(total[row])
        if asked.gpu_count:
            left += self._cards_left(fleet, row, asked, eligible)
        tight = left if self._spread else 3 * _FULL - left
        used = bool(fleet.workers(row))
        spares_cards = not asked.gpu_count and not fleet.gpu_total[row]
        return tight + 4 * _FULL * (used != self._spread) + 8 * _FULL * spares_cards

    def _cards_left(self, fleet: Fleet, row: int, asked: ResourceRequirement, eligible: list[int]) -> int:
        if asked.whole:
            return (int(fleet.gpu_free[row]) - asked.gpu_count) * _FULL // max(1, int(fleet.gpu_total[row]))
        chosen = self.pick(fleet, asked, eligible)
        return sum(self._left_on(fleet, card) for card in chosen) // len(chosen)

    @staticmethod
    def _left_on(fleet: Fleet, card: int) -> int:
        parts = (
            (int(fleet.compute_free[card]), int(fleet.compute_total[card])),
            (int(fleet.vram_free[card]), int(fleet.vram_total[card])),
        )
        return sum(free * _FULL // (2 * total) for free, total in parts if total)

    def card(self, fleet: Fleet, card: int, asked: ResourceRequirement) -> int:  # noqa: ARG002
        """The fuller the better; with spread the emptier."""
        left = self._left_on(fleet, card)
        return left if self._spread else _FULL - left

    def pick(self, fleet: Fleet, asked: ResourceRequirement, eligible: list[int]) -> list[int]:
        """Cards of one zone if a zone has enough, the fullest such zone first; else lowest positions."""
        count = asked.gpu_count
        if not asked.whole:
            return best_cards(self, fleet, asked, eligible)
        zones: dict[int, list[int]] = {}
        for card in eligible:
            zone = fleet.cards[card].numa_zone
            zones.setdefault(-1 if zone is None else zone, []).append(card)
        whole = [cards for _, cards in sorted(zones.items()) if len(cards) >= count]
        return min(whole, key=len)[:count] if whole else eligible[:count]


class Spread(BestFit):
    """Empty nodes and the loosest fit first, the emptiest card for a part."""

    name = "spread"
    _spread = True
