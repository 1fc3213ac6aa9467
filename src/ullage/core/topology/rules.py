"""What an operator says of zones: frozen, passed in with the machines, the same for all requests."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ullage.model.topology import Topology


class WidthRule(StrEnum):
    """How narrow a preferred mask is: by all that a machine has, or by what is free now."""

    KUBELET = "kubelet"
    CURRENT_BEST = "current-best"


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """How zones are looked at. A `width_rule` of None is that of whoever places: a kubelet, or Ullage."""

    width_rule: WidthRule | None = None

    def width_on(self, topology: Topology) -> WidthRule:
        """The rule on a machine: what a kubelet places there it places by its own."""
        if self.width_rule is not None:
            return self.width_rule
        return WidthRule.CURRENT_BEST if topology.kubelet is None else WidthRule.KUBELET


AS_USUAL = ZoneRules()
