"""How near the cards of a pod have to be to each other, in TensorFusion's annotations, and what it asks of links.

Tiers: 0 the same interconnect, 1 the same NUMA node, 2 several NUMA nodes, 3 not known.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from ullage.model.alignment import LinkDemand
from ullage.wire.pod.keys import Keys

_REQUIRED, _MAX_TIER, _SOURCE = "require-gpu-topology", "gpu-topology-max-tier", "gpu-topology-source"
_LINKS = "gpu-links"

TOPOLOGY_KEYS = (_REQUIRED, _MAX_TIER, _SOURCE, _LINKS)
"""The annotations that are read here."""


class Tier(IntEnum):
    """How near cards are to each other at least."""

    LINKED = 0
    ONE_ZONE = 1
    KNOWN_ZONES = 2
    ANY = 3


class Source(StrEnum):
    """The source of tiers: what is known, NUMA nodes only, or the interconnects of the vendor."""

    AUTO = "auto"
    NUMA = "numa"
    VENDOR = "vendor"


def demanded_tier(keys: Keys) -> Tier | None:
    """Return the tier that all cards of the pod must be in, `LINKED` or `ONE_ZONE`; None if any cards will do.

    Tier 0 is by links, with the source `vendor` or without one; tier 1 is by zones.

    Raises:
        InvalidAnnotation: a value cannot be read, a demand has no `require-gpu-topology`, or no placement here is
            decided by it: tier 2, tier 1 by links, or tier 0 by zones.

    """
    required = keys.flag(_REQUIRED)
    tier, source = keys.count(_MAX_TIER), keys.choice(_SOURCE, Source)
    if tier is not None and tier > Tier.ANY:
        raise keys.invalid(_MAX_TIER, "write 0 (one interconnect), 1 (one NUMA node) or 3 (anywhere on the node)")
    if not required:
        return None
    if tier == Tier.KNOWN_ZONES:
        raise keys.invalid(_MAX_TIER, "known zones cannot be demanded; write 1 for one NUMA node, or 3 for any cards")
    if tier == Tier.LINKED and source is Source.NUMA:
        raise keys.invalid(_SOURCE, "NUMA nodes say nothing of interconnects; write vendor, or leave it out")
    if tier in (None, Tier.ONE_ZONE) and source is Source.VENDOR:
        raise keys.invalid(_SOURCE, "links say nothing of NUMA nodes; write numa, or demand tier 0")
    return None if tier == Tier.ANY else Tier(Tier.ONE_ZONE if tier is None else tier)


def demanded_links(keys: Keys, tier: Tier | None) -> LinkDemand | None:
    """Return what a pod asks of the links between its cards, by `gpu-links` or by tier 0.

    Raises:
        InvalidAnnotation: the value cannot be read, or differs from the demanded tier.

    """
    links = keys.choice(_LINKS, LinkDemand)
    if tier is not Tier.LINKED:
        return links
    if links not in (None, LinkDemand.ISLAND):
        raise keys.invalid(_LINKS, f"{keys.key(_MAX_TIER)} demands one interconnect; keep one of the two")
    return LinkDemand.ISLAND
