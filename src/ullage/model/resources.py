"""Exact amounts of the three resources that are shared: cpu, memory, gpu.

Amounts are integers with the unit in the name, so that books balance to the last byte. A GPU
amount is counted in thousandths of a card (`gpu_milli`): whole cards are multiples of 1000, and
parts of cards need no other type.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ullage.model.error import Conflict
from ullage.model.quantity import format_bytes

MILLI = 1000
"""Thousandths in one core and in one card."""

DIMENSIONS = ("cpu", "memory", "gpu")
"""Names of the dimensions, in the order in which `Resources` iterates."""


@dataclass(frozen=True, slots=True)
class Resources:
    """A vector of amounts; a comparison holds only if it holds in every field."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpu_milli: int = 0

    def __iter__(self) -> Iterator[int]:
        yield self.cpu_milli
        yield self.memory_bytes
        yield self.gpu_milli

    def __add__(self, other: Resources) -> Resources:
        return Resources(*(a + b for a, b in zip(self, other, strict=True)))

    def __sub__(self, other: Resources) -> Resources:
        """Return the difference.

        Raises:
            Conflict: a field would fall below zero; both operands are in the message.

        """
        if not other <= self:
            raise Conflict(f"cannot take ({other}) from ({self})", code="below-zero")
        return Resources(*(a - b for a, b in zip(self, other, strict=True)))

    def __mul__(self, times: int) -> Resources:
        return Resources(*(a * times for a in self))

    def __le__(self, other: Resources) -> bool:
        return all(a <= b for a, b in zip(self, other, strict=True))

    def __lt__(self, other: Resources) -> bool:
        return all(a < b for a, b in zip(self, other, strict=True))

    def __ge__(self, other: Resources) -> bool:
        return other <= self

    def __gt__(self, other: Resources) -> bool:
        return other < self

    def __bool__(self) -> bool:
        return any(self)

    def min(self, other: Resources) -> Resources:
        """Return the smaller amount in each field."""
        return Resources(*map(min, self, other))

    def max(self, other: Resources) -> Resources:
        """Return the larger amount in each field."""
        return Resources(*map(max, self, other))

    def __str__(self) -> str:
        return (
            f"cpu={show_milli(self.cpu_milli)},mem={format_bytes(self.memory_bytes)},gpu={show_milli(self.gpu_milli)}"
        )


def show_milli(amount: int) -> str:
    """Return thousandths as a plain decimal: 2000 is `2`, 1500 is `1.5`."""
    whole, part = divmod(amount, MILLI)
    return f"{whole}.{part:03d}".rstrip("0") if part else str(whole)
