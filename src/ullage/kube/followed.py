"""The informers that all parts of the front share, one for each kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from ullage.kube.client.api import ALL, KubeApi, Selection
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import NAMESPACES, NODES, NUMATOPOLOGIES, POD_DISRUPTION_BUDGETS, PODS, RESOURCE_QUOTAS
from ullage.kube.client.objects import KubeNode, Namespace, Object, Pod, PodDisruptionBudget, ResourceQuota


@dataclass(frozen=True, slots=True)
class Followed:
    """The informers; None for a kind that is not watched."""

    nodes: Informer[KubeNode]
    pods: Informer[Pod]
    namespaces: Informer[Namespace]
    budgets: Informer[PodDisruptionBudget]
    topologies: Informer[Object] | None = None
    quotas: Informer[ResourceQuota] | None = None

    @classmethod
    def of(cls, api: KubeApi, machines: Selection = ALL, *, topologies: bool = False, quotas: bool = False) -> Self:
        """Return the informers of an API server. `machines` selects the nodes that count."""
        return cls(
            nodes=Informer(api, NODES, machines),
            pods=Informer(api, PODS),
            namespaces=Informer(api, NAMESPACES),
            budgets=Informer(api, POD_DISRUPTION_BUDGETS),
            topologies=Informer(api, NUMATOPOLOGIES) if topologies else None,
            quotas=Informer(api, RESOURCE_QUOTAS) if quotas else None,
        )

    @property
    def needed(self) -> Iterator[Informer[Any]]:
        """Yield the informers that every decision needs."""
        return (each for each in (self.nodes, self.pods, self.topologies, self.quotas) if each is not None)

    @property
    def all(self) -> Iterator[Informer[Any]]:
        yield from (*self.needed, self.namespaces, self.budgets)
