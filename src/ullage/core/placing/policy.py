"""The choices an operator has; frozen, passed in, never global."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ullage.core.strategies import strategy_named
from ullage.model.error import invalid


class Order(StrEnum):
    """The order of equal priorities in a queue: by dominant share, or by creation."""

    DRF = "drf"
    FIFO = "fifo"


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules of the cycle; durations in seconds.

    `reclaim_grace_s` is how long a running task of a session above its share may go on once another
    session claims the room (None: until it ends). `min_runtime_s` protects a newly bound executor
    from being claimed. `protected_s` does the same for an executor in room that others gave up for it,
    and keeps a request from eviction that others gave way to.
    `reserve_after_s` is how long a request waits before room is held for it.
    `strategy` says which nodes and cards are best; with None `leftover` does for parts of cards, and
    `best-fit` for all else.

    Raises:
        InvalidRequest: a duration is negative.

    """

    order: Order = Order.DRF
    strategy: str | None = None
    reclaim_grace_s: float | None = 30.0
    min_runtime_s: float = 0.0
    protected_s: float = 60.0
    reserve_after_s: float = 300.0

    def __post_init__(self) -> None:
        if self.strategy is not None:
            strategy_named(self.strategy, "policy.strategy")
        for field in ("reclaim_grace_s", "min_runtime_s", "protected_s", "reserve_after_s"):
            value = getattr(self, field)
            if value is not None and not value >= 0:  # NaN is not below 0 either
                raise invalid(f"policy.{field}", value, "0 seconds or more is needed")
