"""Taints that keep work off nodes and devices, and tolerations of them, by the rules of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EXCLUDING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep new work off; other effects do not."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node or device."""

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Toleration:
    """The tolerated taints: an empty key, or effect, matches all; `operator` is Equal or Exists."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("", "Equal") and bool(self.key) and self.value == taint.value


def tolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Return whether none of these taints keeps new work off."""
    known = tuple(tolerations)
    return all(any(each.tolerates(taint) for each in known) for taint in taints if taint.effect in EXCLUDING_EFFECTS)
