"""The slices (MIG) that a card of NVIDIA has already, through NVML. Nothing here makes or destroys one.

NVML tells their places on the card to administrators only. A slice that exists needs none: it has a number instead,
made of the ids of its instances, which stay the same while it exists.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, NamedTuple

from ullage.model.profiles import SHIPPED
from ullage.model.quantity import PPM
from ullage.model.template import MAX_COUNT, Template

_ENABLED = 1
_COMPUTE_INSTANCES = 8
"""The most compute instances of one GPU instance."""

_USUAL_SLICES = 7
_PROFILE = re.compile(r"\bMIG (\S+)$")


class Slices(NamedTuple):
    """The partitions of a card in MIG mode, and the uuids of its slices by their numbers."""

    partitions: tuple[Template, ...]
    uuids: tuple[tuple[int, str], ...]


class _Slice(NamedTuple):
    number: int
    uuid: str
    profile: str
    memory_bytes: int
    slices: int


def read_slices(library: Any, handle: Any, card: str | None) -> Slices | None:
    """Return the slices of a card; None if it is not in MIG mode. `card` is the name of its model."""
    if not _is_sliced(library, handle):
        return None
    by_profile: defaultdict[str, list[_Slice]] = defaultdict(list)
    found = [part for each in _handles(library, handle) if (part := _read(library, each)) is not None]
    for each in found:
        by_profile[each.profile].append(each)
    total = _slices_of(card)
    partitions = tuple(_template(name, each, total) for name, each in sorted(by_profile.items()))
    return Slices(partitions, tuple(sorted((each.number, each.uuid) for each in found)))


def _is_sliced(library: Any, handle: Any) -> bool:
    ask = getattr(library, "nvmlDeviceGetMigMode", None)
    if ask is None:
        return False
    try:
        current, _ = ask(handle)
    except library.NVMLError:  # the card has no such mode, or the driver does not know it
        return False
    return bool(current == _ENABLED)


def _handles(library: Any, handle: Any) -> list[Any]:
    found = []
    for position in range(library.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append(library.nvmlDeviceGetMigDeviceHandleByIndex(handle, position))
        except library.NVMLError:  # there is no slice with this number
            continue
    return found


def _read(library: Any, handle: Any) -> _Slice | None:
    """Return the facts of a slice; None where one is missing: then nobody gets it."""
    try:
        name = _PROFILE.search(library.nvmlDeviceGetName(handle))
        instance = library.nvmlDeviceGetGpuInstanceId(handle)
        number = instance * _COMPUTE_INSTANCES + library.nvmlDeviceGetComputeInstanceId(handle)
        memory = library.nvmlDeviceGetMemoryInfo(handle).total
        slices = library.nvmlDeviceGetAttributes_v2(handle).computeInstanceSliceCount
        uuid = library.nvmlDeviceGetUUID(handle)
    except library.NVMLError:
        return None
    if name is None or not (0 <= number < MAX_COUNT and memory > 0 and slices > 0):
        return None
    return _Slice(number, uuid, name.group(1), memory_bytes=memory, slices=slices)


def _slices_of(card: str | None) -> int:
    """Return the compute slices of a model of card."""
    known = next((each for each in SHIPPED.entries if card is not None and card in (each.name, *each.aliases)), None)
    return _USUAL_SLICES if known is None else known.max_partitions


def _template(profile: str, slices: list[_Slice], total: int) -> Template:
    """Return the slices of one profile as one kind of partition, whose places are their numbers."""
    numbers = tuple(sorted(each.number for each in slices))
    compute = min(PPM, PPM * min(each.slices for each in slices) // total)
    return Template(
        name=profile,
        memory_bytes=min(each.memory_bytes for each in slices),
        compute_ppm=compute,
        max_partitions=len(numbers),
        starts=numbers,
        size=1,
        charged_ppm=min(compute, PPM // len(numbers)),
    )
