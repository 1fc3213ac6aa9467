"""Scores by how full cards are, 0 to 100, bit-exact with the TensorFusion GPU allocator.

`used = 100 - available / capacity * 100` and `free = available / capacity * 100` in IEEE doubles, in
this order; vram weighs 0.7 and compute 0.3; halves round away from zero; no capacity scores 0. A
node's score is the sum over all its cards, also those that do not fit, divided by their number
(rounded down), so that size is not load; `aggregate="sum"` leaves the sum. Cards on which the request's
isolation is not possible are left out; one that is still pending counts a quarter.
"""

from __future__ import annotations

from math import floor

from ullage.core.filters import ISOLATION
from ullage.core.fleet import Fleet
from ullage.core.strategies.strategy import best_cards
from ullage.model.gpu import GpuPhase
from ullage.model.request import ResourceRequirement

VRAM_WEIGHT = 0.7
COMPUTE_WEIGHT = 0.3
_PENDING_SHARE = 4
_HALF = 0.5


class _ByLoad:
    name: str
    node_wants_full: bool
    card_wants_full: bool

    def __init__(
        self, vram_weight: float = VRAM_WEIGHT, compute_weight: float = COMPUTE_WEIGHT, aggregate: str = "mean"
    ) -> None:
        self._vram, self._compute, self._mean = vram_weight, compute_weight, aggregate == "mean"

    def node(self, fleet: Fleet, row: int, asked: ResourceRequirement, eligible: list[int]) -> int:  # noqa: ARG002
        """Mean score of the node's cards; those without the request's isolation are left out."""
        cards = [card for card in fleet.cards_on(row) if ISOLATION.first(fleet, card, asked) is None]
        total = sum(self._score(fleet, card, full=self.node_wants_full) for card in cards)
        return total // len(cards) if cards and self._mean else total

    def card(self, fleet: Fleet, card: int, asked: ResourceRequirement) -> int:  # noqa: ARG002
        """Score of one card."""
        return self._score(fleet, card, full=self.card_wants_full)

    def pick(self, fleet: Fleet, asked: ResourceRequirement, eligible: list[int]) -> list[int]:
        """The top cards by score."""
        return best_cards(self, fleet, asked, eligible)

    def _score(self, fleet: Fleet, card: int, *, full: bool) -> int:
        compute, vram = fleet.compute_total.item(card), fleet.vram_total.item(card)
        if not compute or not vram:
            return 0
        compute_free = max(0, fleet.compute_free.item(card)) / compute * 100
        vram_free = max(0, fleet.vram_free.item(card)) / vram * 100
        score = self._norm(100 - vram_free, 100 - compute_free) if full else self._norm(vram_free, compute_free)
        return score // _PENDING_SHARE if fleet.cards[card].phase is GpuPhase.PENDING else score

    def _norm(self, vram: float, compute: float) -> int:
        score = vram * self._vram + compute * self._compute
        whole = floor(score)
        return min(100, max(0, whole + (score - whole >= _HALF)))


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
