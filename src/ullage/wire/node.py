"""Bodies of nodes, cards and executors."""

from __future__ import annotations

from ullage.wire.amount import AmountBody
from ullage.wire.schema import View


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
