"""All that bindings need in front of a cluster, put together."""

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
    """How bindings count. The ledger is the ConfigMap `name` in `namespace`; its rows are shown in `allocations` too.

    With `strict` a binding that names no owner or no namespace is nobody's. `quotas` are those of owners.
    """

    scope: Scope = Scope.ON
    strict: bool = False
    name: str = "ullage-bindings"
    namespace: str = "default"
    allocations: str = ""
    quotas: Mapping[str, OwnerQuota] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrontBindings:
    """Where bindings are kept, who is judged by them, what is done for them, and the use cases for whoever asks."""

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
        """It over what a front follows anyway."""
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
