"""A zone as a kubelet writes it: a number, or in JSON a string of its digits."""

from __future__ import annotations

from ullage.model.topology import zones_of

_DIGITS = 2
"""Digits of the largest id of a zone."""


def read_zones(ids: list[object]) -> tuple[int, ...]:
    """Return the zones, ascending; negative, too large and non-numeric ids are unknown, and left out."""
    return zones_of([_number(id_) for id_ in ids])


def _number(value: object) -> object:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        return int(value)
    return value
