"""Allocations: a decision in the ledger with its holder, node and cards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ullage.model.claim import Claim
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import ResourceRequirement
from ullage.model.zone_placement import Rank, ZonePlacement


class AllocationState(StrEnum):
    """Assumed when decided, bound when its process runs, releasing until that process has ended.

    Foreign allocations are reported by a node for owners that are not known here.
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
class Basis:
    """The basis of a charge, in units that never change: the requested part, and the capacity of the card then.

    `compute_gflops` and `vram_bytes` are the capacity by which the charge was granted; None is not known.
    """

    part: Part
    compute_gflops: int | None = None
    vram_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """The amount that an allocation takes of one card that it shares.

    `compute` is in GFLOPS and `vram` in bytes of the card as it is now; on a card of unknown capacity they are in
    millionths of it. `slot` is the place of its partition, `further` those of more partitions on the card. `basis`
    says what the amounts are derived from; a charge without one is derived from the request and from the card as its
    allocation remembers it. `mixed` says that users of another isolation were found on a card that allows one at a
    time. Neither counts when two charges are compared.
    """

    compute: int
    vram: int
    isolation: Isolation = Isolation.SOFT
    slot: Slot | None = None
    basis: Basis | None = field(default=None, compare=False)
    mixed: bool = field(default=False, compare=False)
    further: tuple[Slot, ...] = ()

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The places of all its partitions."""
        return () if self.slot is None else (self.slot, *self.further)

    @classmethod
    def of(cls, part: Part, gpu: Gpu, isolation: Isolation = Isolation.SOFT, slot: Slot | None = None) -> Charge:
        """Return what a part takes of a card as it is now."""
        basis = Basis(part, gpu.compute_gflops, gpu.vram_bytes)
        return cls(*part.on(gpu.compute, gpu.vram), isolation, slot, basis)

    def on(self, gpu: Gpu) -> Charge:
        """Return the same charge on a card as it is now; a charge without a basis stays as it is.

        A share is the larger of the share of the card now and what was granted: its holder may use that much. An
        amount stays as it is. On a card whose capacity is no longer known an amount becomes its share of the capacity
        when it was granted, rounded up, or all of the card where that is unknown.
        """
        basis = self.basis
        if basis is None:
            return self
        part = basis.part
        compute = _now(part.compute_gflops, part.compute_ppm, basis.compute_gflops, gpu.compute_gflops)
        vram = _now(part.vram_bytes, part.vram_ppm, basis.vram_bytes, gpu.vram_bytes)
        return self if (compute, vram) == (self.compute, self.vram) else replace(self, compute=compute, vram=vram)

    def with_vram(self, vram_bytes: int, gpu: Gpu) -> Charge:
        """Return the charge with another amount of a card of known vram."""
        basis = self.basis or self.with_basis(gpu, None).basis or Basis(Part())
        part = replace(basis.part, vram_bytes=vram_bytes, vram_ppm=0)
        return replace(self, vram=vram_bytes, basis=replace(basis, part=part, vram_bytes=gpu.vram_bytes))

    def with_compute(self, compute_ppm: int, gpu: Gpu) -> Charge:
        """Return the charge with another share of the compute of a card."""
        basis = self.basis or self.with_basis(gpu, None).basis or Basis(Part())
        part = replace(basis.part, compute_gflops=0, compute_ppm=compute_ppm)
        basis = replace(basis, part=part, compute_gflops=gpu.compute_gflops)
        return replace(self, compute=part.on(gpu.compute, 0)[0], basis=basis)

    def with_basis(self, gpu: Gpu | None, asked: Part | None) -> Charge:
        """Return the charge with a basis: its own, or the one that follows from the card it was granted on.

        `gpu` is that card, None if it is not known. `asked` is the requested part of each card.
        """
        if self.basis is not None:
            return self
        compute_had, vram_had = (None, None) if gpu is None else (gpu.compute_gflops, gpu.vram_bytes)
        part = asked or Part()
        compute_ppm = _share(self.compute, part.compute_ppm, compute_had, known=gpu is not None)
        vram_ppm = _share(self.vram, part.vram_ppm, vram_had, known=gpu is not None)
        granted = Part(
            0 if compute_ppm else self.compute, 0 if vram_ppm else self.vram, compute_ppm=compute_ppm, vram_ppm=vram_ppm
        )
        return replace(self, basis=Basis(granted, compute_had, vram_had))


def _now(amount: int, share_ppm: int, had: int | None, has: int | None) -> int:
    """Return an amount, or a share of a card with capacity `had`, in the unit of a card with capacity `has`."""
    if has is None:
        if share_ppm or not amount:
            return share_ppm
        return min(PPM, -(-amount * PPM // had)) if had else PPM
    if not share_ppm:
        return amount
    return max(share_ppm * has // PPM, share_ppm * (had or 0) // PPM)


def _share(charged: int, asked_ppm: int, had: int | None, *, known: bool) -> int:
    """Return the share of a charge in millionths; 0 if it is an amount."""
    if not known:
        return asked_ppm if charged == asked_ppm else 0
    if had is None:
        return min(PPM, charged)
    return asked_ppm if charged == asked_ppm * had // PPM else 0


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of one unit on one node: `gpus` are the uuids of its cards, `charges` the amounts of each.

    Without `charges` the cards are held whole, whatever their capacity is or becomes. `claim` is the owner of a
    request; executors and foreign allocations have none. `assumed_at`, `bound_at`, `release_by` and `released_at` are
    in seconds since the epoch. A releasing allocation was released at `released_at`, with the guarantee that its owner
    is gone at `release_by`. `cards` are the cards as they were last known, for when they are missing: they do not
    affect who holds what, and do not count when two allocations are compared. `placement` has its zones and what it
    has in them; None where zones are not distinguished.
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
    released_at: float | None = None

    def not_after(self, now: float) -> Allocation:
        """Return the allocation with no past time after `now`, for a clock that was ahead when it was stored.

        Waits that began at such a time begin at `now`, so that no wait is extended by the jump of the clock.
        """
        times = {"assumed_at": self.assumed_at, "bound_at": self.bound_at, "released_at": self.released_at}
        changed: dict[str, Any] = {name: now for name, at in times.items() if at is not None and at > now}
        if self.release_by is not None and self.released_at is not None and "released_at" in changed:
            changed["release_by"] = self.release_by - (self.released_at - now)
        if self.claim is not None and self.claim.created_at > now:
            changed["claim"] = replace(self.claim, created_at=now)
        return replace(self, **changed) if changed else self

    @property
    def of_session(self) -> bool:
        """Whether it belongs to an executor: not to a request, and not foreign."""
        return self.claim is None and self.state is not AllocationState.FOREIGN

    @property
    def shown_state(self) -> AllocationState:
        """Its state for readers: an executor holds what it has from its start, so nothing of it is only reserved."""
        assumed = self.state is AllocationState.ASSUMED
        return AllocationState.BOUND if assumed and self.of_session else self.state

    @property
    def observed(self) -> bool:
        """Whether its node has reported it."""
        return self.placement is not None and self.placement.rank is Rank.OBSERVED
