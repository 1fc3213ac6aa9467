"""Scores by how full cards are, 0 to 100, bit-exact with the TensorFusion GPU allocator.

`used = 100 - available / capacity * 100` and `free = available / capacity * 100` in IEEE doubles, in
this order; vram weighs 0.7 and compute 0.3; halves round away from zero; no capacity scores 0. A
node's score is the sum over all its cards, also those that do not fit, divided by their number
(rounded down), so that size is not load; `aggregate="sum"` leaves the sum.
"""

from __future__ import annotations

from math import floor

from ullage.core.fleet import Fleet
from ullage.core.strategies.strategy import best_cards
from ullage.model.part import Isolation, IsolationPolicy
from ullage.model.request import ResourceRequirement

VRAM_WEIGHT = 0.7
COMPUTE_WEIGHT = 0.3


class _ByLoad:
    name: str
    node_wants_full: bool
    card_wants_full: bool

    def __init__(
        self, vram_weight: float = VRAM_WEIGHT, compute_weight: float = COMPUTE_WEIGHT, aggregate: str = "mean"
    ) -> None:
        self._vram, self._compute, self._mean = vram_weight, compute_weight, aggregate == "mean"

    def node(self, fleet: Fleet, row: int, asked: ResourceRequirement, eligible: list[int]) -> int:  # noqa: ARG002
        """Mean score of the node's cards; those of another isolation mode are left out."""
        cards = [card for card in fleet.cards_on(row) if _compatible(fleet, card, asked)]
        total = sum(self._score(fleet, card, full=self.node_wants_full) for card in cards)
        return total // len(cards) if cards and self._mean else total

    def card(self, fleet: Fleet, card: int, asked: ResourceRequirement) -> int:  # noqa: ARG002
        """Score of one card."""
        return self._score(fleet, card, full=self.card_wants_full)

    def pick(self, fleet: Fleet, asked: ResourceRequirement, eligible: list[int]) -> list[int]:
        """The top cards by score."""
        return best_cards(self, fleet, asked, eligible)

    def _score(self, fleet: Fleet, card: int, *, full: bool) -> int:
        compute, vram = int(fleet.compute_total[card]), int(fleet.vram_total[card])
        if not compute or not vram:
            return 0
        compute_free = max(0, int(fleet.compute_free[card])) / compute * 100
        vram_free = max(0, int(fleet.vram_free[card])) / vram * 100
        if full:
            return self._norm(100 - vram_free, 100 - compute_free)
        return self._norm(vram_free, compute_free)

    def _norm(self, vram: float, compute: float) -> int:
        return min(100, max(0, floor(vram * self._vram + compute * self._compute + 0.5)))


def _compatible(fleet: Fleet, card: int, asked: ResourceRequirement) -> bool:
    gpu, mode = fleet.cards[card], asked.cards.isolation
    if mode is Isolation.SHARED or asked.part is None:
        return True
    if gpu.isolation_policy is IsolationPolicy.STATIC:
        return gpu.isolation in (None, mode)
    held = {Isolation.SHARED if charge is None else charge.isolation for charge in fleet.holders[card].values()}
    return held <= {mode}


class CompactFirst(_ByLoad):
    """Fill the fullest node, and on it the fullest card."""

    name = "compact-first"
    node_wants_full = True
    card_wants_full = True


class LowLoadFirst(_ByLoad):
    """The emptiest node, and on it the emptiest card."""

    name = "low-load-first"
    node_wants_full = False
    card_wants_full = False


class NodeCompactGpuLowLoad(_ByLoad):
    """Fill the fullest node, but spread over its cards."""

    name = "node-compact-gpu-low-load"
    node_wants_full = True
    card_wants_full = False
