"""How near each other pods must be: levels above nodes, as PodGroups of Volcano and KAI name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ullage.model.error import NotFound, invalid
from ullage.wire.document import mapping, text, whole
from ullage.wire.topology.hypernode import MAX_TIER, TIER_LABEL


class Near(NamedTuple):
    """How close members must be, as in `GangClaim`: the preferred levels of labels, and the level that is required."""

    domain: str | None = None
    within: str | None = None


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels above nodes that objects of the cluster describe.

    `tiers` are those of HyperNodes, ascending, and `tier_names` those with a name. `topologies` are those of KAI by
    name: the labels of their levels, the outermost first.
    """

    tiers: Sequence[int] = ()
    tier_names: Mapping[str, int] = field(default_factory=dict)
    topologies: Mapping[str, Sequence[str]] = field(default_factory=dict)


def by_tier(document: object, at: str, levels: Levels) -> Near:
    """Return the proximity of Volcano's `networkTopology`: the lowest tier that fits; `hard` sets the highest allowed.

    Raises:
        NotFound: no HyperNode is of a tier with that name.

    """
    asked = mapping(document, at)
    if not asked:
        return Near()
    highest = whole(asked.get("highestTierAllowed"), f"{at}.highestTierAllowed", MAX_TIER)
    if name := text(asked.get("highestTierName")):
        if name not in levels.tier_names:
            raise NotFound(f"no HyperNode is of a tier with the name {name} yet", code="topology-missing")
        highest = levels.tier_names[name]
    tiers = [f"{TIER_LABEL}{tier}" for tier in reversed(levels.tiers) if not highest or tier <= highest]
    hard = text(asked.get("mode")) != "soft" and highest
    within = f"{TIER_LABEL}{highest}" if hard else None
    return Near(",".join(tiers) or within, within)


def by_constraint(document: object, at: str, levels: Levels) -> Near:
    """Return the proximity of KAI's `topologyConstraint`: from the preferred level outwards, up to the required one.

    Raises:
        NotFound: the topology does not exist. InvalidRequest: it has no such level, or they are in the wrong order.

    """
    asked = mapping(document, at)
    required, preferred = text(asked.get("requiredTopologyLevel")), text(asked.get("preferredTopologyLevel"))
    if not (required or preferred):
        return Near()
    name = text(asked.get("topology"))
    if name not in levels.topologies:
        raise NotFound(f"Topology {name} does not exist yet", code="topology-missing")
    known = list(levels.topologies[name])
    for key, label in (("requiredTopologyLevel", required), ("preferredTopologyLevel", preferred)):
        if label and label not in known:
            raise invalid(f"{at}.{key}", label, f"the levels of {name} are {', '.join(known)}")
    first = known.index(required) if required else 0
    last = known.index(preferred) if preferred else first
    if last < first:
        fix = f"it is above {required}, which is required; name a level below it"
        raise invalid(f"{at}.preferredTopologyLevel", preferred, fix)
    return Near(",".join(known[first : last + 1]), required or None)
