"""Sets of a few things as numbers with a bit for each, and the order among them."""

from __future__ import annotations

from ullage.core.kernel.compiled import compiled


@compiled
def next_alike(bits: int) -> int:
    """The next larger number with as many bits (Gosper's hack); `bits` is above 0."""
    lowest = bits & -bits
    carried = bits + lowest
    return ((bits ^ carried) >> 2) // lowest | carried


@compiled
def is_before(bits: int, other: int) -> bool:
    """Whether a set is before another one in lexicographic order of its ascending members; equal ones are not.

    A set that runs out of members is behind: what it lacks counts as more than any member.
    """
    differ = bits ^ other
    return bits & differ & -differ != 0
