"""The place of an allocation in a machine, as a body."""

from __future__ import annotations

from ullage.model.idset import format_ids
from ullage.model.topology import CARD
from ullage.model.zone_placement import ZonePlacement
from ullage.wire.body import body_of
from ullage.wire.node import PlacementBody


def placement_body(placement: ZonePlacement | None) -> PlacementBody | None:
    """Return the body of a placement without its cards, which have their own bodies."""
    if placement is None:
        return None
    return body_of(
        PlacementBody,
        placement,
        cpus=format_ids(placement.cpus),
        devices={resource: ids for resource, ids in placement.devices if resource != CARD},
        memory_bytes=dict(placement.memory),
    )
