"""Compute and vram of a card, or of several together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Amounts(NamedTuple):
    """GFLOPS and bytes, or, where stated, both in millionths of a card."""

    compute: int = 0
    vram: int = 0

    def minus(self, other: Amounts) -> Amounts:
        """Return the difference, which may be below zero."""
        return Amounts(self.compute - other.compute, self.vram - other.vram)

    def above(self, other: Amounts) -> Amounts:
        """Return by how much they are above others, each by itself."""
        return Amounts(max(0, self.compute - other.compute), max(0, self.vram - other.vram))

    def most(self, other: Amounts) -> Amounts:
        """Return the larger of both, each by itself."""
        return Amounts(max(self.compute, other.compute), max(self.vram, other.vram))

    @classmethod
    def least_of(cls, found: Iterable[Amounts]) -> Amounts:
        """Return the least of all, each by itself; there is one at least."""
        compute, vram = zip(*found, strict=True)
        return cls(min(compute), min(vram))

    @classmethod
    def sum_of(cls, found: Iterable[Amounts]) -> Amounts:
        compute = vram = 0
        for each in found:
            compute += each.compute
            vram += each.vram
        return cls(compute, vram)


class KnownAmounts(NamedTuple):
    """Whether cards report how much compute and how much vram they have."""

    compute: bool = True
    vram: bool = True


NOTHING = Amounts()
ALL_KNOWN = KnownAmounts()
