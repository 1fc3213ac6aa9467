"""Durable claims on cards: which application of whom may use a card, and how cards are shared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ullage.model.affinity import Term
from ullage.model.quantity import format_bytes


class ShareMode(StrEnum):
    """How the applications of one card share it: one alone, a cap of memory each, or in turns."""

    EXCLUSIVE = "Exclusive"
    MEMORY_SLICE = "MemorySlice"
    TIME_SLICE = "TimeSlice"


SUPPORTED_MODES: dict[str, tuple[ShareMode, ...]] = {
    "nvidia": (ShareMode.TIME_SLICE, ShareMode.MEMORY_SLICE, ShareMode.EXCLUSIVE),
    **dict.fromkeys(("nvidia-gb10", "intel", "amd", "moore-soc"), (ShareMode.MEMORY_SLICE, ShareMode.EXCLUSIVE)),
    "cpu": (ShareMode.MEMORY_SLICE,),
    **dict.fromkeys(("apple-m", "intel-gpu", "amd-gpu"), (ShareMode.EXCLUSIVE,)),
}
"""What each type of accelerator can do, what it does by default first."""


def supported_modes(accelerator: str) -> tuple[ShareMode, ...]:
    """What a type of accelerator can do, what it does by default first; one that is not known serves one at a time."""
    return SUPPORTED_MODES.get(accelerator, (ShareMode.EXCLUSIVE,))


class Consume(StrEnum):
    """Whether a pod takes all cards that are bound for it, or as many of them as it asks for."""

    ALL = "all"
    SINGLE = "single"


class BindingState(StrEnum):
    """Where a binding stands: in force; its old processes are ending; two owners want it; it cannot be read."""

    BOUND = "Bound"
    DRAINING = "Draining"
    CONFLICT = "Conflict"
    INVALID = "Invalid"


class Mismatch(StrEnum):
    """Why a binding is not for a pod; what comes first decides."""

    INVALID = "binding-invalid"
    APPLICATION = "other-application"
    WILDCARD = "binding-names-no-owner"
    OWNER = "other-owner"
    NAMESPACE = "other-namespace"
    SELECTOR = "not-selected"


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who a pod is to bindings; "" is not known."""

    app: str = ""
    owner: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Binding:
    """A card, and who may use it. All three of `app`, `owner` and `namespace` say who that is.

    `legacy` marks a record from before owners were known: what it leaves empty is anybody's. `selector` are
    conditions on labels that must all hold: without conditions every pod is meant, and none if it is None.
    `memory_bytes` is the most that may be used of the card, None for no such cap. `reason` says why it is
    invalid or in conflict; `accelerator` is the type of the card.
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

    def against(self, tenant: Tenant, *, strict: bool = False) -> Mismatch | None:
        """What keeps a pod from it; None if it is the pod's. With `strict` nothing that is empty is anybody's."""
        others = {
            Mismatch.INVALID: self.state is BindingState.INVALID or not self.uuid,
            Mismatch.APPLICATION: not self.app or self.app != tenant.app,
            Mismatch.WILDCARD: strict and not (self.owner and self.namespace),
            Mismatch.OWNER: self.owner != tenant.owner and not (self.legacy and not self.owner),
            Mismatch.NAMESPACE: self.namespace != tenant.namespace and not (self.legacy and not self.namespace),
            Mismatch.SELECTOR: not self._selects(tenant),
        }
        return next((why for why, so in others.items() if so), None)

    def _selects(self, tenant: Tenant) -> bool:
        return self.selector is not None and all(each.holds(None, tenant.labels) for each in self.selector)

    def invalid(self, reason: str) -> Binding:
        """Return the same as one that binds nothing, and why."""
        return replace(self, state=BindingState.INVALID, reason=reason)

    def on(self, vram_bytes: int) -> Binding:
        """Return the same against a card of that many bytes: invalid if it promises more than there is."""
        if self.memory_bytes is None or self.memory_bytes <= vram_bytes or self.state is BindingState.INVALID:
            return self
        asked, there = format_bytes(self.memory_bytes), format_bytes(vram_bytes)
        return self.invalid(f"memory: {asked} is more than the card has ({there})")


@dataclass(frozen=True, slots=True)
class Matched:
    """The bindings of a pod. Where they are of several owners nobody can say whose cards it may use."""

    bindings: tuple[Binding, ...]

    @property
    def owners(self) -> tuple[str, ...]:
        """Whose they are; "" for nobody's."""
        return tuple(sorted({binding.owner for binding in self.bindings}))

    @property
    def conflict(self) -> bool:
        """Whether the pod is refused for it."""
        return len(self.owners) > 1

    @property
    def shown(self) -> tuple[Binding, ...]:
        """The bindings as they are to be shown: all of them in conflict where there is one."""
        if not self.conflict:
            return self.bindings
        whose = " and ".join(owner or "nobody in particular" for owner in self.owners)
        reason = f"one pod matches bindings of {whose}; say the owner on each, or delete one"
        return tuple(replace(each, state=BindingState.CONFLICT, reason=reason) for each in self.bindings)


def matched(bindings: Iterable[Binding], tenant: Tenant, *, strict: bool = False) -> Matched:
    """Return the bindings that are for a pod, by name."""
    found = (binding for binding in bindings if binding.against(tenant, strict=strict) is None)
    return Matched(tuple(sorted(found, key=lambda binding: binding.name)))
