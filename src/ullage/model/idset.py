"""Sets of ids as the kernel and Kubernetes write them: `0-3,8`.

The form is that of the Linux cpulist and of a kubelet's CPU set. Ids are bounded, and ranges are expanded only once
they are known to be short, so that no text can fill the memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, count, groupby

from ullage.model.error import invalid

MAX_ID = 2**16 - 1
"""The largest id of a CPU, or index of a device, that is read."""

_RANGE = re.compile(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", re.ASCII)
_FIX = "write ids and ranges such as 0-3,8"


def parse_ids(text: object, field: str, *, most: int = MAX_ID, count: int = MAX_ID + 1) -> tuple[int, ...]:
    """Return the ids of a set, ascending, each once; an empty text is the empty set. Ranges may overlap.

    Raises:
        InvalidRequest: it is not a set, a range runs backwards, an id is above `most`, or there are more
            than `count` ids.

    """
    if not isinstance(text, str):
        raise invalid(field, text, _FIX)
    if not text.strip():
        return ()
    ranges: list[range] = []
    after = 0
    for first, last in sorted(_range(part, text, field, most) for part in text.split(",")):
        ranges.append(range(max(first, after), last + 1))
        after = max(after, last + 1)
    if sum(map(len, ranges)) > count:
        raise invalid(field, text, f"at most {count} ids can be named here")
    return tuple(chain.from_iterable(ranges))


def format_ids(ids: Iterable[int]) -> str:
    """Return the set as text, ranges joined: 0, 1, 2, 3 and 8 are `0-3,8`; "" is the empty set."""
    places, ranges = count(), []
    for _, run in groupby(sorted(set(ids)), key=lambda id_: id_ - next(places)):
        first, *rest = run
        ranges.append(f"{first}-{rest[-1]}" if rest else str(first))
    return ",".join(ranges)


def _range(part: str, text: str, field: str, most: int) -> tuple[int, int]:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise invalid(field, text, _FIX)
    lowest, highest = match.groups()
    first, last = int(lowest), int(highest or lowest)
    if first > last:
        raise invalid(field, text, f"a range runs from its lower to its higher id; {part.strip()} does not")
    if last > most:
        raise invalid(field, text, f"ids are at most {most}")
    return first, last
