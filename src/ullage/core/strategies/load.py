"""Scores by how full cards are, 0 to 100, bit-exact with the TensorFusion GPU allocator.

`used = 100 - available / capacity * 100` and `free = available / capacity * 100` in IEEE doubles, in
this order; vram weighs 0.7 and compute 0.3; halves round away from zero; no capacity scores 0. A
node's score is the sum over all its cards, also those that do not fit, divided by their number
(rounded down), so that size is not load; `aggregate="sum"` leaves the sum. Cards on which the request's
isolation is not possible are left out; one that is still pending counts a quarter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from ullage.core.kernel.load import card, node, pick
from ullage.core.strategies.strategy import Strategy

_CLOSENESS = 0.01
"""All cards and CPUs in one zone count as much as one part in a hundred of load."""


class Weights(NamedTuple):
    """How much vram and compute count in the score of a card."""

    vram: float = 0.7
    compute: float = 0.3


DEFAULT = Weights()


def _strategy(name: str, weights: Weights, aggregate: str, *, full_nodes: bool, full_cards: bool) -> Strategy:
    numbers = np.array([*weights, full_nodes, full_cards, aggregate == "mean"], dtype=np.float64)
    return Strategy(name, node, card, pick, state=(numbers,), closeness=_CLOSENESS, near=True)


def compact_first(weights: Weights = DEFAULT, aggregate: str = "mean") -> Strategy:
    """Fill the fullest node, and on it the fullest card."""
    return _strategy("compact-first", weights, aggregate, full_nodes=True, full_cards=True)


def low_load_first(weights: Weights = DEFAULT, aggregate: str = "mean") -> Strategy:
    """Prefer the emptiest node, and on it the emptiest card."""
    return _strategy("low-load-first", weights, aggregate, full_nodes=False, full_cards=False)


def node_compact_gpu_low_load(weights: Weights = DEFAULT, aggregate: str = "mean") -> Strategy:
    """Fill the fullest node, but spread over its cards."""
    return _strategy("node-compact-gpu-low-load", weights, aggregate, full_nodes=True, full_cards=False)


def node_low_load_gpu_compact(weights: Weights = DEFAULT, aggregate: str = "mean") -> Strategy:
    """Prefer the emptiest node, and on it the fullest card."""
    return _strategy("node-low-load-gpu-compact", weights, aggregate, full_nodes=False, full_cards=True)


_BY_LOAD: dict[str, Callable[[Weights], Strategy]] = {
    made().name: made for made in (compact_first, low_load_first, node_compact_gpu_low_load, node_low_load_gpu_compact)
}


@cache
def by_load(name: str, weights: Weights) -> Strategy | None:
    """Return the strategy of that name with these weights, always the same object; None if it does not go by load."""
    made = _BY_LOAD.get(name)
    return None if made is None else made(weights)
