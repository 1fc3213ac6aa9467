"""Bodies of applications and queues."""

from __future__ import annotations

from ullage.model.application_default import DELAY_RELEASE_S, MAX_INSTANCES
from ullage.model.queue_name import ROOT
from ullage.wire.amount import AmountBody
from ullage.wire.fair_share import ShareBody
from ullage.wire.schema import Schema, View


class PutApplicationBody(Schema, frozen=True, kw_only=True):
    """The whole specification of an application; an omitted field takes its default."""

    command: str = ""
    arguments: list[str] = []
    environment: dict[str, str] = {}
    working_directory: str | None = None
    description: str = ""
    labels: list[str] = []
    max_instances: int = MAX_INSTANCES
    delay_release_s: float = DELAY_RELEASE_S
    retries: int = 0
    task_timeout_s: float | None = None
    default_priority: int = 0
    default_weight: int = 1
    enabled: bool = True


class ApplicationBody(View, frozen=True, kw_only=True):
    """An application."""

    name: str
    command: str
    arguments: list[str]
    environment: dict[str, str]
    working_directory: str | None
    description: str
    labels: list[str]
    max_instances: int
    delay_release_s: float
    retries: int
    task_timeout_s: float | None
    default_priority: int
    default_weight: int
    enabled: bool
    built_in: bool


class PutQueueBody(Schema, frozen=True, kw_only=True):
    """The whole specification of a queue. Guarantee, limit, `default_resreq` and `max_resreq` are requirement texts.

    A session that states nothing gets `default_resreq`, and `default_time_s` for each task; it may state at most
    `max_resreq` for an executor and `max_time_s` for a task. Queues below this one have the same bounds.
    """

    parent: str = ROOT
    weight: int = 1
    guarantee: str | None = None
    limit: str | None = None
    default_resreq: str | None = None
    max_resreq: str | None = None
    default_time_s: float | None = None
    max_time_s: float | None = None


class QueueBody(View, frozen=True, kw_only=True):
    """A queue of the share tree; `share` is its dominant share as a fraction of the fleet.

    `warnings` name a guarantee that all nodes together cannot meet, alone or with those of other queues. `past_use`
    is there with a half-life of past use, once the queue has used something or has work.
    """

    name: str
    parent: str
    weight: int
    guarantee: str | None
    limit: str | None
    held: AmountBody
    share: float
    sessions: int
    pending: int
    running: int
    default_resreq: str | None = None
    max_resreq: str | None = None
    default_time_s: float | None = None
    max_time_s: float | None = None
    warnings: list[str] = []
    past_use: ShareBody | None = None
