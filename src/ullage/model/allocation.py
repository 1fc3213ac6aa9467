"""A decision in the ledger: who holds what, where."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from ullage.model.claim import Claim
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation, Part
from ullage.model.quantity import PPM
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
class Basis:
    """What a charge is made of, in units that never change: what was asked of the card, and what the card had then.

    `compute_gflops` and `vram_bytes` are the capacity by which the charge was granted; None is not known.
    """

    part: Part
    compute_gflops: int | None = None
    vram_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """What an allocation takes of one card that it shares.

    `compute` is in GFLOPS and `vram` in bytes of the card as it is now; on a card whose capacity is not known
    they are in millionths of it. `basis` says what they are derived from; a record without one goes by what was
    asked and by the card as its allocation remembers it. `mixed` says that it was found with users of another
    isolation on a card that keeps one at a time. Neither counts when two charges are compared.
    """

    compute: int
    vram: int
    isolation: Isolation = Isolation.SOFT
    slot: Slot | None = None
    basis: Basis | None = field(default=None, compare=False)
    mixed: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, part: Part, gpu: Gpu, isolation: Isolation = Isolation.SOFT, slot: Slot | None = None) -> Charge:
        """Return what a part takes of a card as it is now."""
        basis = Basis(part, gpu.compute_gflops, gpu.vram_bytes)
        return cls(*part.on(gpu.compute, gpu.vram), isolation, slot, basis)

    def on(self, gpu: Gpu) -> Charge:
        """Return the same hold on a card as it is now; a charge without a basis stays as it is.

        A share is the larger of what it is of the card now and what was granted: its holder may use that much. An
        amount stays what it is. On a card whose capacity is not known any more an amount is its share of what the card
        had when it was granted, rounded up, or all of the card where nobody knew.
        """
        basis = self.basis
        if basis is None:
            return self
        part = basis.part
        compute = _now(part.compute_gflops, part.compute_ppm, basis.compute_gflops, gpu.compute_gflops)
        vram = _now(part.vram_bytes, part.vram_ppm, basis.vram_bytes, gpu.vram_bytes)
        return self if (compute, vram) == (self.compute, self.vram) else replace(self, compute=compute, vram=vram)

    def with_vram(self, vram_bytes: int, gpu: Gpu) -> Charge:
        """Return the charge with these bytes of a card that says how much vram it has."""
        basis = self.basis or self.known_from(gpu, None).basis or Basis(Part())
        part = replace(basis.part, vram_bytes=vram_bytes, vram_ppm=0)
        return replace(self, vram=vram_bytes, basis=replace(basis, part=part, vram_bytes=gpu.vram_bytes))

    def with_compute(self, compute_ppm: int, gpu: Gpu) -> Charge:
        """Return the charge with these millionths of what a card computes."""
        basis = self.basis or self.known_from(gpu, None).basis or Basis(Part())
        part = replace(basis.part, compute_gflops=0, compute_ppm=compute_ppm)
        basis = replace(basis, part=part, compute_gflops=gpu.compute_gflops)
        return replace(self, compute=part.on(gpu.compute, 0)[0], basis=basis)

    def known_from(self, gpu: Gpu | None, asked: Part | None) -> Charge:
        """Return the charge with a basis: its own, or what it can only mean on the card it was granted on.

        `gpu` is that card, None if nobody remembers it. `asked` is what was asked of each card.
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
    """Return an amount, or a share of a card that had so much, in the unit of a card that has so much now."""
    if has is None:
        if share_ppm or not amount:
            return share_ppm
        return min(PPM, -(-amount * PPM // had)) if had else PPM
    if not share_ppm:
        return amount
    return max(share_ppm * has // PPM, share_ppm * (had or 0) // PPM)


def _share(charged: int, asked_ppm: int, had: int | None, *, known: bool) -> int:
    """Return the share that a charge is, in millionths; 0 if it is an amount."""
    if not known:
        return asked_ppm if charged == asked_ppm else 0
    if had is None:
        return min(PPM, charged)
    return asked_ppm if charged == asked_ppm * had // PPM else 0


@dataclass(frozen=True, slots=True)
class Allocation:
    """One unit's hold on one node: `gpus` are the uuids of its cards, `charges` what it takes of each.

    Without `charges` the cards are held whole, whatever their capacity is or becomes. `claim` says
    whose it is if it came as a request of its own; executors have none, nor has what is foreign.
    `assumed_at`, `bound_at`, `release_by` and `released_at` are in seconds since the epoch; at `release_by` the owner
    of a releasing one is gone by the word of whoever released it, which came at `released_at`. `cards` are the cards as
    they were last known, for when they are missing: they say nothing of who holds what, and do not count when two
    allocations are compared. `placement` says in which zones it lies and what it has there; None where they are not
    told apart.
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
        """Return it with no past time after `now`, where a clock was ahead when it was stored.

        Waits that began at such a time begin at `now`: none lasts for the jump of the clock.
        """
        ahead = [at for at in (self.assumed_at, self.bound_at, self.released_at) if at is not None and at > now]
        claim = self.claim
        if claim is not None and claim.created_at > now:
            claim = replace(claim, created_at=now)
        if not ahead:
            return self if claim is self.claim else replace(self, claim=claim)
        release_by = self.release_by
        if release_by is not None and self.released_at is not None:
            release_by -= max(0.0, self.released_at - now)
        return replace(
            self,
            claim=claim,
            assumed_at=_earlier(self.assumed_at, now),
            bound_at=_earlier(self.bound_at, now),
            released_at=_earlier(self.released_at, now),
            release_by=release_by,
        )

    @property
    def of_session(self) -> bool:
        """Whether it is that of an executor: of no request, and not foreign."""
        return self.claim is None and self.state is not AllocationState.FOREIGN

    @property
    def observed(self) -> bool:
        """Whether its node has shown it."""
        return self.placement is not None and self.placement.rank is Rank.OBSERVED


def _earlier(at: float | None, now: float) -> float | None:
    return None if at is None else min(at, now)
