"""Work in slices: a generator pauses after each of them, so that others may go on, and returns its result.

What it reads must not change meanwhile: it works on books of its own, or runs to its end at once.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

_Result = TypeVar("_Result")

Slices: TypeAlias = Generator[None, None, _Result]


def slice_begins(number: int, size: int) -> bool:
    """Return whether a slice of so many elements begins with the element of this number, counted from 0."""
    return number % size == 0


def at_once(slices: Slices[_Result]) -> _Result:
    """Run all slices and return the result."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            found: _Result = end.value
            return found
