"""Assembles all parts of bindings in front of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ullage.kube.bindings.conflicting_claims import Claimed, ConflictingClaims
from ullage.kube.bindings.filter import BindingFilter
from ullage.kube.bindings.store import KubeBindings
from ullage.kube.bindings.terms import BindingTerms
from ullage.kube.bindings.upkeep import Upkeep
from ullage.kube.context import KubeContext
from ullage.kube.ready_term import ReadyTerm
from ullage.service.bindings import Bindings


@dataclass(frozen=True, slots=True)
class FrontBindings:
    """The store of bindings, the filter of pods by them, their upkeep, and the use cases of the API."""

    store: KubeBindings
    filter: BindingFilter
    upkeep: Upkeep
    use: Bindings
    conflicting_claims: ConflictingClaims

    @classmethod
    def of(cls, context: KubeContext, terms: BindingTerms, term: ReadyTerm, claimed: Claimed) -> Self:
        """Return it over the informers that a front runs anyway. `claimed` are the cards that claims have."""
        conflicting_claims = ConflictingClaims(context, claimed)
        store = KubeBindings(context, terms, term, conflicting_claims)
        binding_filter = BindingFilter(context, store, terms.scope)
        upkeep = Upkeep(context, store, term, binding_filter, conflicting_claims=conflicting_claims)
        return cls(store, binding_filter, upkeep, use=Bindings(store), conflicting_claims=conflicting_claims)
