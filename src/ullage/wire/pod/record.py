"""The parts of an allocation that do not follow from its pod: the annotation `allocation`, written at bind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import structs

from ullage.model.allocation import Allocation, Basis, Charge, Slot
from ullage.model.part import Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import MAX_CARDS
from ullage.wire.pod.keys import Keys
from ullage.wire.pod.placement import PlacementRecord

_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**50)]
"""More than any card has, and small enough that sums over the pods of a machine fit into 64 bits."""


_Share = Annotated[int, msgspec.Meta(ge=0, le=PPM)]
"""Millionths of a card."""

_Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_CARDS)]


class BasisRecord(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The basis of a charge: amounts or millionths of the card, and what the card had when it was granted."""

    gflops: _Amount = 0
    bytes: _Amount = 0
    compute_ppm: _Share = 0
    vram_ppm: _Share = 0
    had_gflops: _Amount | None = None
    had_bytes: _Amount | None = None

    @classmethod
    def of(cls, basis: Basis) -> BasisRecord:
        part = basis.part
        asked = part.compute_gflops, part.vram_bytes, part.compute_ppm, part.vram_ppm
        return cls(*asked, basis.compute_gflops, basis.vram_bytes)

    @property
    def basis(self) -> Basis:
        part = Part(self.gflops, self.bytes, self.compute_ppm, self.vram_ppm)
        return Basis(part, self.had_gflops, self.had_bytes)


class SlotRecord(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The place of a further partition on a card."""

    template: str
    start: _Amount | None = None
    end: _Amount | None = None
    group: _Amount | None = None


class CardRecord(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One charge: its amounts when the pod was bound, the place of its partition, and its basis."""

    compute: _Amount
    vram: _Amount
    isolation: Isolation
    template: str | None = None
    start: _Amount | None = None
    end: _Amount | None = None
    group: _Amount | None = None
    basis: BasisRecord | None = None
    further: tuple[SlotRecord, ...] = ()

    @classmethod
    def of(cls, charge: Charge) -> CardRecord:
        basis = None if charge.basis is None else BasisRecord.of(charge.basis)
        record = cls(charge.compute, charge.vram, charge.isolation, basis=basis)
        slot = charge.slot
        if slot is None:
            return record
        further = tuple(SlotRecord(each.template, each.start, each.end, each.group) for each in charge.further)
        own = structs.replace(record, template=slot.template, start=slot.start, end=slot.end, group=slot.group)
        return structs.replace(own, further=further)

    @property
    def charge(self) -> Charge:
        slot = None if self.template is None else Slot(self.template, self.start, self.end, self.group)
        basis = None if self.basis is None else self.basis.basis
        further = tuple(Slot(each.template, each.start, each.end, each.group) for each in self.further)
        return Charge(self.compute, self.vram, self.isolation, slot, basis=basis, further=further if slot else ())


class FurtherRecord(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The last cards of `gpu-ids`, `count` of a further family, with their charges (none: they are held whole)."""

    family: str
    count: _Count
    cards: tuple[CardRecord, ...] = ()
    assumed_at: float | None = None
    bound_at: float | None = None
    placed: PlacementRecord | None = None

    @classmethod
    def of(cls, allocation: Allocation) -> FurtherRecord:
        return cls(
            ", ".join(allocation.requirement.cards.vendors),
            len(allocation.gpus),
            tuple(CardRecord.of(charge) for charge in allocation.charges),
            assumed_at=allocation.assumed_at,
            bound_at=allocation.bound_at,
            placed=None if allocation.placement is None else PlacementRecord.of(allocation.placement),
        )


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Charges in the order of `gpu-ids`; `pinned` is whether `partition-id` was requested, and not chosen here.

    They are those of the first cards where the pod has cards of `further` families.
    """

    cards: tuple[CardRecord, ...] = ()
    pinned: bool = False
    assumed_at: float | None = None
    bound_at: float | None = None
    further: tuple[FurtherRecord, ...] = ()

    @classmethod
    def of(cls, allocation: Allocation, further: Sequence[Allocation] = ()) -> Record:
        return cls(
            tuple(CardRecord.of(charge) for charge in allocation.charges),
            pinned=allocation.requirement.cards.template is not None,
            assumed_at=allocation.assumed_at,
            bound_at=allocation.bound_at,
            further=tuple(map(FurtherRecord.of, further)),
        )


def record_of(keys: Keys) -> Record | None:
    """Return the record of a pod that was bound here; None for any other."""
    return keys.json("allocation", Record, "it is written at bind, leave it")
