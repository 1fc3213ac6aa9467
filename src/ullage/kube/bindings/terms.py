"""How bindings count in a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ullage.model.compute import OwnerQuota


class BindingScope(StrEnum):
    """Where bindings count: nowhere, in namespaces labelled `enabled`, or in all not labelled `disabled`."""

    OFF = "off"
    LABELLED = "labelled"
    ON = "on"


@dataclass(frozen=True, slots=True)
class BindingTerms:
    """How bindings count. The ledger is the ConfigMap `name` in `namespace`; `allocations` also shows its rows.

    With `strict`, a binding without an owner or a namespace applies to no pod. `quotas` are those of owners.
    `allocations` is the `namespace/name` of a ConfigMap, "" for none.
    """

    scope: BindingScope = BindingScope.ON
    strict: bool = False
    name: str = "ullage-bindings"
    namespace: str = "default"
    allocations: str = ""
    quotas: Mapping[str, OwnerQuota] = field(default_factory=dict)
