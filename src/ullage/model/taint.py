"""Taints that keep work off nodes and devices, and tolerations of them, by the rules of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

EXCLUDING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep new work off; other effects do not."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node or device."""

    key: str
    value: str = ""
    effect: str = ""

    @property
    def excludes(self) -> bool:
        """Whether it keeps work off that does not tolerate it."""
        return self.effect in EXCLUDING_EFFECTS

    def __str__(self) -> str:
        """Return the taint as kubectl writes it: `dedicated=team-a:NoSchedule`."""
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


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


ANY_TAINT = Toleration(operator="Exists")
"""The toleration of every taint."""


def tolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Return whether none of these taints keeps new work off."""
    return next(untolerated(taints, tolerations), None) is None


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Iterator[Taint]:
    """Yield the taints that keep new work with these tolerations off, in the given order."""
    known = tuple(tolerations)
    return (taint for taint in taints if taint.excludes and not any(each.tolerates(taint) for each in known))
