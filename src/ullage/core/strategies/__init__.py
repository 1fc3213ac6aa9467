"""Scores: one file per strategy and one line in the table; others are registered at the start.

A strategy scores nodes and picks cards. Higher is better, and ties go to the first node and the first card by name, so
that equal facts give equal results.
"""

from __future__ import annotations

import re

from ullage.core.strategies.best_fit import best_fit, spread
from ullage.core.strategies.learned import Learned
from ullage.core.strategies.load import (
    compact_first,
    low_load_first,
    node_compact_gpu_low_load,
    node_low_load_gpu_compact,
)
from ullage.core.strategies.strategy import Strategy
from ullage.model.error import AlreadyExists, invalid
from ullage.model.nearest import one_of

_KEBAB = re.compile("[a-z][a-z0-9]*(-[a-z0-9]+)*")

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        best_fit(),
        spread(),
        compact_first(),
        low_load_first(),
        node_compact_gpu_low_load(),
        node_low_load_gpu_compact(),
        Learned(),
    )
}
"""All strategies by name."""

PARTS_BY = "leftover"
"""The default strategy for parts of cards: it learns the workload, and keeps room for it."""


def register(strategy: Strategy) -> None:
    """Register a strategy of another package under its name, for this process.

    Raises:
        InvalidRequest: its name is not in kebab-case. AlreadyExists: another strategy has it.

    """
    if not _KEBAB.fullmatch(strategy.name):
        raise invalid("name", strategy.name, "write a name of lower-case words such as emptiest-node")
    if STRATEGIES.setdefault(strategy.name, strategy) is not strategy:
        raise AlreadyExists(f"there is a strategy {strategy.name} already; choose another name", field="name")


def strategy_named(name: str, field: str = "strategy") -> Strategy:
    """Return the strategy of that name.

    Raises:
        InvalidRequest: there is none.

    """
    strategy = STRATEGIES.get(name.replace("_", "-"))
    if strategy is None:
        raise invalid(field, name, one_of(name, STRATEGIES))
    return strategy
