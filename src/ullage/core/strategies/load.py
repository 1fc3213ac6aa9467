"""Scores by how full cards are, 0 to 100, bit-exact with the TensorFusion GPU allocator.

`used = 100 - available / capacity * 100` and `free = available / capacity * 100` in IEEE doubles, in
this order; vram weighs 0.7 and compute 0.3; halves round away from zero; no capacity scores 0. A
node's score is the sum over all its cards, also those that do not fit, divided by their number
(rounded down), so that size is not load; `aggregate="sum"` leaves the sum. Cards on which the request's
isolation is not possible are left out; one that is still pending counts a quarter.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor

from ullage.core.fleet import Fleet
from ullage.core.shape import shape_of
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
        shares, cards = shape_of(fleet, asked).shares, fleet.cards_on(row)
        here = slice(cards.start, cards.stop)
        total = counted = 0
        for score, kind, modes in zip(
            self._scores(fleet).of_nodes[here], fleet.kind_of[here], fleet.card_modes[here].tolist(), strict=True
        ):
            share = shares[kind]
            if share.kept_apart and not modes & share.mixed:
                total += score
                counted += 1
        return total // counted if counted and self._mean else total

    def card(self, fleet: Fleet, card: int, asked: ResourceRequirement) -> int:  # noqa: ARG002
        """Score of one card."""
        return self._scores(fleet).of_cards[card]

    def pick(self, fleet: Fleet, asked: ResourceRequirement, eligible: list[int]) -> list[int]:
        """The top cards by score."""
        if len(eligible) == 1:
            return eligible
        scores, cards = self._scores(fleet).of_cards, fleet.cards
        return sorted(eligible, key=lambda card: (-scores[card], cards[card].uuid))[: asked.gpu_count]

    def score(self, fleet: Fleet, card: int, *, full: bool) -> int:
        """Score of one card as it is now, where the fuller is better or the emptier."""
        gpu = fleet.cards[card]
        compute, vram = gpu.compute, gpu.vram
        if not compute or not vram:
            return 0
        compute_free = max(0, fleet.compute_free.item(card)) / compute * 100
        vram_free = max(0, fleet.vram_free.item(card)) / vram * 100
        score = self._norm(100 - vram_free, 100 - compute_free) if full else self._norm(vram_free, compute_free)
        return score // _PENDING_SHARE if gpu.phase is GpuPhase.PENDING else score

    def _norm(self, vram: float, compute: float) -> int:
        score = vram * self._vram + compute * self._compute
        whole = floor(score)
        return min(100, max(0, whole + (score - whole >= _HALF)))

    def _scores(self, fleet: Fleet) -> _Scores:
        scores = fleet.tables.get(self)
        if not isinstance(scores, _Scores):
            scores = fleet.tables[self] = _Scores(fleet, self)
        if scores.clock != fleet.clock:
            scores.refresh()
        return scores


class _Scores:
    """Scores of all cards of one fleet under one strategy, computed again only for cards that changed."""

    def __init__(self, fleet: Fleet, strategy: _ByLoad) -> None:
        self._fleet = fleet
        self._strategy = strategy
        self.clock = fleet.clock
        self.of_nodes = [0] * len(fleet.cards)
        alike = strategy.node_wants_full is strategy.card_wants_full
        self.of_cards = self.of_nodes if alike else [0] * len(fleet.cards)
        self._compute(range(len(fleet.cards)))

    def refresh(self) -> None:
        """Bring the cards up to date that changed since the last look."""
        fleet, since = self._fleet, self.clock
        self.clock = fleet.clock
        rows = fleet.touched_since(since)
        if rows is None:
            self._compute(range(len(fleet.cards)))
            return
        for row in rows:
            self._compute([card for card in fleet.cards_on(row) if fleet.card_clock[card] >= since])

    def _compute(self, cards: Iterable[int]) -> None:
        fleet, strategy = self._fleet, self._strategy
        for card in cards:
            self.of_nodes[card] = strategy.score(fleet, card, full=strategy.node_wants_full)
            if self.of_cards is not self.of_nodes:
                self.of_cards[card] = strategy.score(fleet, card, full=strategy.card_wants_full)


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
