"""How good is it: one file per strategy, one line in the table; others are registered at the start.

A strategy gives a node a score and picks cards; higher is better, and ties fall to the first node and
the first card by name, so that equal facts give equal answers.
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
"""All of them by name."""

PARTS_BY = "leftover"
"""The strategy of parts of cards, if nobody names one: it learns what is asked for, and keeps room for it."""


def register(strategy: Strategy) -> None:
    """Have a strategy from outside under its name, from now on in this process.

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
        raise invalid(field, name, f"choose one of {', '.join(STRATEGIES)}")
    return strategy
