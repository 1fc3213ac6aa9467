"""The room of a card: the applications on it with their amounts, and whether another one fits."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from ullage.model.binding import BindingMismatch, ShareMode
from ullage.model.compute import AppKey, ComputeCard
from ullage.model.quantity import format_bytes

TENANTS = 10
"""Default maximum number of applications that time-slice a card."""

MODE_ORDER = {ShareMode.EXCLUSIVE: 0, ShareMode.MEMORY_SLICE: 1, ShareMode.TIME_SLICE: 2}
"""The order in which share modes are preferred: exclusive cards first."""


class Hindrance(StrEnum):
    """Why bindings exclude a node for a pod. `BindingMismatch` has the reasons why one binding does not match a pod."""

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
    OWNER_QUOTA = "owner-quota"
    APP_QUOTA = "app-quota"


FULL = frozenset(
    {Hindrance.EXCLUSIVE, Hindrance.NO_MEMORY, Hindrance.TENANTS, Hindrance.OWNER_QUOTA, Hindrance.APP_QUOTA}
)
"""The reasons with amounts why an application may not have a card: no room on it, or a quota."""


class BindingRejection(NamedTuple):
    """Why bindings exclude a node for a pod, or why a card has no room for a binding.

    `detail` is a card, the owners of the cards, or an amount of a quota. `needed` and `had` are bytes of memory,
    applications on a card, or cards of a node, depending on `code`. `helps`: whether evicting another pod of the
    application could help. `note` has the amounts of a quota.
    """

    code: Hindrance | BindingMismatch
    detail: str = ""
    needed: int = 0
    had: int = 0
    helps: bool = False
    note: str = ""

    @property
    def text(self) -> str:
        """The code with the detail. It has no amounts of memory, because schedulers count nodes with equal texts."""
        if self.code is Hindrance.TOO_FEW:
            return f"{self.code}: requested={self.needed}, bound={self.had}"
        return f"{self.code}:{self.detail}" if self.detail else self.code.value

    @property
    def sentence(self) -> str:
        """The text with its amounts."""
        match self.code:
            case Hindrance.NO_MEMORY:
                return f"{self.text}: {format_bytes(self.needed)} are bound, {format_bytes(self.had)} are left"
            case Hindrance.TENANTS:
                return f"{self.text}: {self.needed} applications would take turns, at most {self.had} may"
        return f"{self.text}: {self.note}" if self.note else self.text


class CardTenants:
    """The applications on one card, with the bytes promised to each.

    An application with two rows, as while one of them drains, counts once with the larger amount. After `add` with
    another share mode than that of the card, nothing else fits.
    """

    def __init__(self, card: ComputeCard, tenants: int = TENANTS) -> None:
        self._card, self._promised = card, dict[AppKey, int]()
        self._most = {ShareMode.EXCLUSIVE: 1, ShareMode.TIME_SLICE: tenants}.get(card.share)
        self._mode_changed = False

    def add(self, app: AppKey, share: ShareMode, memory_bytes: int) -> None:
        """Add an application, whether or not it fits. Its amount counts only on a card whose memory is sliced."""
        self._promised[app] = max(self._promised.get(app, 0), memory_bytes)
        self._mode_changed |= share is not self._card.share

    @property
    def free_bytes(self) -> int:
        """The memory that another application could get; 0 for a card of unknown memory.

        On exclusive and time-sliced cards, each application sees all memory of the card.
        """
        if self._mode_changed:
            return 0
        if self._most is None:
            return max(0, self._card.memory_bytes - sum(self._promised.values()))
        return self._card.memory_bytes if len(self._promised) < self._most else 0

    def reject(self, memory_bytes: int, app: AppKey | None = None) -> BindingRejection | None:
        """Return why an application does not fit; None if it does. What `app` already has on the card is not counted.

        A card of unknown memory has enough.
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
