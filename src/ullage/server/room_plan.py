"""Bodies of consolidation: which workloads move where, the cost, and which stay."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.core.evicting.moves import Consolidation, Move, NoConsolidation
from ullage.model.claim import Claim
from ullage.server.rejections import rejection_body
from ullage.wire import consolidation as wire


def room_plan(found: Consolidation | NoConsolidation, uids: Sequence[str] = ()) -> wire.RoomPlan:
    """Return the body of a plan, or why there is none; `uids` of reserved room mean that it was carried out."""
    stays = {reason.value: number for reason, number in found.stays.items()}
    if isinstance(found, NoConsolidation):
        refusal = rejection_body(found.rejections[0])
        return wire.RoomPlan(units=[], moves=[], cost=None, least=False, stays=stays, refusal=refusal, done=False)
    names: Sequence[str | None] = uids or [None] * len(found.units)
    highest, number, gpu_milli = found.cost
    return wire.RoomPlan(
        units=[
            wire.UnitBody(uid=uid, node=unit.node, gpus=list(unit.gpus))
            for uid, unit in zip(names, found.units, strict=True)
        ],
        moves=[_move(move) for move in found.moves],
        cost=wire.MoveCostBody(highest=highest, number=number, gpu_milli=gpu_milli, age_s=found.age_s),
        least=found.least,
        stays=stays,
        refusal=None,
        done=bool(uids),
    )


def _move(move: Move) -> wire.MoveBody:
    held, claim = move.allocation, move.allocation.claim or Claim()
    return wire.MoveBody(
        uid=held.id,
        namespace=claim.namespace,
        workload=claim.workload,
        priority=claim.priority,
        resreq=str(held.requirement),
        node=held.node,
        gpus=list(held.gpus),
        to_node=move.to.node,
        to_gpus=list(move.to.gpus),
        gap=move.gap,
    )
