"""Our own placement by name: with the workload that was learned, once there is an estimate of it."""

from __future__ import annotations

from ullage.core.books.fleet import Fleet
from ullage.core.kernel.tightest import card, node, pick
from ullage.core.strategies.leftover import NAME
from ullage.core.strategies.strategy import Strategy


class Learned(Strategy):
    """Best fit, and on books that `leftover` was made for (`core/learning/learned.py`) that."""

    def __init__(self) -> None:
        super().__init__(NAME, node, card, pick, (0,))

    def on(self, fleet: Fleet) -> Strategy:
        """Return what was made for these books; until then itself, and the books know that something goes by it."""
        made = fleet.strategies.setdefault(self.name, self)
        assert isinstance(made, Strategy)
        return made

    @property
    def stateless(self) -> bool:
        """Never: what is made for the books follows them."""
        return False
