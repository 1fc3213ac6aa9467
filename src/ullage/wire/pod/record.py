"""What of an allocation does not follow from its pod: the annotation `allocation`, written at bind."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ullage.model.allocation import Allocation, Charge, Slot
from ullage.model.part import Isolation
from ullage.wire.pod.keys import Keys

_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**50)]
"""More than any card has, and so little that sums over the pods of a machine stay in 64 bits."""


class CardRecord(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One charge: GFLOPS and bytes, as the books had them, and the place of its partition."""

    compute: _Amount
    vram: _Amount
    isolation: Isolation
    template: str | None = None
    start: _Amount | None = None
    end: _Amount | None = None
    group: _Amount | None = None

    @classmethod
    def of(cls, charge: Charge) -> CardRecord:
        """The record of a charge."""
        slot = charge.slot
        place = (slot.template, slot.start, slot.end, slot.group) if slot else ()
        return cls(charge.compute, charge.vram, charge.isolation, *place)

    @property
    def charge(self) -> Charge:
        """The charge again."""
        slot = None if self.template is None else Slot(self.template, self.start, self.end, self.group)
        return Charge(self.compute, self.vram, self.isolation, slot)


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Charges in the order of `gpu-ids`; `pinned` is whether `partition-id` was asked for, and not chosen here."""

    cards: tuple[CardRecord, ...] = ()
    pinned: bool = False
    assumed_at: float | None = None
    bound_at: float | None = None

    @classmethod
    def of(cls, allocation: Allocation) -> Record:
        """The record of an allocation."""
        return cls(
            tuple(CardRecord.of(charge) for charge in allocation.charges),
            pinned=allocation.requirement.cards.template is not None,
            assumed_at=allocation.assumed_at,
            bound_at=allocation.bound_at,
        )


def record_of(keys: Keys) -> Record | None:
    """The record of a pod that was bound here; None for any other."""
    return keys.json("allocation", Record, "it is written at bind, leave it")
