"""Slices that exist already (MIG), as a plain device plugin offers them: `nvidia.com/mig-1g.10gb`, a resource each.

An operator makes such slices beforehand, and the kubelet picks those of a pod. NVIDIA's plugin offers them so in its
strategy `mixed`. The names follow its documentation: `+` of a profile is written as a dot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ullage.wire.vendors.shipped import SLICES

_PROFILE = re.compile(r"(?P<compute>[1-9])g\.(?P<gib>\d{1,4})gb(?:[.-](?:me|gfx|all))*", re.ASCII)


@dataclass(frozen=True, slots=True)
class SliceResource:
    """A resource that counts slices of one profile: its compute slices, and its memory in GiB.

    `vendor` is that of the sliced cards in the books, `maker` the vendor whose plugin offers it.
    """

    name: str
    profile: str
    compute: int
    memory_gib: int
    vendor: str
    maker: str


@lru_cache(maxsize=4096)
def slice_resource(name: str) -> SliceResource | None:
    """Return the slices that a resource counts; None if it counts anything else."""
    for words in SLICES:
        profile = name.removeprefix(words.prefix)
        found = _PROFILE.fullmatch(profile) if profile != name else None
        if found is not None and int(found["gib"]):
            return SliceResource(
                name,
                profile,
                int(found["compute"]),
                int(found["gib"]),
                vendor=words.vendor,
                maker=words.maker,
            )
    return None
