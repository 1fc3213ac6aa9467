"""Schemas of making room: who would move where so that requests for whole cards fit, and what that costs."""

from __future__ import annotations

from ullage.wire.api import RejectionBody, ResourceMap, Schema, View


class MakeRoom(Schema, frozen=True, kw_only=True):
    """Room for `count` requests like this one, for whole cards. With `dry_run` nothing is done.

    Otherwise those who move are told to go, and the room is kept under `uids`, as many as there are requests
    (without them `room-1`, `room-2`, ...). Nobody above the priority `up_to` moves. `priority` and `namespace`
    are those of the requests to come.
    """

    resreq: str | ResourceMap
    count: int = 1
    uids: list[str] | None = None
    namespace: str = "default"
    priority: int = 0
    up_to: int | None = None
    dry_run: bool = True


class UnitBody(View, frozen=True, kw_only=True):
    """Where one of the requests goes; `uid` is the one under which room is kept, None if nothing was done."""

    uid: str | None
    node: str
    gpus: list[str]


class MoveBody(View, frozen=True, kw_only=True):
    """One who moves. With a `gap` it must leave before there is room for it at its next place."""

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
    """What the moves cost; the smallest is taken, compared from the first field on.

    The highest priority of those who move, how many they are, what they hold in thousandths of cards; and for
    how many seconds the one of them runs that has run longest.
    """

    highest: int
    number: int
    gpu_milli: int
    age_s: float


class RoomPlan(View, frozen=True, kw_only=True):
    """Where the requests fit once the moves are made, in this order; without moves they fit as it is.

    `least` says that no other plan costs less. `stays` counts those who may not be moved, by reason. With a
    `refusal` moving makes room for fewer, as many as it `had`. `done` says that those who move were told to go.
    """

    units: list[UnitBody]
    moves: list[MoveBody]
    cost: MoveCostBody | None
    least: bool
    stays: dict[str, int]
    refusal: RejectionBody | None
    done: bool
