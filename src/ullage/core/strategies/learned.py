"""The strategy `leftover` by name: with the learned workload, once there is an estimate of it."""

from __future__ import annotations

from ullage.core.books.fleet import Fleet
from ullage.core.kernel.tightest import card, node, pick
from ullage.core.strategies.leftover import NAME
from ullage.core.strategies.strategy import Strategy


class Learned(Strategy):
    """Best fit, and `leftover` on books that it was made for (`core/learning/learned.py`)."""

    def __init__(self) -> None:
        super().__init__(NAME, node, card, pick, state=(0,))

    def on(self, fleet: Fleet) -> Strategy:
        """Return the strategy made for these books; until then itself, and the books record that it is in use."""
        made = fleet.strategies.setdefault(self.name, self)
        assert isinstance(made, Strategy)
        return made

    @property
    def stateless(self) -> bool:
        """False: a strategy made for the books follows them."""
        return False
