"""Schemas of the HTTP API under `/v1`: request and response bodies.

Bodies are JSON; task inputs and results may also be MessagePack (`application/msgpack`), which carries bytes
unchanged, where JSON carries them as base64. Unknown fields are refused. Times are seconds since the epoch, amounts
are in the unit of their name, a requirement is its text form.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ullage.model.application import DELAY_RELEASE_S, MAX_INSTANCES
from ullage.model.queue import DEFAULT_QUEUE, ROOT


class Schema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """Common settings of all bodies."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A response body; a client ignores fields it does not know yet."""


# --- requests ---


class ResourceMap(Schema, frozen=True, kw_only=True):
    """A requirement as a mapping with the keys of its text; `mem` and `memory` mean the same, give one.

    `cpu` counts cores: `2`, `0.5` or `"500m"`. A part of a card is `gpu` below 1, or `vram`, `tflops` or `percent` of
    each card. Alternatives are separated by `|` in `gpu_model`, `gpu_vendor`, `gpu_index`, `gpu_uuid` and
    `gpu_model_like`. `gpu_uuid` may list more cards than are requested. A model matches `gpu_model_like` if its name
    contains one of the words, in any case. `not_gpu_uuid` and `not_gpu_model_like` exclude cards. `numa` says how
    strictly CPUs and cards are kept in the same zones. `pairs` says which devices its cards are kept near:
    `{"gpu~nic": "required"}`, or `preferred`. `links` says how its cards are linked with each other: `best` or
    `island`.
    """

    cpu: int | float | str = 0
    mem: int | str | None = None
    memory: int | str | None = None
    gpu: int | float | str | None = None
    vram: int | str | None = None
    tflops: int | float | str | None = None
    percent: int | float | str | None = None
    gpu_model: str | None = None
    gpu_vendor: str | None = None
    gpu_index: int | str | None = None
    gpu_uuid: str | None = None
    not_gpu_uuid: str | None = None
    gpu_model_like: str | None = None
    not_gpu_model_like: str | None = None
    pool: str | None = None
    isolation: str | None = None
    partition: str | None = None
    numa: str | None = None
    links: str | None = None
    pairs: dict[str, str] | None = None


class SetupBody(Schema, frozen=True, kw_only=True):
    """Settings of the workers of a session in addition to those of its application."""

    python: str | None = None
    working_directory: str | None = None
    environment: dict[str, str] = {}


class CreateSession(Schema, frozen=True, kw_only=True):
    """A new session. With `id` None the server chooses an id; with `resreq` None the configured default applies."""

    application: str
    id: str | None = None
    resreq: str | ResourceMap | None = None
    queue: str = DEFAULT_QUEUE
    owner: str = ""
    priority: int | None = None
    weight: int | None = None
    min_instances: int = 0
    max_instances: int | None = None
    batch_size: int = 1
    common_data: bytes | None = None
    setup: SetupBody = SetupBody()
    retries: int | None = None
    task_timeout_s: float | None = None
    close_when_done: bool = False


class UpdateSession(Schema, frozen=True, kw_only=True):
    """Changes to an open session; an omitted field stays as it is."""

    priority: int | msgspec.UnsetType = msgspec.UNSET
    weight: int | msgspec.UnsetType = msgspec.UNSET
    min_instances: int | msgspec.UnsetType = msgspec.UNSET
    max_instances: int | msgspec.UnsetType | None = msgspec.UNSET


class SubmitTasks(Schema, frozen=True, kw_only=True):
    """New tasks in order. `key` identifies a repeat of this submission, which is answered and not submitted again.

    `shared` is data that all of these tasks use; it is sent to an executor once.
    """

    inputs: list[bytes]
    key: str
    shared: bytes | None = None


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


class PutQueueBody(Schema, frozen=True, kw_only=True):
    """The whole specification of a queue. Guarantee and limit are requirement texts."""

    parent: str = ROOT
    weight: int = 1
    guarantee: str | None = None
    limit: str | None = None


# --- responses ---


class ErrorBody(View, frozen=True, kw_only=True):
    """The body of every error: compare `code`, read `message`; `field` names the offending input."""

    code: str
    message: str
    field: str | None = None


class Submitted(View, frozen=True, kw_only=True):
    """Ids of the new tasks: `first` .. `first + count - 1`."""

    first: int
    count: int


class Result(View, frozen=True, kw_only=True):
    """The result of a task. `sequence` orders the results of a session."""

    task: int
    sequence: int
    state: str
    code: int
    output: bytes | None
    message: str
    executor: str | None
    started_at: float | None
    ended_at: float


