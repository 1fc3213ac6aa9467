"""The limits of a Kubernetes ResourceQuota on parts of cards, which API servers do not count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ullage.model.error import InvalidRequest
from ullage.model.quantity import MAX_INT32, PPM
from ullage.model.quota import Caps, Quota
from ullage.wire.hami.container_request import MIB, WHOLE
from ullage.wire.hami.vendor import HamiVendor
from ullage.wire.kubernetes_quantity import parse_quantity

_MAX_MIB = 2**30


def quota_of(hard: Iterable[Mapping[str, str]], vendor: Iterable[HamiVendor]) -> Quota | None:
    """Return the quota of several ResourceQuotas: of each amount the smallest; None if none limits parts of cards.

    `hard` are the amounts of the quotas of one namespace. `limits.nvidia.com/gpumem` (and those of other vendors) is
    in MiB, `limits.nvidia.com/gpucores` in percent of a card; 0 allows nothing. Whole cards
    (`requests.nvidia.com/gpu`) are counted by the API server when a pod is created.
    """
    limits, vendor = list(hard), list(vendor)
    memory = _smallest(limits, {f"limits.{one.memory}": one.memory_factor * MIB for one in vendor}, _MAX_MIB)
    cores = _smallest(limits, dict.fromkeys((f"limits.{one.cores}" for one in vendor), PPM // WHOLE), MAX_INT32)
    if memory is None and cores is None:
        return None
    return Quota(total_limits=Caps(vram_bytes=memory), max_workers=None, max_cores_ppm=cores)


def readable(hard: Mapping[str, str], vendor: Sequence[HamiVendor]) -> tuple[dict[str, str], list[InvalidRequest]]:
    """Return the amounts with each one that cannot be read as 0, and an error per such amount.

    An unknown limit allows nothing. Amounts that are not about parts of cards stay as they are.
    """
    found, errors = dict(hard), []
    for key, amount in hard.items():
        try:
            quota_of([{key: amount}], vendor)
        except InvalidRequest as error:
            found[key] = "0"
            errors.append(error)
    return found, errors


class NamespaceFigures(NamedTuple):
    """The hard limit and usage of one amount of a namespace, by the name of the resource and in its unit."""

    resource: str
    limit: int
    used: int


def figures_of(quota: Quota, vram_bytes: int, cores_ppm: int, vendor: HamiVendor) -> Iterator[NamespaceFigures]:
    """Yield the limits and usage of a quota in the resources of one vendor.

    `vram_bytes` and `cores_ppm` (millionths of cards) are held.
    """
    for resource, cap, held, unit in (
        (vendor.memory, quota.total_limits.vram_bytes, vram_bytes, vendor.memory_factor * MIB),
        (vendor.cores, quota.max_cores_ppm, cores_ppm, PPM // WHOLE),
    ):
        if cap is not None:
            yield NamespaceFigures(resource, cap // unit, -(-held // unit))


def _smallest(limits: Iterable[Mapping[str, str]], units: Mapping[str, int], most: int) -> int | None:
    """Return the smallest amount under any of these keys, each in its unit; None if there is none."""
    amounts = [
        parse_quantity(each[key], key, maximum=most) * unit
        for each in limits
        for key, unit in units.items()
        if key in each
    ]
    return min(amounts, default=None)
