"""The strategy `leftover` with a learned workload: arrivals are counted, and each new estimate rebuilds it.

The first unit that arrives suffices for an estimate. Until a strategy is prepared for an estimate, `leftover` is best
fit, or the strategy of the estimate before. The preparation scores every node for every shape in use. A caller that
must answer meanwhile passes `later`, which prepares it elsewhere, on a copy of the books. If no decision uses
`leftover`, nothing is prepared until one does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ullage.core.books.fleet import Fleet
from ullage.core.placing.placement import drop_tables, shapes_under, table_of
from ullage.core.strategies import strategy_named
from ullage.core.strategies.leftover import NAME, leftover
from ullage.core.strategies.strategy import Strategy
from ullage.core.strategies.workload import LiveWorkload, Workload
from ullage.model.request import ResourceRequirement

Later = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""Calls the first function anywhere, then the second with its result in the thread of decisions."""

_SHAPES = 128
"""Shapes in use for which a new strategy is prepared."""

_ENOUGH = 50
"""Units after which the estimate is reported as a workload; placement is better with any estimate."""


def at_once(work: Callable[[], Any], take: Callable[[Any], None]) -> None:
    """Do both immediately."""
    take(work())


class Learning:
    """The learned workload for one set of books at a time, that of the last `follow`."""

    def __init__(self, later: Later = at_once) -> None:
        self._later = later
        self._live = LiveWorkload()
        self._fleet: Fleet | None = None
        self._busy = self._outdated = self._unused = False
        self.seen = 0
        """Units that arrived."""
        self.workload: Workload | None = None
        """The workload that `leftover` uses, or would use; None while it is best fit."""

    @property
    def missing(self) -> int:
        """Units that must arrive before the estimate is reported."""
        return max(0, _ENOUGH - self.seen)

    def see(self, asked: ResourceRequirement) -> None:
        """Count a unit that arrived, placed or not."""
        self.seen += 1
        if self._live.see(asked) or (self._unused and _in_use(self._fleet)):
            self._prepare()

    def follow(self, fleet: Fleet) -> None:
        """Decide on these books from now on, with the strategy used before."""
        if _in_use(self._fleet):
            strategy_named(NAME).on(fleet)
        self._fleet, self.workload = fleet, None
        self._prepare()

    def _prepare(self) -> None:
        """Prepare the strategy for the present books and estimate; one at a time, and the last one counts."""
        fleet, estimate = self._fleet, self._live.estimate
        if fleet is None or estimate is None or not fleet.cards:
            return
        self._unused = not _in_use(fleet)
        if self._unused:
            self.workload = estimate
            return
        self._outdated = self._busy
        if self._busy:
            return
        self._busy = True
        copy, shapes = fleet.copy(), shapes_under(fleet, NAME)[-_SHAPES:]

        def take(strategy: Strategy) -> None:
            self._busy = False
            if fleet is self._fleet:
                self._take(fleet, estimate, strategy)
            if self._outdated:
                self._prepare()

        self._later(lambda: _made(copy, estimate, shapes), take)

    def _take(self, fleet: Fleet, estimate: Workload, strategy: Strategy) -> None:
        drop_tables(fleet, fleet.strategies[NAME])
        fleet.strategies[NAME] = strategy
        self.workload = estimate


def _in_use(fleet: Fleet | None) -> bool:
    """Return whether any decision on these books uses `leftover`."""
    return fleet is not None and NAME in fleet.strategies


def _made(copy: Fleet, estimate: Workload, shapes: list[ResourceRequirement]) -> Strategy:
    """Return the strategy with the states of all nodes; the copy has the same changes as the books."""
    strategy = leftover(copy, estimate, live=True)
    for asked in shapes:
        table_of(copy, asked, strategy)
    return strategy
