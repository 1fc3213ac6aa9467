"""How good is it: one file per strategy, one line in the table.

A strategy gives a node a score and picks cards; higher is better, and ties fall to the first node and
the first card by name, so that equal facts give equal answers.
"""

from __future__ import annotations

from ullage.core.strategies.best_fit import best_fit, spread
from ullage.core.strategies.learned import Learned
from ullage.core.strategies.load import compact_first, low_load_first, node_compact_gpu_low_load
from ullage.core.strategies.strategy import Strategy
from ullage.model.error import invalid

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (best_fit(), spread(), compact_first(), low_load_first(), node_compact_gpu_low_load(), Learned())
}
"""All of them by name."""


def strategy_named(name: str, field: str = "strategy") -> Strategy:
    """The strategy of that name.

    Raises:
        InvalidRequest: there is none.

    """
    strategy = STRATEGIES.get(name.replace("_", "-"))
    if strategy is None:
        raise invalid(field, name, f"choose one of {', '.join(STRATEGIES)}")
    return strategy
