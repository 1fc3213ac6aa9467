"""Profiles of slices that a node names, such as `2g.12gb`: its size in slots, and its memory in GiB."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ullage.model.quantity import PPM

_NAME = re.compile(r"\s*(\d{1,6})g?\.(\d{1,6})(?:gb)?\b.*", re.IGNORECASE | re.ASCII)
_GIB_IN_MIB = 1024
_MUCH = 2
"""An amount of more than that many times the largest profile counts MiB, not GiB."""


class SliceProfile(NamedTuple):
    """A profile, the smallest first. `most` is the size of the largest profile of the node."""

    size: int
    memory_gib: int
    name: str
    id: str
    most: int = 1

    @property
    def cores(self) -> int:
        """Percent of the cores of a card, rounded up."""
        return -(-self.size * 100 // self.most)

    @property
    def cores_ppm(self) -> int:
        """Millionths of the cores of a card, rounded down, so that a card has all its slices."""
        return self.size * PPM // self.most


def read_profiles(profiles: Mapping[str, str]) -> tuple[SliceProfile, ...]:
    """Return the profiles of a node, from their ids by name; names that are none are left out."""
    sized = []
    for name, id_ in profiles.items():
        match = _NAME.match(name)
        if match is not None and int(match[1]) and int(match[2]):
            sized.append(SliceProfile(int(match[1]), int(match[2]), name, id=id_))
    most = max((each.size for each in sized), default=1)
    return tuple(sorted(each._replace(most=most) for each in sized))


class SliceAsk(NamedTuple):
    """A request for one slice: its exact size, or the least memory (GiB or MiB) and percent of cores."""

    size: int = 0
    memory: int = 0
    cores: int = 0


def profile_for(ask: SliceAsk, profiles: Sequence[SliceProfile]) -> SliceProfile | None:
    """Return the smallest profile that suffices; None if none does."""
    if ask.size:
        return next((each for each in profiles if each.size == ask.size), None)
    gib, most = ask.memory, max((each.memory_gib for each in profiles), default=0)
    if gib > most * _MUCH:
        gib = -(-gib // _GIB_IN_MIB)
    return next((each for each in profiles if each.memory_gib >= gib and each.cores >= ask.cores), None)
