"""Arrays: one session with a task for each index of a list."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

from ullage.model.error import InvalidRequest, invalid

MAX_ELEMENTS = 100_000
"""The most tasks of one array; the server takes as many in one submission."""

MAX_INDEX = 2**31 - 1

_FORM = "write indices such as 0-99, 1,3,7-9 or 0-90:10 (a step), and %10 at the end for at most 10 at once"
_PIECE = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)


class Array(NamedTuple):
    """The indices of an array in ascending order. Task n has the n-th of them; tasks are counted from 1."""

    indices: tuple[int, ...]

    def task_of(self, index: int) -> int:
        """Return the number of the task with this index.

        Raises:
            InvalidRequest: the array has no such index.

        """
        at = bisect_left(self.indices, index)
        if at == len(self.indices) or self.indices[at] != index:
            raise invalid("index", index, f"the array has the indices {self}")
        return at + 1

    def index_of(self, task: int) -> int | None:
        """Return the index of a task; None for a task that is not of the array."""
        return self.indices[task - 1] if 1 <= task <= len(self.indices) else None

    def variables(self, index: int) -> dict[str, str]:
        """Return the variables of the environment of the task with this index."""
        return {
            "ULLAGE_ARRAY_INDEX": str(index),
            "ULLAGE_ARRAY_COUNT": str(len(self.indices)),
            "ULLAGE_ARRAY_MIN": str(self.indices[0]),
            "ULLAGE_ARRAY_MAX": str(self.indices[-1]),
        }

    def __str__(self) -> str:
        pieces: list[str] = []
        first = last = self.indices[0]
        for index in (*self.indices[1:], None):
            if index == last + 1:
                last = index
                continue
            pieces.append(f"{first}" if first == last else f"{first}-{last}")
            first = last = index if index is not None else last
        return ",".join(pieces)


class ArrayRequest(NamedTuple):
    """An array as requested, and how many of its tasks may run at once; None is no limit."""

    array: Array
    at_once: int | None


def parse_request(text: str) -> ArrayRequest:
    """Return the array of `0-99%10`.

    Raises:
        InvalidRequest: the text has another form, an index occurs twice, or there are too many.

    """
    indices, percent, most = text.partition("%")
    if percent and not (most.isascii() and most.isdecimal() and int(most)):
        raise invalid("array", text, "write how many run at once after the %, from 1, such as 0-99%10")
    return ArrayRequest(parse_array(indices), int(most) if percent else None)


@lru_cache(maxsize=256)
def parse_array(text: str) -> Array:
    """Return the array of `0-99`, `1,3,7-9` or `0-90:10`.

    Raises:
        InvalidRequest: the text has another form, an index occurs twice, or there are too many.

    """
    indices = tuple(sorted(parse_indices(text, partial(invalid, "array", text), _FORM)))
    twice = next((low for low, high in pairwise(indices) if low == high), None)
    if twice is not None:
        raise invalid("array", text, f"index {twice} occurs twice; keep one")
    return Array(indices)


def parse_indices(text: str, refused: Callable[[str], InvalidRequest], form: str) -> list[int]:
    """Return the numbers of `0-99`, `1,3,7-9` or `0-90:10` in their order. `refused` makes an error of a fix.

    Raises:
        InvalidRequest: the text has another form, for which `form` is the fix, or there are too many.

    """
    found: list[int] = []
    for piece in text.split(","):
        indices = _indices(piece.strip(), refused, form)
        if len(indices) > MAX_ELEMENTS - len(found):
            raise refused(f"it has more than {MAX_ELEMENTS} indices; make several of it")
        found.extend(indices)
    return found


def _indices(piece: str, refused: Callable[[str], InvalidRequest], form: str) -> range:
    match = _PIECE.fullmatch(piece)
    if match is None:
        raise refused(form)
    low, high, step = (None if group is None else int(group) for group in match.groups())
    assert low is not None
    high, step = low if high is None else high, 1 if step is None else step
    if high > MAX_INDEX:
        raise refused(f"an index is at most {MAX_INDEX}")
    if high < low or not step:
        raise refused(f"{piece} is empty: write the smaller index first, and a step from 1")
    return range(low, high + 1, step)
