"""The state of the server at one time."""

from __future__ import annotations

from typing import Any

from ullage.wire.catalog import QueueBody
from ullage.wire.node import GpuBody, NodeBody
from ullage.wire.schema import View
from ullage.wire.session import SessionBody


class ServerBody(View, frozen=True, kw_only=True):
    """The server itself."""

    version: str
    epoch: int
    started_at: float
    home: str
    storage: str
    isolation: str
    policy: dict[str, Any]


class IdleBody(View, frozen=True, kw_only=True):
    """Idle thousandths of cards of one model, and the part of them that no expected task can use.

    `fragments_milli` is that part by the learned workload; it is None until the workload is known. `model` is None
    where it is not known.
    """

    model: str | None
    idle_milli: int
    fragments_milli: int | None


class RoomBody(View, frozen=True, kw_only=True):
    """Idle capacity. `fits` is, per number of whole cards, how many requests of that size (without cpu) fit now.

    The workload is learned from the `tasks` that arrived; fragments are reported only once `missing` more have
    arrived.
    """

    idle_milli: int
    fragments_milli: int | None
    models: list[IdleBody]
    fits: dict[int, int]
    tasks: int
    missing: int


class Overview(View, frozen=True, kw_only=True):
    """The state of everything at one time, for live views.

    `sessions_open` counts the open sessions, of which `sessions` may be a part.
    """

    at: float
    server: ServerBody
    nodes: list[NodeBody]
    gpus: list[GpuBody]
    room: RoomBody
    queues: list[QueueBody]
    sessions: list[SessionBody]
    sessions_open: int = 0
