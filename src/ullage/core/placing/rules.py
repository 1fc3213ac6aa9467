"""The rules by which requests for cards are judged: strategies, quotas, caps, what nodes may promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.core.strategies import PARTS_BY, strategy_named
from ullage.core.strategies.load import Weights, by_load
from ullage.core.strategies.strategy import Strategy
from ullage.core.verdict.quota import Quotas
from ullage.model.claim import Request
from ullage.model.oversubscription import Oversubscription

WORKERS_PER_NODE = 256

PROTECTED_S = 60.0
"""Seconds for which a request that evicted others is protected, by default."""

WHOLE_BY = "node-compact-gpu-low-load"
"""The strategy of requests for whole cards and for partitions, if nobody names one."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which requests for cards are placed.

    `strategies` maps a pool to its strategy, and `strategy` applies to other pools: a name, or a strategy with a state
    of its own. With None, parts of cards are placed by `leftover` and all else by the default for whole cards.
    `weights` of a pool, or of "" for other pools, are those of vram and compute in named strategies by load.
    `workers_per_node` is the maximum number of allocations of a node: 0 for any number, None for what the node states.
    `oversubscription` maps a pool, or "" for other pools, to what its nodes may promise: without an entry, any amount.
    `disks` are the bytes of disk of each node that count for it. `preempt_cluster_wide` lets a request evict work of
    any namespace, not only of its own. `min_available` is the number of workers of a (namespace, workload) that
    evictions leave, if possible. A request that evicted others is protected for `protected_s` seconds once it has its
    cards. With `any_pool`, a request may name a pool without cards, as nodes come and go.
    """

    strategy: str | Strategy | None = None
    strategies: Mapping[str, str | Strategy | None] = field(default_factory=dict)
    weights: Mapping[str, Weights] = field(default_factory=dict)
    workers_per_node: int | None = WORKERS_PER_NODE
    quotas: Quotas = field(default_factory=Quotas)
    oversubscription: Mapping[str, Oversubscription] = field(default_factory=dict)
    disks: Mapping[str, int] = field(default_factory=dict)
    preempt_cluster_wide: bool = True
    min_available: Mapping[tuple[str, str], int] = field(default_factory=dict)
    protected_s: float = PROTECTED_S
    any_pool: bool = False

    def strategy_of(self, request: Request) -> Strategy:
        """Return the strategy of the request, or of its pool, with the weights of the pool.

        Raises:
            InvalidRequest: there is no strategy of that name.

        """
        pool = request.requirement.cards.pool or ""
        usual = PARTS_BY if request.requirement.shares_cards else WHOLE_BY
        named = (request.strategy, self.strategies.get(pool), self.strategy, usual)
        chosen = next(strategy for strategy in named if strategy is not None)
        if not isinstance(chosen, str):
            return chosen
        strategy, weights = strategy_named(chosen), self.weights.get(pool, self.weights.get(""))
        return strategy if weights is None else by_load(strategy.name, weights) or strategy

    @property
    def cap(self) -> int:
        """Workers per node as a number that can be compared; -1 for as many as each says itself."""
        return -1 if self.workers_per_node is None else self.workers_per_node or 2**62
