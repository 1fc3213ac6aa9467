"""The operator's rules for zones, the same for all requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from ullage.model.gpu import Gpu
from ullage.model.provider import ALIGN_LABEL, SHIPPED, Provider, ProviderKind, label_of, pages_of
from ullage.model.topology import CARD, CPU, MEMORY, Topology, Zone


class WidthRule(StrEnum):
    """Whether the width of a preferred mask follows from what a machine has in all, or from what is free now."""

    KUBELET = "kubelet"
    CURRENT_BEST = "current-best"


@dataclass(frozen=True)
class ZoneRules:
    """How zones are compared. A `width_rule` of None is that of the placer: a kubelet, or Ullage.

    The first of the `providers` that fits a resource decides whether it is aligned; a resource that none fits is not.
    A label of a node (`label_of`) overrides them.

    The closeness of a placement counts `weight` times what the strategy says. It is absolute, 100 over the number of
    zones, or `relative` to the candidate that needs most zones.
    """

    width_rule: WidthRule | None = None
    providers: tuple[Provider, ...] = SHIPPED
    weight: float = 1.0
    relative: bool = False

    def width_on(self, topology: Topology) -> WidthRule:
        """Return the rule on a machine; a kubelet has its own."""
        if self.width_rule is not None:
            return self.width_rule
        return WidthRule.CURRENT_BEST if topology.kubelet is None else WidthRule.KUBELET

    def leaves_out(self, labels: Mapping[str, str]) -> bool:
        """Return whether something of a node with these labels may be left out of alignment."""
        return self._not_all or any(label.startswith(ALIGN_LABEL) for label in labels)

    @cached_property
    def _not_all(self) -> bool:
        return self.providers != SHIPPED

    def aligns(self, labels: Mapping[str, str], kind: ProviderKind, name: str, vendor: str | None = None) -> bool:
        """Return whether a resource is aligned on a node with these labels; `vendor` is that of a card."""
        label = labels.get(label_of(kind, name))
        if label in ("true", "false"):
            return label == "true"
        return next((each.align for each in self.providers if each.fits(kind, name, vendor)), False)

    def aligns_card(self, labels: Mapping[str, str], gpu: Gpu) -> bool:
        """Return whether a card of a node with these labels is aligned."""
        return self.aligns(labels, ProviderKind.DEVICE, CARD, gpu.vendor)

    def aligned_part(self, topology: Topology, labels: Mapping[str, str]) -> Topology:
        """Return the record of a node with these labels without what is not aligned there.

        CPUs and memory are not exclusive then; devices are still allocated, from unknown zones.
        """
        devices = tuple(
            device if self.aligns(labels, ProviderKind.DEVICE, device.resource) else replace(device, zones=())
            for device in topology.devices
        )
        cpus = topology.cpus if self.aligns(labels, ProviderKind.CPU, CPU) else ()
        zones = tuple(self._aligned_zone(zone, labels) for zone in topology.zones)
        return replace(topology, devices=devices, cpus=cpus, zones=zones)

    def _aligned_zone(self, zone: Zone, labels: Mapping[str, str]) -> Zone:
        memory = zone.memory if self.aligns(labels, ProviderKind.MEMORY, MEMORY) else None
        pages = {
            size: room
            for size, room in zone.hugepages.items()
            if self.aligns(labels, ProviderKind.HUGEPAGES, pages_of(size))
        }
        amounts = {
            resource: room
            for resource, room in zone.amounts.items()
            if self.aligns(labels, ProviderKind.CPU if resource == CPU else ProviderKind.DEVICE, resource)
        }
        return replace(zone, memory=memory, hugepages=pages, amounts=amounts)


AS_USUAL = ZoneRules()
