"""A zone as a kubelet writes it: a number, or in JSON a string of its digits."""

from __future__ import annotations

from ullage.model.topology import zones_of

_DIGITS = 2
"""Of the largest id of a zone."""


def read_zones(ids: list[object]) -> tuple[int, ...]:
    """The zones, ascending; what is negative, too large or not a number is unknown, and left out."""
    return zones_of([_number(id_) for id_ in ids])


def _number(told: object) -> object:
    return int(told) if isinstance(told, str) and told.isascii() and told.isdigit() and len(told) <= _DIGITS else told
