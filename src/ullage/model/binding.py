"""Durable bindings of applications to cards, and the sharing modes of cards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ullage.model.affinity import Term
from ullage.model.quantity import format_bytes


class ShareMode(StrEnum):
    """How the applications of one card share it: exclusively, with a cap of memory each, or in turns."""

    EXCLUSIVE = "Exclusive"
    MEMORY_SLICE = "MemorySlice"
    TIME_SLICE = "TimeSlice"


SUPPORTED_MODES: dict[str, tuple[ShareMode, ...]] = {
    "nvidia": (ShareMode.TIME_SLICE, ShareMode.MEMORY_SLICE, ShareMode.EXCLUSIVE),
    **dict.fromkeys(("nvidia-gb10", "intel", "amd", "moore-soc"), (ShareMode.MEMORY_SLICE, ShareMode.EXCLUSIVE)),
    "cpu": (ShareMode.MEMORY_SLICE,),
    **dict.fromkeys(("apple-m", "intel-gpu", "amd-gpu"), (ShareMode.EXCLUSIVE,)),
}
"""The modes of each type of accelerator, the default first."""


def supported_modes(accelerator: str) -> tuple[ShareMode, ...]:
    """Return the modes of a type of accelerator, the default first; an unknown type is exclusive."""
    return SUPPORTED_MODES.get(accelerator, (ShareMode.EXCLUSIVE,))


class Consume(StrEnum):
    """Whether a pod takes all cards that are bound for it, or as many of them as it requests."""

    ALL = "all"
    SINGLE = "single"


class BindingState(StrEnum):
    """The state of a binding: in force; its old processes are ending; two owners claim it; it is invalid."""

    BOUND = "Bound"
    DRAINING = "Draining"
    CONFLICT = "Conflict"
    INVALID = "Invalid"


class BindingMismatch(StrEnum):
    """Why a binding does not match a pod; the first that applies decides."""

    INVALID = "binding-invalid"
    APPLICATION = "other-application"
    WILDCARD = "binding-names-no-owner"
    OWNER = "other-owner"
    NAMESPACE = "other-namespace"
    SELECTOR = "not-selected"


@dataclass(frozen=True, slots=True)
class Tenant:
    """The identity of a pod for bindings; "" is not known."""

    app: str = ""
    owner: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Binding:
    """A card, and the application that may use it, identified by `app`, `owner` and `namespace` together.

    `legacy` marks a record from before owners were known: its empty fields match any. `selector` are conditions on
    labels that must all hold: without conditions it matches every pod, and none if it is None. `memory_bytes` is the
    cap on the memory of the card, None for no cap. `reason` says why it is invalid or in conflict; `accelerator` is
    the type of the card. `row`: it is a row of the ledger. A foreign binding may have the name of a row.
    """

    name: str
    uuid: str
    app: str
    owner: str = ""
    namespace: str = ""
    selector: Term | None = None
    memory_bytes: int | None = None
    legacy: bool = False
    accelerator: str = ""
    state: BindingState = BindingState.BOUND
    reason: str = ""
    row: bool = False

    @property
    def key(self) -> tuple[bool, str]:
        return self.row, self.name

    def mismatch(self, tenant: Tenant, *, strict: bool = False) -> BindingMismatch | None:
        """Return why it does not match a pod; None if it does. With `strict` an empty field matches nothing."""
        others = {
            BindingMismatch.INVALID: self.state is BindingState.INVALID or not self.uuid,
            BindingMismatch.APPLICATION: not self.app or self.app != tenant.app,
            BindingMismatch.WILDCARD: strict and not (self.owner and self.namespace),
            BindingMismatch.OWNER: self.owner != tenant.owner and not (self.legacy and not self.owner),
            BindingMismatch.NAMESPACE: self.namespace != tenant.namespace and not (self.legacy and not self.namespace),
            BindingMismatch.SELECTOR: not self._selects(tenant),
        }
        return next((why for why, so in others.items() if so), None)

    def _selects(self, tenant: Tenant) -> bool:
        return self.selector is not None and all(each.holds(None, tenant.labels) for each in self.selector)

    def invalid(self, reason: str) -> Binding:
        """Return the binding as invalid, with the reason."""
        return replace(self, state=BindingState.INVALID, reason=reason)

    def on(self, vram_bytes: int) -> Binding:
        """Return the binding for a card of that many bytes: invalid if it promises more."""
        if self.memory_bytes is None or self.memory_bytes <= vram_bytes or self.state is BindingState.INVALID:
            return self
        asked, there = format_bytes(self.memory_bytes), format_bytes(vram_bytes)
        return self.invalid(f"memory: {asked} is more than the card has ({there})")


@dataclass(frozen=True, slots=True)
class MatchedBindings:
    """The bindings of a pod. If they have several owners, it is unknown whose cards the pod may use."""

    bindings: tuple[Binding, ...]

    @property
    def owners(self) -> tuple[str, ...]:
        """Their owners; "" for bindings without an owner."""
        return tuple(sorted({binding.owner for binding in self.bindings}))

    @property
    def conflict(self) -> bool:
        """Whether the pod is refused because of several owners."""
        return len(self.owners) > 1

    @property
    def conflicting(self) -> tuple[Binding, ...]:
        """The bindings with the state and the reason of the conflict; none without a conflict."""
        if not self.conflict:
            return ()
        owners = " and ".join(owner or "no owner" for owner in self.owners)
        reason = f"one pod matches bindings of {owners}; state the owner on each, or delete one"
        return tuple(replace(each, state=BindingState.CONFLICT, reason=reason) for each in self.bindings)


def match_bindings(bindings: Iterable[Binding], tenant: Tenant, *, strict: bool = False) -> MatchedBindings:
    """Return the bindings that match a pod, by name."""
    found = (binding for binding in bindings if binding.mismatch(tenant, strict=strict) is None)
    return MatchedBindings(tuple(sorted(found, key=lambda binding: binding.name)))
