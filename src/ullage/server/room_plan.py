"""Bodies of consolidation: the moves, their cost, and the workloads that stay."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.core.evicting.moves import Consolidation, Move, NoConsolidation
from ullage.model.claim import Claim
from ullage.server.rejections import rejection_body
from ullage.wire import consolidation as wire
from ullage.wire.body import body_of


def room_plan(found: Consolidation | NoConsolidation, uids: Sequence[str] = ()) -> wire.RoomPlan:
    """Return the body of a plan or of its refusal. `uids` are those of the reserved room of an executed plan."""
    if isinstance(found, NoConsolidation):
        refusal = rejection_body(found.rejections[0])
        return body_of(wire.RoomPlan, found, units=(), moves=(), cost=None, least=False, refusal=refusal, done=False)
    names: Sequence[str | None] = uids or [None] * len(found.units)
    return body_of(
        wire.RoomPlan,
        found,
        units=[body_of(wire.UnitBody, unit, uid=uid) for uid, unit in zip(names, found.units, strict=True)],
        moves=[_move(move) for move in found.moves],
        cost=body_of(wire.MoveCostBody, found.cost, found),
        refusal=None,
        done=bool(uids),
    )


def _move(move: Move) -> wire.MoveBody:
    held, to = move.allocation, move.to
    stated = {"uid": held.id, "resreq": str(held.requirement), "to_node": to.node, "to_gpus": to.gpus}
    return body_of(wire.MoveBody, move, held, held.claim or Claim(), **stated)
