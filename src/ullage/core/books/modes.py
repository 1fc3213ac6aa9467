"""How the users of one card hold it, as bits of one column, and who may be on it together."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.model.allocation import Charge
from ullage.model.part import Isolation
from ullage.model.request import ResourceRequirement

WHOLE = 1
"""Held without charges; every other bit is the isolation of a charge."""

MODES = {Isolation.SHARED: 2, Isolation.SOFT: 4, Isolation.HARD: 8, Isolation.PARTITIONED: 16}
CUT = MODES[Isolation.PARTITIONED]
MIXED = 32
"""Some user was found on the card with users of another isolation: a dynamic card takes nobody until they are gone."""
ANY = WHOLE | sum(MODES.values())


def mode_of(charge: Charge | None) -> int:
    """Return the bit of one user, and that of a mixture if it was found in one."""
    if charge is None:
        return WHOLE
    return MODES[charge.isolation] | MIXED if charge.mixed else MODES[charge.isolation]


def modes_of(users: Iterable[Charge | None]) -> int:
    """Return the bits of all users of a card."""
    modes = 0
    for charge in users:
        modes |= mode_of(charge)
    return modes


def mode_asked(asked: ResourceRequirement) -> int:
    """Return the bit that a unit of this request sets on each of its cards."""
    return WHOLE if asked.whole else MODES[asked.cards.isolation]


def mixed(asked: ResourceRequirement, *, dynamic: bool) -> int:
    """Return the modes of users that the request must not share a card with.

    A dynamic card takes the mode of its first user and keeps it until the last one is gone; it has no
    partitions. A static one takes any, but hardware that is cut into partitions runs nothing else
    and can be cut only while nothing runs. A card that is held whole, or asked for whole, is
    refused for that reason, not this one.
    """
    mode = asked.cards.isolation
    if dynamic:
        same = WHOLE | MODES[mode] if mode is Isolation.SHARED else MODES[mode]
        return ANY & ~same | CUT | MIXED
    if asked.whole:
        return 0
    return ANY & ~(WHOLE | CUT) if mode is Isolation.PARTITIONED else CUT


def conflicts(held: int) -> bool:
    """Return whether a dynamic card has users that could not have come one after the other."""
    shared = MODES[Isolation.SHARED]
    kinds = held & ~(WHOLE | MIXED) | (shared if held & WHOLE else 0)
    return bool(held & MIXED) or bool(kinds & CUT) or kinds & (kinds - 1) != 0
