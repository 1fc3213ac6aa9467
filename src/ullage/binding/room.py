"""The room of a card for applications: who is on it, with how much, and whether one more fits."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from ullage.model.binding import BindingMismatch, ShareMode
from ullage.model.compute import AppKey, ComputeCard
from ullage.model.quantity import format_bytes

TENANTS = 10
"""Applications that may take turns on a card by default."""


class Hindrance(StrEnum):
    """Why bindings keep a pod from a node, in addition to `BindingMismatch`, which keeps one binding from a pod."""

    NO_LABEL = "application-label-missing"
    NOT_BOUND = "not-bound"
    NOT_HERE = "no-bound-card"
    CONFLICT = "bindings-of-several-owners"
    MIXED = "bound-cards-shared-differently"
    TOO_FEW = "InsufficientGPU"
    EXCLUSIVE = "exclusive-already-bound"
    NO_MEMORY = "device-vram-insufficient"
    TENANTS = "tenants-exhausted"
    DRAINING = "device-draining"


FULL = frozenset({Hindrance.EXCLUSIVE, Hindrance.NO_MEMORY, Hindrance.TENANTS})
"""Why a card has no room for one more application."""


class BindingRejection(NamedTuple):
    """Why bindings keep a pod from a node, or why a card has no room for a binding.

    `detail` is a card, or whose cards they are. `needed` and `had` are bytes of memory, applications on a card, or
    cards of a node, as `code` says. It `helps` if another pod of the same application leaves.
    """

    code: Hindrance | BindingMismatch
    detail: str = ""
    needed: int = 0
    had: int = 0
    helps: bool = False

    @property
    def text(self) -> str:
        """The code with the detail. Schedulers count equal texts over nodes, so amounts are only those of cards."""
        if self.code is Hindrance.TOO_FEW:
            return f"{self.code}: requested={self.needed}, bound={self.had}"
        return f"{self.code}:{self.detail}" if self.detail else self.code.value

    @property
    def sentence(self) -> str:
        """The text with all amounts."""
        match self.code:
            case Hindrance.NO_MEMORY:
                return f"{self.text}: {format_bytes(self.needed)} are bound, {format_bytes(self.had)} are left"
            case Hindrance.TENANTS:
                return f"{self.text}: {self.needed} applications would take turns, at most {self.had} may"
        return self.text


class CardTenants:
    """The applications on one card, by the bytes that each was promised.

    An application that is there twice, as one that drains and is back, counts once with the larger amount. Once
    somebody is `add`ed who came under another mode, nobody else fits.
    """

    def __init__(self, card: ComputeCard, tenants: int = TENANTS) -> None:
        self._card, self._promised = card, dict[AppKey, int]()
        self._most = {ShareMode.EXCLUSIVE: 1, ShareMode.TIME_SLICE: tenants}.get(card.share)
        self._mode_changed = False

    def add(self, app: AppKey, share: ShareMode, memory_bytes: int) -> None:
        """Enter an application, whether there is room for it or not. Its amount counts where memory is shared out."""
        self._promised[app] = max(self._promised.get(app, 0), memory_bytes)
        self._mode_changed |= share is not self._card.share

    @property
    def free_bytes(self) -> int:
        """The memory that one more application could be given; 0 of a card of unknown memory.

        What is alone on a card has all of it; shared memory is counted; those that take turns see all of it.
        """
        if self._mode_changed:
            return 0
        if self._most is None:
            return max(0, self._card.memory_bytes - sum(self._promised.values()))
        return self._card.memory_bytes if len(self._promised) < self._most else 0

    def reject(self, memory_bytes: int, app: AppKey | None = None) -> BindingRejection | None:
        """Return why an application does not fit; None if it does. What `app` has there already is its own.

        A card of unknown memory has enough of it.
        """
        others = [amount for key, amount in self._promised.items() if key != app]
        name, total = self._card.id, self._card.memory_bytes
        if self._mode_changed:
            return BindingRejection(Hindrance.DRAINING, name)
        if self._most is not None:
            code = Hindrance.EXCLUSIVE if self._card.share is ShareMode.EXCLUSIVE else Hindrance.TENANTS
            return BindingRejection(code, name, len(others) + 1, self._most) if len(others) >= self._most else None
        left = max(0, total - sum(others))
        return (
            BindingRejection(Hindrance.NO_MEMORY, name, memory_bytes, left) if total and memory_bytes > left else None
        )
