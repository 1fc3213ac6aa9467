"""The body of an explanation: why a session has its executors."""

from __future__ import annotations

import msgspec

from ullage.wire.event import EventBody
from ullage.wire.schema import View
from ullage.wire.session import TaskBody


class RejectionBody(View, frozen=True, kw_only=True):
    """Why one node refused: `needed` and `had` in the unit of the code's dimension.

    `gpu` is the uuid of the card that comes closest, where a card decides. `resource` names the resource of it that is
    used up, where the code does not.
    """

    node: str | None
    gpu: str | None
    code: str
    cure: str
    needed: int
    had: int
    text: str
    resource: str = ""


class HolderBody(View, frozen=True, kw_only=True):
    """A holder of the resources that are missing."""

    session: str
    owner: str
    executors: int
    deserved: int
    amount: str


class Explanation(View, frozen=True, kw_only=True):
    """Why a session has its present executors: one reason, its numbers, the nearest change that would help.

    `warnings` say what it can never have, and which nodes refuse it by a weaker prediction of zones. `evicted` is the
    last time that an executor of the session was ended for another session. `tasks` counts its tasks by state, without
    states that none has, and `first_failure` is the failed task with the lowest number. `past_use` says how past
    use changes the weights of its owner and of the queues above it.
    """

    session: str
    code: str
    cure: str | None
    summary: str
    want: int
    held: int
    deserved: int
    share: float
    position: int | None
    rejections: list[RejectionBody]
    holders: list[HolderBody]
    suggestions: list[str]
    warnings: list[str] = msgspec.field(default_factory=list)
    evicted: EventBody | None = None
    tasks: dict[str, int] = msgspec.field(default_factory=dict)
    first_failure: TaskBody | None = None
    past_use: list[str] = msgspec.field(default_factory=list)
