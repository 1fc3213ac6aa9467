"""Best fit and its opposite: what is left over decides. Best fit is what sessions are placed by.

Nodes in use come before empty ones, then the tightest; work without cards goes to nodes without cards.
Whole cards come from the fullest zone that has enough, parts from the cards they fill best. Spread turns
all of it round: empty nodes, the loosest fit, the emptiest card.
"""

from __future__ import annotations

from ullage.core.kernel.columns import FULL
from ullage.core.kernel.tightest import card, node, pick
from ullage.core.strategies.strategy import Strategy

_CLOSENESS = FULL / 100
"""All cards and CPUs in one zone count as much as one of the terms in full."""


def best_fit() -> Strategy:
    """Prefer nodes in use, then the tightest."""
    return Strategy("best-fit", node, card, pick, state=(0,), closeness=_CLOSENESS, near=True)


def spread() -> Strategy:
    """Empty nodes and the loosest fit first."""
    return Strategy("spread", node, card, pick, state=(1,), closeness=_CLOSENESS, near=True)
