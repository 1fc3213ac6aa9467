"""Schemas of consolidation: which workloads move where so that requests for whole cards fit, and the cost."""

from __future__ import annotations

from ullage.wire.explanation import RejectionBody
from ullage.wire.requirement import ResourceMap
from ullage.wire.schema import Schema, View


class MakeRoom(Schema, frozen=True, kw_only=True):
    """Make room for `count` requests like this one, for whole cards. With `dry_run` nothing is changed.

    Otherwise the workloads that move are asked to stop, and the room is reserved under `uids`, one per request
    (without them `room-1`, `room-2`, ...). Workloads above the priority `up_to` do not move. `priority` and
    `namespace` are those of the future requests.
    """

    resreq: str | ResourceMap
    count: int = 1
    uids: list[str] | None = None
    namespace: str = "default"
    priority: int = 0
    up_to: int | None = None
    dry_run: bool = True


class UnitBody(View, frozen=True, kw_only=True):
    """Where one of the requests goes; its room is reserved under `uid`, which is None if nothing was changed."""

    uid: str | None
    node: str
    gpus: list[str]


class MoveBody(View, frozen=True, kw_only=True):
    """A workload that moves. With a `gap` it must stop before there is room for it at its next place."""

    uid: str
    namespace: str
    workload: str
    priority: int
    resreq: str
    node: str
    gpus: list[str]
    to_node: str
    to_gpus: list[str]
    gap: bool


class MoveCostBody(View, frozen=True, kw_only=True):
    """The cost of the moves; the plan of the smallest cost is chosen, compared from the first field on.

    The fields are: the highest priority of the workloads that move, their number, what they hold in thousandths of
    cards, and for how many seconds the one that has run longest has run.
    """

    highest: int
    number: int
    gpu_milli: int
    age_s: float


class RoomPlan(View, frozen=True, kw_only=True):
    """The places of the requests after the moves, which are made in this order; without moves they fit now.

    `least` says that no other plan costs less. `stays` counts the workloads that may not be moved, by reason. With a
    `refusal`, moves make room for fewer requests, as many as it `had`. `done` says that the workloads that move were
    asked to stop.
    """

    units: list[UnitBody]
    moves: list[MoveBody]
    cost: MoveCostBody | None
    least: bool
    stays: dict[str, int]
    refusal: RejectionBody | None
    done: bool
