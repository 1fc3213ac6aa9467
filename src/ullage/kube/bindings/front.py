"""Assembles all parts of bindings in front of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from ullage.kube.bindings.gate import Gate, Scope
from ullage.kube.bindings.intruders import Claimed, Intruders
from ullage.kube.bindings.store import KubeBindings, Sources
from ullage.kube.bindings.upkeep import Upkeep
from ullage.kube.client.api import KubeApi
from ullage.kube.client.lease import Candidate
from ullage.kube.events import RecordEvent
from ullage.kube.machines import OnError
from ullage.kube.nodes import CardReader
from ullage.model.compute import OwnerQuota
from ullage.service.bindings import Bindings
from ullage.service.cluster import Cluster
from ullage.wire.dialect import PodReader


@dataclass(frozen=True, slots=True)
class BindingTerms:
    """How bindings count. The ledger is the ConfigMap `name` in `namespace`; `allocations` also shows its rows.

    With `strict`, a binding without an owner or a namespace applies to no pod. `quotas` are those of owners.
    """

    scope: Scope = Scope.ON
    strict: bool = False
    name: str = "ullage-bindings"
    namespace: str = "default"
    allocations: str = ""
    quotas: Mapping[str, OwnerQuota] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrontBindings:
    """The store of bindings, the gate that judges pods by them, their upkeep, and the use cases of the API."""

    store: KubeBindings
    gate: Gate
    upkeep: Upkeep
    use: Bindings
    intruders: Intruders

    @classmethod
    def of(
        cls,
        api: KubeApi,
        candidate: Candidate,
        cluster: Cluster,
        sources: Sources,
        terms: BindingTerms,
        reader: PodReader,
        readers: Sequence[CardReader],
        claimed: Claimed,
        record_event: RecordEvent,
        on_error: OnError,
    ) -> Self:
        """Return it over the informers that a front runs anyway."""
        store = KubeBindings(
            api,
            candidate,
            cluster,
            sources,
            name=terms.name,
            namespace=terms.namespace,
            reader=reader,
            readers=readers,
            strict=terms.strict,
            allocations=terms.allocations,
            quotas=terms.quotas,
        )
        gate = Gate(store, sources.namespaces, terms.scope, reader.settings.domain)
        intruders = Intruders(claimed, sources.pods, store.tenant, record_event)
        store.noticed = lambda: (each.problem for each in intruders.now)
        upkeep = Upkeep(candidate, store, sources.nodes, gate, intruders, on_error=on_error)
        return cls(store, gate, upkeep, Bindings(store), intruders)
