"""How near the cards of a pod have to be to each other, in TensorFusion's annotations.

Tiers: 0 the same interconnect, 1 the same NUMA node, 2 several NUMA nodes, 3 not known.
"""

from __future__ import annotations

from enum import StrEnum

from ullage.wire.pod.keys import Keys

_REQUIRED, _MAX_TIER, _SOURCE = "require-gpu-topology", "gpu-topology-max-tier", "gpu-topology-source"

TOPOLOGY_KEYS = (_REQUIRED, _MAX_TIER, _SOURCE)
"""The annotations that are read here."""

_LINKED, _KNOWN, _ANY = 0, 2, 3


class Source(StrEnum):
    """The source of tiers: what is known, NUMA nodes only, or the interconnects of the vendor."""

    AUTO = "auto"
    NUMA = "numa"
    VENDOR = "vendor"


def needs_one_zone(keys: Keys) -> bool:
    """Return whether all cards of the pod must lie in one NUMA node.

    Raises:
        InvalidAnnotation: a value cannot be read, a demand has no `require-gpu-topology`, or cannot be satisfied
            by any placement here: the same interconnect, or tiers of the vendor.

    """
    required = keys.flag(_REQUIRED)
    tier, source = keys.count(_MAX_TIER), keys.choice(_SOURCE, Source)
    if tier is not None and tier > _ANY:
        raise keys.invalid(_MAX_TIER, "write 1 (one NUMA node) or 3 (anywhere on the node)")
    if not required:
        return False
    if tier == _LINKED:
        raise keys.invalid(_MAX_TIER, "cards of one interconnect cannot be demanded; write 1 for one NUMA node")
    if tier == _KNOWN:
        raise keys.invalid(_MAX_TIER, "known zones cannot be demanded; write 1 for one NUMA node, or 3 for any cards")
    if source is Source.VENDOR:
        raise keys.invalid(_SOURCE, "tiers of the vendor cannot be demanded; write numa, or leave it out")
    return tier != _ANY
