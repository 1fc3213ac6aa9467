"""The policies of "Beware of Fragmentation" (Weng et al., USENIX ATC'23) as its open simulator runs them.

Scores are truncated to integers and ties fall to the first node, which carries part of the published
figures; `fgd` is the same gradient with exact scores. All of them treat cards as shares (thousandths of a
card) and the cards of a node as equal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ullage.core.kernel.published import (
    by_best_fit,
    by_clustering,
    by_dot_product,
    by_fgd,
    by_fgd_published,
    by_packing,
    equal,
    pick_any,
    pick_best_fit,
    pick_fgd,
    pick_fgd_published,
    select_any,
)
from ullage.core.kernel.table import equal_cards
from ullage.core.kernel.task_class import Mix
from ullage.core.strategies.strategy import Strategy

_OF_NODE: dict[str, Callable[..., float]] = {
    "best-fit-published": by_best_fit,
    "dot-product": by_dot_product,
    "packing": by_packing,
    "clustering": by_clustering,
}

PUBLISHED = (*_OF_NODE, "fgd", "fgd-published", "random")
"""All of them by name."""


def published(name: str, mix: Mix, seed: int) -> Strategy | None:
    """Return the policy of that name, for a typical workload and, where it draws, a seed; None if there is no such."""
    if name in _OF_NODE:
        return Strategy(name, _OF_NODE[name], equal_cards, pick_best_fit)
    if name == "fgd":
        return Strategy(name, by_fgd, equal_cards, pick_fgd, state=tuple(mix))
    if name == "fgd-published":
        return Strategy(name, by_fgd_published, equal_cards, pick_fgd_published, state=tuple(mix))
    if name == "random":
        state = (np.array([1 + seed % 2147483646]),)
        return Strategy(name, equal, equal_cards, pick_any, state=state, select=select_any)
    return None
