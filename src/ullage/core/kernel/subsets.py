"""Small sets as numbers with one bit per member, and their order."""

from __future__ import annotations

from ullage.core.kernel.compiled import compiled


@compiled
def next_of_size(bits: int) -> int:
    """Return the next larger number with as many bits (Gosper's hack); `bits` is above 0."""
    lowest = bits & -bits
    carried = bits + lowest
    return ((bits ^ carried) >> 2) // lowest | carried


@compiled
def is_before(bits: int, other: int) -> bool:
    """Return whether a set comes before another in lexicographic order of its ascending members.

    A set that runs out of members comes later: a missing member counts as more than any member.
    """
    differ = bits ^ other
    return bits & differ & -differ != 0
