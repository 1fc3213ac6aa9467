"""A decision in the ledger: who holds what, where."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ullage.model.claim import Claim
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation
from ullage.model.request import ResourceRequirement
from ullage.model.zone_placement import Rank, ZonePlacement


class AllocationState(StrEnum):
    """Assumed when decided, bound when its process lives, releasing until that process is known gone.

    Foreign is what a node shows of owners that are not known here.
    """

    ASSUMED = "assumed"
    BOUND = "bound"
    RELEASING = "releasing"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a partition on its card: slots from `start` to before `end`, or an isolation group."""

    template: str
    start: int | None = None
    end: int | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """What an allocation takes of one card that it shares.

    `compute` is in GFLOPS and `vram` in bytes; on a card whose capacity is not known they are in
    millionths of it.
    """

    compute: int
    vram: int
    isolation: Isolation = Isolation.SOFT
    slot: Slot | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """One unit's hold on one node: `gpus` are the uuids of its cards, `charges` what it takes of each.

    Without `charges` the cards are held whole, whatever their capacity is or becomes. `claim` says
    whose it is if it came as a request of its own; executors have none, nor has what is foreign.
    `assumed_at`, `bound_at` and `release_by` are in seconds since the epoch; at `release_by` the owner of a
    releasing one is gone by the word of whoever released it. `cards` are the cards as they were last known, for
    when they are missing: they say nothing of who holds what, and do not count when two allocations are compared.
    `placement` says in which zones it lies and what it has there; None where they are not told apart.
    """

    id: str
    node: str
    requirement: ResourceRequirement
    gpus: tuple[str, ...] = ()
    state: AllocationState = AllocationState.ASSUMED
    charges: tuple[Charge, ...] = ()
    claim: Claim | None = None
    assumed_at: float | None = None
    bound_at: float | None = None
    release_by: float | None = None
    cards: tuple[Gpu, ...] = field(default=(), compare=False)
    placement: ZonePlacement | None = None

    @property
    def of_session(self) -> bool:
        """Whether it is that of an executor: of no request, and not foreign."""
        return self.claim is None and self.state is not AllocationState.FOREIGN

    @property
    def observed(self) -> bool:
        """Whether its node has shown it."""
        return self.placement is not None and self.placement.rank is Rank.OBSERVED
