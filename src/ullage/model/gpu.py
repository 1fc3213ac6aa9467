"""One physical card, as an engine reports it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ullage.model.part import Isolation, IsolationPolicy
from ullage.model.quantity import PPM
from ullage.model.template import Template


class GpuPhase(StrEnum):
    """The phase of a card; only a running one takes work."""

    PENDING = "pending"
    UPDATING = "updating"
    RUNNING = "running"
    UNKNOWN = "unknown"
    DESTROYING = "destroying"
    MIGRATING = "migrating"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card's identity and facts. Unknown facts stay None and are never guessed.

    `uuid` identifies the card permanently; `index` is its present position on the node. A card that is not `healthy`,
    not running, `cordoned`, or `used_by` another device plugin keeps what runs on it and receives nothing new.
    `isolations` are the modes it supports (None: unknown), `isolation` the one its node's runtime is set to.
    `partitions` are the hardware partitions that its agent makes (None: not known, those of its model count).
    `slice_uuids` are the uuids of those that exist already, by their starts.
    `max_users` is how many may have parts of it at a time (None: any number); requests for hardware slices are not
    limited by it. `devices` are the paths of its device nodes, where the operator names them. `zones` are the NUMA
    nodes it is near to, ascending; none: not known.
    """

    uuid: str
    index: int
    model: str | None = None
    vendor: str | None = None
    vram_bytes: int | None = None
    compute_gflops: int | None = None
    zones: tuple[int, ...] = ()
    bus_id: str | None = None
    healthy: bool = True
    pool: str | None = None
    phase: GpuPhase = GpuPhase.RUNNING
    used_by: str = ""
    isolation: Isolation | None = None
    isolation_policy: IsolationPolicy = IsolationPolicy.STATIC
    isolations: frozenset[Isolation] | None = None
    cordoned: bool = False
    max_users: int | None = None
    partitions: tuple[Template, ...] | None = None
    slice_uuids: tuple[tuple[int, str], ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def compute(self) -> int:
        """GFLOPS of the card; millionths of it where that is not known."""
        return PPM if self.compute_gflops is None else self.compute_gflops

    @property
    def vram(self) -> int:
        """Bytes of the card; millionths of it where that is not known."""
        return PPM if self.vram_bytes is None else self.vram_bytes

    @property
    def empty(self) -> bool:
        """Whether it reports that it has nothing to allocate: no compute, no vram, or no users."""
        return 0 in (self.compute_gflops, self.vram_bytes, self.max_users)

    @property
    def usable(self) -> bool:
        """Whether it takes new work."""
        ready = self.healthy and self.phase is GpuPhase.RUNNING and not self.used_by and not self.cordoned
        return ready and not self.empty
