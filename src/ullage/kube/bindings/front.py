"""Assembles all parts of bindings in front of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ullage.kube.bindings.gate import Gate
from ullage.kube.bindings.intruders import Claimed, Intruders
from ullage.kube.bindings.store import KubeBindings
from ullage.kube.bindings.terms import BindingTerms
from ullage.kube.bindings.upkeep import Upkeep
from ullage.kube.context import KubeContext
from ullage.kube.ready_term import ReadyTerm
from ullage.service.bindings import Bindings


@dataclass(frozen=True, slots=True)
class FrontBindings:
    """The store of bindings, the gate that judges pods by them, their upkeep, and the use cases of the API."""

    store: KubeBindings
    gate: Gate
    upkeep: Upkeep
    use: Bindings
    intruders: Intruders

    @classmethod
    def of(cls, context: KubeContext, terms: BindingTerms, term: ReadyTerm, claimed: Claimed) -> Self:
        """Return it over the informers that a front runs anyway. `claimed` are the cards that claims have."""
        intruders = Intruders(context, claimed)
        store = KubeBindings(context, terms, term, intruders)
        gate = Gate(context, store, terms.scope)
        upkeep = Upkeep(context, store, term, gate, intruders=intruders)
        return cls(store, gate, upkeep, use=Bindings(store), intruders=intruders)
