"""The limits of a Kubernetes ResourceQuota on parts of cards, which API servers do not count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ullage.model.error import InvalidRequest
from ullage.model.quantity import MAX_INT32, PPM
from ullage.model.quota import Caps, Quota
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.vendors.container_request import MIB
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.shipped import NVIDIA

_MAX_MIB = 2**30


def quota_name(namespace: str, family: str) -> str:
    """Return the name of the quota of a namespace for the cards of one family.

    That for NVIDIA's cards has the name of the namespace: pods that name no vendor count there too.
    """
    return namespace if family == NVIDIA.name else f"{namespace} {family}"


def quota_of(hard: Iterable[Mapping[str, str]], family: Family) -> Quota | None:
    """Return the quota for one family of several ResourceQuotas: of each amount the smallest; None if none limits it.

    `hard` are the amounts of the quotas of one namespace. `limits.nvidia.com/gpumem` is in the units of a request, and
    so is `limits.nvidia.com/gpucores`; 0 allows nothing. Whole cards (`requests.nvidia.com/gpu`) are counted by the
    API server when a pod is created.
    """
    limits, own = list(hard), family.resources
    memory = _smallest(limits, own.memory, family.memory.unit_mib * MIB, _MAX_MIB)
    cores = _smallest(limits, own.cores, PPM // family.cores.per_card, MAX_INT32)
    if memory is None and cores is None:
        return None
    return Quota(total_limits=Caps(vram_bytes=memory), max_workers=None, max_cores_ppm=cores)


def readable(hard: Mapping[str, str], family: Family) -> tuple[dict[str, str], list[InvalidRequest]]:
    """Return the amounts with each one that cannot be read as 0, and an error per such amount.

    An unknown limit allows nothing. Amounts that are not about parts of cards stay as they are.
    """
    found, errors = dict(hard), []
    for key, amount in hard.items():
        try:
            quota_of([{key: amount}], family)
        except InvalidRequest as error:
            found[key] = "0"
            errors.append(error)
    return found, errors


class NamespaceFigures(NamedTuple):
    """The hard limit and usage of one amount of a namespace, by the name of the resource and in its unit."""

    resource: str
    limit: int
    used: int


def figures_of(quota: Quota, vram_bytes: int, cores_ppm: int, family: Family) -> Iterator[NamespaceFigures]:
    """Yield the limits and usage of a quota in the resources of its family.

    `vram_bytes` and `cores_ppm` (millionths of cards) are held.
    """
    for resource, cap, held, unit in (
        (family.resources.memory, quota.total_limits.vram_bytes, vram_bytes, family.memory.unit_mib * MIB),
        (family.resources.cores, quota.max_cores_ppm, cores_ppm, PPM // family.cores.per_card),
    ):
        if cap is not None:
            yield NamespaceFigures(resource, cap // unit, -(-held // unit))


def _smallest(limits: Iterable[Mapping[str, str]], resource: str, unit: int, most: int) -> int | None:
    """Return the smallest limit of a resource, in its unit; None if there is none."""
    key = f"limits.{resource}"
    amounts = [parse_quantity(each[key], key, maximum=most) * unit for each in limits if resource and key in each]
    return min(amounts, default=None)
