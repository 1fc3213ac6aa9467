"""Schemas of the HTTP API under `/v1`: what callers send and what they get.

Bodies are JSON; task inputs and results may also travel as MessagePack (`application/msgpack`), which
carries bytes as they are, where JSON carries them as base64. Unknown fields are refused. Times are
seconds since the epoch, amounts are in the unit of their name, a requirement is its text form.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ullage.model.application import DELAY_RELEASE_S, MAX_INSTANCES
from ullage.model.queue import DEFAULT_QUEUE, ROOT


class Schema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """Common settings of everything on the wire."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the server answers; a client ignores fields it does not know yet."""


# --- requests ---


class ResourceMap(Schema, frozen=True, kw_only=True):
    """A requirement as a mapping with the keys of its text; `mem` and `memory` mean the same, give one.

    `cpu` counts cores: `2`, `0.5` or `"500m"`.

    A part of a card is `gpu` below 1, or `vram`, `tflops` or `percent` of each card. Alternatives of
    `gpu_model`, `gpu_vendor` and `gpu_index` are separated by `|`, and so are the cards of `gpu_uuid`, which
    may be more than are asked, and the words of `gpu_model_like`, of which a model has one in its name in any
    case; `not_gpu_uuid` and `not_gpu_model_like` are those that will not do. `numa` says how strictly CPUs and
    cards are kept in the same zones, `pairs` what its cards are kept near to: `{"gpu~nic": "required"}`, or
    `preferred`.
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
    pairs: dict[str, str] | None = None


class SetupBody(Schema, frozen=True, kw_only=True):
    """What workers of the session need beyond their application."""

    python: str | None = None
    working_directory: str | None = None
    environment: dict[str, str] = {}


class CreateSession(Schema, frozen=True, kw_only=True):
    """A new session. `id` None lets the server choose; `resreq` None takes the configured default."""

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
    """Changes to an open session; a field left out stays."""

    priority: int | msgspec.UnsetType = msgspec.UNSET
    weight: int | msgspec.UnsetType = msgspec.UNSET
    min_instances: int | msgspec.UnsetType = msgspec.UNSET
    max_instances: int | msgspec.UnsetType | None = msgspec.UNSET


class SubmitTasks(Schema, frozen=True, kw_only=True):
    """New tasks in order. `key` makes a repeat of this submission known: it is answered, not repeated.

    `shared` is data that all of these tasks use, sent to an executor once.
    """

    inputs: list[bytes]
    key: str
    shared: bytes | None = None


class PutApplication(Schema, frozen=True, kw_only=True):
    """An application's whole specification; what is left out takes its default."""

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


class PutQueue(Schema, frozen=True, kw_only=True):
    """A queue's whole specification. Guarantee and limit are requirement texts."""

    parent: str = ROOT
    weight: int = 1
    guarantee: str | None = None
    limit: str | None = None


# --- answers ---


class ErrorBody(View, frozen=True, kw_only=True):
    """Every error: compare `code`, read `message`; `field` names the offending input."""

    code: str
    message: str
    field: str | None = None


class Submitted(View, frozen=True, kw_only=True):
    """Ids of the new tasks: `first` .. `first + count - 1`."""

    first: int
    count: int


class Result(View, frozen=True, kw_only=True):
    """How a task ended. `sequence` orders the endings of a session."""

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
    """Endings after a cursor. `next` is the cursor to go on from; `closed` says no more will come."""

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

    `warnings` are of the answer to its creation: what no node can do, and what to ask for instead.
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
    """Where in its machine something lies: its zones, and the CPUs that it has alone, such as `0-3,8`.

    `devices` has ids by resource, without cards; `memory_bytes` are by zone. `rank` says how well it is
    known: observed, bound or predicted. `rule` is the rule of the least width that its zones were chosen by.
    """

    zones: list[int]
    cpus: str
    devices: dict[str, list[str]]
    memory_bytes: dict[int, int]
    rank: str
    rule: str


class ExecutorBody(View, frozen=True, kw_only=True):
    """A worker process. `note` says what of its `placement` it has to do without."""

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
    """A part of a card; amounts are None where the card's capacity is not known."""

    fraction: float
    vram_bytes: int | None
    compute_gflops: int | None


class GpuHolderBody(View, frozen=True, kw_only=True):
    """An executor and the part of a card that it holds; session and owner are None while it works for nobody.

    `fraction` is the larger of those of compute and vram. `isolation` is `shared` where the card is its
    alone. A card that its node shows with owners who are not known here has one holder, `foreign:` and the node.
    """

    executor: str
    session: str | None
    owner: str | None
    fraction: float
    vram_bytes: int | None
    compute_gflops: int | None
    isolation: str


class GpuBody(View, frozen=True, kw_only=True):
    """A card, what is free of it (`fraction`: the largest that fits) and everybody who holds some of it.

    `isolations` are the ways in which its users can be kept apart, None if that is not known.
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
    """A machine: what it has, what work may hold of it, what is held.

    `observed_at` is when it last showed who holds what there, in seconds since the epoch, None if it never did;
    `strangers` are those of them that are not known here.
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
    """Why one node said no: `needed` and `had` in the unit of the code's dimension.

    `gpu` is the uuid of the card that comes closest, where a card decides. `resource` names what is used up on
    it, where the code does not.
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
    """Who holds what is missing."""

    session: str
    owner: str
    executors: int
    deserved: int
    amount: str


class Explanation(View, frozen=True, kw_only=True):
    """Why a session has what it has: one reason, its numbers, the nearest change that would help.

    `warnings` are of nodes whose zones refuse it by a prediction that is weaker than others. `evicted` is the last
    time that an executor of the session was ended for another session.
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
    """What happened."""

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
    """Thousandths of cards of one model: idle, and of these what no task of the learned workload can use, as expected.

    `model` is None where it is not known, `fragments_milli` while the workload is not.
    """

    model: str | None
    idle_milli: int
    fragments_milli: int | None


class RoomBody(View, frozen=True, kw_only=True):
    """What is idle. `fits` says, per number of whole cards, how many requests for so many (and no cpu) fit now.

    The workload is learned from the `tasks` that arrived; until there are `missing` more nothing is said of fragments.
    """

    idle_milli: int
    fragments_milli: int | None
    models: list[IdleBody]
    fits: dict[int, int]
    tasks: int
    missing: int


class Overview(View, frozen=True, kw_only=True):
    """One picture of everything, for live views."""

    at: float
    server: ServerBody
    nodes: list[NodeBody]
    gpus: list[GpuBody]
    room: RoomBody
    queues: list[QueueBody]
    sessions: list[SessionBody]