class Results(View, frozen=True, kw_only=True):
    """Results after a cursor. `next` is the cursor to continue from; `closed` says that no more will come."""

    results: list[Result]
    next: int
    closed: bool


class TaskBody(View, frozen=True, kw_only=True):
    """One task; result fields are None until it ends."""

    session: str
    task: int
    state: str
    created_at: float
    executor: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    code: int | None = None
    message: str = ""
    losses: int = 0


class SessionBody(View, frozen=True, kw_only=True):
    """A session with its counts, what it holds and what it deserves (both in executors).

    `warnings` are in the response to its creation, and to a change: what can never be satisfied, and what to ask for
    instead.
    """

    id: str
    application: str
    state: str
    resreq: str
    queue: str
    owner: str
    priority: int
    weight: int
    min_instances: int
    max_instances: int | None
    batch_size: int
    created_at: float
    closed_at: float | None
    pending: int
    running: int
    succeed: int
    failed: int
    cancelled: int
    held: int
    deserved: int
    share: float
    bind_failures: int
    reason: str | None
    message: str
    warnings: list[str] = msgspec.field(default_factory=list)


class PlacementBody(View, frozen=True, kw_only=True):
    """Where in its machine an allocation lies: its zones, and its exclusive CPUs, such as `0-3,8`.

    `devices` are ids by resource, without cards; `memory_bytes` are by zone. `rank` says how it is known: observed,
    bound or predicted. `rule` is the rule of the smallest width by which its zones were chosen.
    """

    zones: list[int]
    cpus: str
    devices: dict[str, list[str]]
    memory_bytes: dict[int, int]
    rank: str
    rule: str


class ExecutorBody(View, frozen=True, kw_only=True):
    """A worker process. `note` says which part of its `placement` could not be given."""

    id: str
    node: str
    state: str
    session: str | None
    resreq: str
    gpus: list[str]
    pid: int | None
    tasks_running: int
    gang: str | None
    since: float
    placement: PlacementBody | None = None
    note: str = ""


class PartBody(View, frozen=True, kw_only=True):
    """A part of a card; amounts are None where the capacity of the card is not known."""

    fraction: float
    vram_bytes: int | None
    compute_gflops: int | None


class GpuHolderBody(View, frozen=True, kw_only=True):
    """An executor and the part of a card that it holds; session and owner are None while it has no session.

    `fraction` is the larger of those of compute and vram. `isolation` is `shared` where it has the whole card. A card
    whose node reports owners that are not known here has one holder, `foreign:` and the node.
    """

    executor: str
    session: str | None
    owner: str | None
    fraction: float
    vram_bytes: int | None
    compute_gflops: int | None
    isolation: str


class GpuBody(View, frozen=True, kw_only=True):
    """A card, what is free of it (`fraction`: the largest that fits) and its holders.

    `isolations` are the modes in which its users can be isolated, None if that is not known.
    """

    node: str
    index: int
    uuid: str
    model: str | None
    vendor: str | None
    pool: str | None
    vram_bytes: int | None
    compute_gflops: int | None
    zones: list[int]
    bus_id: str | None
    healthy: bool
    isolations: list[str] | None
    free: PartBody
    holders: list[GpuHolderBody]


class AmountBody(View, frozen=True, kw_only=True):
    """An amount per dimension."""

    cpu_milli: int
    memory_bytes: int
    gpu_milli: int


class NodeBody(View, frozen=True, kw_only=True):
    """A machine: its capacity, what workloads may hold of it, and what is held.

    `observed_at` is when it last reported its allocations, in seconds since the epoch, None if it never did;
    `strangers` are the reported owners that are not known here.
    """

    name: str
    state: str
    cordoned: bool
    capacity: AmountBody
    allocatable: AmountBody
    held: AmountBody
    executors: int
    max_executors: int
    gpu_source: str | None
    note: str
    labels: dict[str, str]
    arch: str | None
    os: str | None
    observed_at: float | None = None
    strangers: list[str] = []


class QueueBody(View, frozen=True, kw_only=True):
    """A queue of the share tree; `share` is its dominant share as a fraction of the fleet."""

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
    last time that an executor of the session was ended for another session.
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


class EventBody(View, frozen=True, kw_only=True):
    """An event."""

    number: int
    at: float
    kind: str
    session: str | None
    code: int | None
    message: str
    data: dict[str, Any]


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
    """The state of everything at one time, for live views."""

    at: float
    server: ServerBody
    nodes: list[NodeBody]
    gpus: list[GpuBody]
    room: RoomBody
    queues: list[QueueBody]
    sessions: list[SessionBody]
