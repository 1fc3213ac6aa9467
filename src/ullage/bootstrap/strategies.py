"""Installed strategies: entry points of the group `ullage.strategies`, registered at the start.

The name of an entry point is that of its strategy. It refers to a `Strategy`, or to a function without arguments that
returns one. A broken strategy stops the start; otherwise another strategy would place its work.
"""

from __future__ import annotations

import math
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from ullage.model.error import InvalidRequest, UllageError

if TYPE_CHECKING:
    from ullage.core.strategies.strategy import Strategy

GROUP = "ullage.strategies"


def installed_strategies() -> list[str]:
    """Return the names of the strategies in installed distributions; none of them is loaded."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def load_strategies() -> list[Strategy]:
    """Register all of them in this process, and compile them.

    Raises:
        InvalidRequest: one cannot be loaded or compiled, is no strategy, or has a name that is taken; the
            message names its distribution.

    """
    return [_load(entry) for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))]


def _load(entry: EntryPoint) -> Strategy:
    from ullage.core.strategies import STRATEGIES, register  # noqa: PLC0415 - the core is needed only with strategies

    try:
        strategy = _strategy(entry)
        if strategy is not STRATEGIES.get(strategy.name):  # else it is loaded again
            _check(strategy)
            register(strategy)
    except Exception as error:
        reason = error.message if isinstance(error, UllageError) else f"{type(error).__name__}: {error}"
        where = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"
        raise InvalidRequest(
            f"strategy {entry.name} of {where} ({entry.value}) cannot be used: {reason}; fix or uninstall it",
            code="strategy-broken",
            field="strategy",
        ) from error
    return strategy


def _strategy(entry: EntryPoint) -> Strategy:
    from ullage.core.strategies.strategy import Strategy  # noqa: PLC0415 - the core is needed only with strategies

    if entry.value not in _LOADED:
        found = entry.load()
        strategy = found if isinstance(found, Strategy) or not callable(found) else found()
        if not isinstance(strategy, Strategy):
            raise TypeError(f"it is {strategy!r}, and no ullage.core.strategies.strategy.Strategy")
        if strategy.name != entry.name:
            raise ValueError(f"it is named {strategy.name}; give the entry point the same name")
        _LOADED[entry.value] = strategy
    return _LOADED[entry.value]


_LOADED: dict[str, Strategy] = {}
"""The strategies of entry points, so that a second load returns the same objects."""


def _check(strategy: Strategy) -> None:
    """Compile it by placing on a small fleet, and check that it chooses only offered cards."""
    from ullage.core.kernel.compiling import tiers  # noqa: PLC0415 - needs the core
    from ullage.core.placing.placement import warm_strategy, warming_fleet  # noqa: PLC0415 - needs the core
    from ullage.core.verdict.shape import shape_of  # noqa: PLC0415 - needs the core
    from ullage.model.request import ResourceRequirement  # noqa: PLC0415 - needs the core

    with tiers.ahead():  # also compiles in a server of the plain tier, so that errors show now
        warm_strategy(strategy.on)
    fleet = warming_fleet()
    for text, offered in (("gpu=0.5", [1]), ("gpu=1", [0]), ("gpu=2", [0, 1])):
        shape = shape_of(fleet, ResourceRequirement.from_string(text))
        score, picked = strategy.node(fleet, 0, shape, offered), strategy.pick(fleet, 0, shape, offered)
        if not math.isfinite(score):
            raise ValueError(f"it scores a node with {score}")
        if sorted(picked) != offered:
            raise ValueError(f"it picks the cards at {picked}, but is offered those at {offered}")
