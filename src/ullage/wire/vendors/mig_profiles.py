"""The partitions of a card in mode `mig`, as HAMi's device plugin registers them.

A card takes partitions of exactly these profiles at exactly these starts. Partitions of 1 and 3 compute slices are
placed as high as possible, others as low as possible: so the starts of large ones stay free longest.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated

import msgspec

from ullage.model.error import InvalidRequest, invalid_annotation
from ullage.model.name import MAX_NAME
from ullage.model.quantity import MAX_INT32, PPM
from ullage.model.template import MAX_COUNT, Template

_MIB = 2**20
_PER_CENT = PPM // 100
_HIGH = ("1g.", "3g.")
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class MigPlace(msgspec.Struct, frozen=True):
    """Where a slice lies on its card, in slots."""

    start: _Count
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]


class MigProfile(msgspec.Struct, frozen=True, rename="camel"):
    """A profile as it is registered. `core` is the percent of the compute, rounded up."""

    name: Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
    memory_mb: Annotated[int, msgspec.Meta(ge=0, le=2**30)] = msgspec.field(default=0, name="memoryMB")
    core: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)] = 0
    slice_count: _Count = 0
    placements: Annotated[list[MigPlace], msgspec.Meta(max_length=MAX_COUNT)] = []


def partitions_of(profiles: Iterable[MigProfile], key: str) -> tuple[Template, ...]:
    """Return the partitions of a card; profiles without memory, compute or a place are left out.

    Raises:
        InvalidAnnotation: a profile cannot be placed, such as one whose places differ in size. `key` is its annotation.

    """
    usable = [each for each in profiles if each.name and each.memory_mb and each.core and each.placements]
    try:
        slices = _slices(usable)
        found = tuple(_template(each, slices) for each in usable)
    except InvalidRequest as error:
        raise invalid_annotation(key, ", ".join(each.name for each in usable), error.message) from None
    if any(len({place.size for place in each.placements}) > 1 for each in usable):
        raise invalid_annotation(key, ", ".join(each.name for each in usable), "places of one profile have one size")
    if len(frozenset().union(*(each.keys for each in found))) != len(found):
        raise invalid_annotation(key, ", ".join(each.name for each in usable), "each profile is there once")
    return _one_object(found)


@lru_cache(maxsize=256)
def _one_object(partitions: tuple[Template, ...]) -> tuple[Template, ...]:
    """Return one object for equal partitions: cards with the same ones are then compared at once."""
    return partitions


def _slices(profiles: list[MigProfile]) -> int:
    """Return the compute slices of a card, from its largest profile."""
    largest = max(profiles, key=lambda each: each.slice_count, default=None)
    return 1 if largest is None else max(1, -(-100 * largest.slice_count // min(100, largest.core)))


def _template(profile: MigProfile, slices: int) -> Template:
    """Return a profile as a partition. Rounded up percentages of a full card exceed it: slices are charged instead."""
    starts = sorted({place.start for place in profile.placements}, reverse=profile.name.startswith(_HIGH))
    counts = min(PPM, profile.core * _PER_CENT)
    charged = min(counts, PPM * profile.slice_count // slices or counts, PPM // len(starts))
    return Template(
        name=profile.name,
        memory_bytes=profile.memory_mb * _MIB,
        compute_ppm=counts,
        max_partitions=len(starts),
        starts=tuple(starts),
        size=max(place.size for place in profile.placements),
        charged_ppm=charged,
    )
