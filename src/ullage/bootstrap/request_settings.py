"""The section `[requests]` of the settings: how requests for cards are placed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ullage.core.placing.rules import WORKERS_PER_NODE, Rules
from ullage.core.strategies import strategy_named
from ullage.core.strategies.load import Weights
from ullage.model.claim import Claim
from ullage.model.error import InvalidRequest, invalid
from ullage.model.name import check_name
from ullage.model.oversubscription import Oversubscription


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class OversubscriptionSection(_Section, frozen=True, kw_only=True):
    """How far the limits of requests on a node may exceed the capacity of its cards; without it, without a bound.

    In whole percent. Vram may spill into that part of the machine's memory and of its `[node] disk`; compute may be
    promised up to `compute_oversell_ratio` hundredths of the capacity of the cards.
    """

    vram_expand_to_host_mem: int = Oversubscription().vram_expand_to_host_mem
    vram_expand_to_host_disk: int = Oversubscription().vram_expand_to_host_disk
    compute_oversell_ratio: int = Oversubscription().compute_oversell_ratio


class WeightsSection(_Section, frozen=True, kw_only=True):
    """The weights of vram and compute of a card in the strategies that use load; 0 to 1 each."""

    vram: float = Weights().vram
    compute: float = Weights().compute


class PoolSection(_Section, frozen=True, kw_only=True):
    """How requests for cards of one pool are placed; omitted settings are as in `[requests]`."""

    strategy: str | None = None
    weights: WeightsSection | None = None
    oversubscription: OversubscriptionSection | None = None


class BudgetSection(_Section, frozen=True, kw_only=True):
    """A disruption budget: eviction leaves `min_available` workers of a workload, if other victims suffice."""

    workload: str
    min_available: int
    namespace: str = Claim().namespace


class RequestsSection(_Section, frozen=True, kw_only=True):
    """How requests for cards are placed (`/v1/allocations`); sessions follow `[policy]`.

    `strategy`, `weights` and `oversubscription` are the defaults of pools; without a strategy parts of cards use
    `leftover`, whole ones `node-compact-gpu-low-load`. `workers_per_node` is the most requests a node may serve, 0 for
    any number; with the default number, a node of Kubernetes takes as many pods as it reports. With
    `preempt_cluster_wide` a request may evict those of any namespace, else only those of its own; `budget` is a list
    of sections (`[[requests.budget]]`).
    """

    strategy: str | None = None
    weights: WeightsSection | None = None
    oversubscription: OversubscriptionSection | None = None
    workers_per_node: int = WORKERS_PER_NODE
    preempt_cluster_wide: bool = True
    budget: list[BudgetSection] = []
    pools: dict[str, PoolSection] = {}

    def rules(self, disks: dict[str, int], protected_s: float) -> Rules:
        """Return the rules of placement; `disks` are the bytes to which vram may spill, by node.

        A request that evicted others is protected for `protected_s` seconds.
        """
        if self.workers_per_node < 0:
            raise invalid("requests.workers_per_node", self.workers_per_node, "0 (any number) or more is needed")
        if "" in self.pools:
            raise invalid("requests.pools", "", "give the pool a name; [requests] itself is for all other pools")
        own = {name: (f"requests.pools.{name}", pool) for name, pool in self.pools.items()}
        pools: dict[str, tuple[str, PoolSection | RequestsSection]] = {"": ("requests", self), **own}
        for path, pool in pools.values():
            if pool.strategy is not None:
                strategy_named(pool.strategy, f"{path}.strategy")
        return Rules(
            strategy=self.strategy,
            strategies={name: pool.strategy or self.strategy for name, pool in self.pools.items()},
            weights={name: _weights(path, pool.weights) for name, (path, pool) in pools.items() if pool.weights},
            workers_per_node=self.workers_per_node,
            oversubscription={
                name: _oversubscription(path, pool.oversubscription)
                for name, (path, pool) in pools.items()
                if pool.oversubscription
            },
            disks=disks,
            preempt_cluster_wide=self.preempt_cluster_wide,
            min_available=_budgets(self.budget),
            protected_s=protected_s,
        )


def _weights(path: str, section: WeightsSection) -> Weights:
    for name, value in (("vram", section.vram), ("compute", section.compute)):
        if not 0 <= value <= 1:
            raise invalid(f"{path}.weights.{name}", value, "a number from 0 to 1 is needed")
    if not section.vram + section.compute:
        raise invalid(f"{path}.weights", "0 and 0", "one of vram and compute must count; write a number above 0")
    return Weights(section.vram, section.compute)


def _oversubscription(path: str, section: OversubscriptionSection) -> Oversubscription:
    try:
        return Oversubscription(**msgspec.structs.asdict(section))
    except InvalidRequest as error:
        field = f"{path}.{error.field}"
        raise InvalidRequest(error.message.replace(str(error.field), field, 1), field=field) from None


def _budgets(sections: Iterable[BudgetSection]) -> dict[tuple[str, str], int]:
    budgets: dict[tuple[str, str], int] = {}
    for section in sections:
        check_name("requests.budget.namespace", section.namespace)
        key = section.namespace, section.workload
        if not section.workload:
            raise invalid("requests.budget.workload", "", "name the workload whose workers the budget protects")
        if section.min_available < 0:
            raise invalid("requests.budget.min_available", section.min_available, "0 or more workers are needed")
        if key in budgets:
            raise invalid("requests.budget.workload", section.workload, "it has a budget already; remove one")
        budgets[key] = section.min_available
    return budgets
