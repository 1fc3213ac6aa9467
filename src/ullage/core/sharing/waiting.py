"""Why a session waits that does not hold all it wants."""

from __future__ import annotations

from ullage.core.books.fleet import Fleet
from ullage.core.sharing.entitlement import shortage
from ullage.core.sharing.shares import Leaf
from ullage.core.sharing.world import Demand
from ullage.model.rejection import NEVER_PLACED, Code


def why_waits(demand: Demand, leaf: Leaf, *, obstacle: Code | None, deserved: int, ceiling: int, fleet: Fleet) -> Code:
    """Return the reason.

    `obstacle` says why none of its batches is placed even alone. It deserves so many executors, and may hold as many
    units as `ceiling` while others of its own are leaving.
    """
    held = leaf.held * demand.batch_size
    if demand.held_back is not None and (demand.held_back is Code.CLOSED or obstacle not in NEVER_PLACED):
        return demand.held_back
    if obstacle is not None:
        return obstacle
    if leaf.stopped in (Code.QUEUE_LIMIT, Code.APPLICATION_LIMIT, Code.RESERVED):
        return leaf.stopped
    if leaf.leaving and leaf.held >= ceiling:
        return Code.MAX_INSTANCES
    if held and held >= deserved:
        return Code.SHARE
    return leaf.stopped or shortage(fleet, demand)
