"""Durations in Go's form, such as `1h30m` or `1.5s`, as Kubernetes writes them."""

from __future__ import annotations

import re
from fractions import Fraction

from ullage.model.quantity import MAX_INT64

_PIECE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_SECOND = 10**9
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_MAX_LENGTH = 128
"""Characters of the longest duration that is read."""


def parse_duration(text: str) -> float | None:
    """Return a duration in seconds; None if it is malformed, below 0, or above 2^63 ns."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    if len(rest) > _MAX_LENGTH:
        return None
    pieces = list(_PIECE.finditer(rest))
    if not pieces or "".join(piece[0] for piece in pieces) != rest:
        return None
    total = sign * sum(Fraction(piece[1]) * _NANOSECONDS[piece[2]] for piece in pieces)
    return float(total / _SECOND) if 0 <= total <= MAX_INT64 else None
