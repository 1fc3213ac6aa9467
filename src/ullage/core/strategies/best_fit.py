"""Best fit and its opposite: what is left over decides. Best fit is what sessions are placed by."""

from __future__ import annotations

from ullage.core.fleet import Fleet
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
        if asked.cpu_milli:
            left += (fleet.cpu_free.item(row) - asked.cpu_milli) * _FULL // fleet.cpu_total.item(row)
        if asked.memory_bytes:
            left += (fleet.memory_free.item(row) - asked.memory_bytes) * _FULL // fleet.memory_total.item(row)
        if asked.gpu_count:
            left += self._cards_left(fleet, row, asked, eligible)
        tight = left if self._spread else 3 * _FULL - left
        used = bool(fleet.workers(row))
        spares_cards = not asked.gpu_count and not fleet.gpu_total.item(row)
        return tight + 4 * _FULL * (used != self._spread) + 8 * _FULL * spares_cards

    def _cards_left(self, fleet: Fleet, row: int, asked: ResourceRequirement, eligible: list[int]) -> int:
        if asked.whole:
            return (fleet.gpu_free.item(row) - asked.gpu_count) * _FULL // max(1, fleet.gpu_total.item(row))
        chosen = self._tightest(fleet, asked, eligible)
        return sum(left for left, _, _ in chosen) // len(chosen)

    def _tightest(self, fleet: Fleet, asked: ResourceRequirement, eligible: list[int]) -> list[tuple[int, str, int]]:
        """The best cards for parts with what is left on them; ties by uuid."""
        found = [(self._left_on(fleet, card), fleet.cards[card].uuid, card) for card in eligible]
        found.sort(key=_loosest if self._spread else None)
        return found[: asked.gpu_count]

    @staticmethod
    def _left_on(fleet: Fleet, card: int) -> int:
        gpu = fleet.cards[card]
        compute, vram = gpu.compute, gpu.vram
        left: int = fleet.compute_free.item(card) * _FULL // (2 * compute) if compute else 0
        return left + fleet.vram_free.item(card) * _FULL // (2 * vram) if vram else left

    def card(self, fleet: Fleet, card: int, asked: ResourceRequirement) -> int:  # noqa: ARG002
        """The fuller the better; with spread the emptier."""
        left = self._left_on(fleet, card)
        return left if self._spread else _FULL - left

    def pick(self, fleet: Fleet, asked: ResourceRequirement, eligible: list[int]) -> list[int]:
        """Cards of one zone if a zone has enough, the fullest such zone first; else lowest positions."""
        count = asked.gpu_count
        if not asked.whole:
            return [card for _, _, card in self._tightest(fleet, asked, eligible)]
        zones: dict[int, list[int]] = {}
        for card in eligible:
            zone = fleet.cards[card].numa_zone
            zones.setdefault(-1 if zone is None else zone, []).append(card)
        whole = [cards for _, cards in sorted(zones.items()) if len(cards) >= count]
        return min(whole, key=len)[:count] if whole else eligible[:count]


def _loosest(found: tuple[int, str, int]) -> tuple[int, str]:
    return -found[0], found[1]


class Spread(BestFit):
    """Empty nodes and the loosest fit first, the emptiest card for a part."""

    name = "spread"
    _spread = True
