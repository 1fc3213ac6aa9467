"""The kinds of a cluster that every part of the front looks at, each followed once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from ullage.kube.client.api import ALL, KubeApi, Selection
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import NAMESPACES, NODES, NUMATOPOLOGIES, POD_DISRUPTION_BUDGETS, PODS, RESOURCE_QUOTAS
from ullage.kube.client.objects import Namespace, Node, Object, Pod, PodDisruptionBudget, ResourceQuota


@dataclass(frozen=True, slots=True)
class Followed:
    """Their mirrors; None for a kind that is not looked at."""

    nodes: Informer[Node]
    pods: Informer[Pod]
    namespaces: Informer[Namespace]
    budgets: Informer[PodDisruptionBudget]
    topologies: Informer[Object] | None = None
    quotas: Informer[ResourceQuota] | None = None

    @classmethod
    def of(cls, api: KubeApi, machines: Selection = ALL, *, topologies: bool = False, quotas: bool = False) -> Self:
        """Those of an API server, where `machines` are the nodes that count."""
        return cls(
            Informer(api, NODES, machines),
            Informer(api, PODS),
            Informer(api, NAMESPACES),
            Informer(api, POD_DISRUPTION_BUDGETS),
            Informer(api, NUMATOPOLOGIES) if topologies else None,
            Informer(api, RESOURCE_QUOTAS) if quotas else None,
        )

    @property
    def needed(self) -> Iterator[Informer[Any]]:
        """Those that nothing is decided without."""
        return (each for each in (self.nodes, self.pods, self.topologies, self.quotas) if each is not None)

    @property
    def all(self) -> Iterator[Informer[Any]]:
        """Every one of them."""
        yield from (*self.needed, self.namespaces, self.budgets)
