"""The requests of each container of a pod for cards in HAMi's resources."""

from __future__ import annotations

import re

from ullage.model.alignment import AlignmentStage
from ullage.model.error import InvalidRequest, invalid
from ullage.model.quantity import MAX_INT32, PPM
from ullage.model.request import MAX_CARDS
from ullage.wire.document import Document, mapping, section, text
from ullage.wire.hami.container_request import MIB, WHOLE, ContainerRequest
from ullage.wire.hami.vendor import HamiVendor
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod.containers import containers_of

_MAX_MIB = 2**24
"""16 TiB: more than a card has, and less than any plausible amount in bytes."""

_OF_BYTES = re.compile(r"[KMGTPE]i?$")
"""Units that are not used for MiB; `k` and `Ki` may be how an API server writes a plain number."""

_NANO = 10**9


def container_requests(pod: Document, vendor: HamiVendor) -> tuple[ContainerRequest, ...]:
    """Return the requests of all containers, including empty ones; init containers come first, as in their pod.

    Raises:
        InvalidRequest: an amount is not a whole number, or out of range; HAMi would treat it as no request.

    """
    spec = section(pod, "spec")
    return tuple(_request(stage, path, container, vendor) for stage, path, container in containers_of(spec))


def _request(stage: AlignmentStage, path: str, container: Document, vendor: HamiVendor) -> ContainerRequest:
    name, amounts = text(container.get("name")), _Amounts(container, f"{path}.resources")
    count = amounts.whole(vendor.count, MAX_CARDS)
    memory = amounts.mib(vendor.memory)
    percentage = amounts.whole(vendor.memory_percentage, WHOLE)
    cores = amounts.whole(vendor.cores, MAX_INT32)
    priority = amounts.whole(vendor.priority, 1)
    counted = bool(count)
    if count is None:
        count = 0 if memory is None and percentage is None and cores is None else vendor.default_count
    if not count:
        return ContainerRequest(name, stage, task_priority=priority)
    mib = (memory or 0) * vendor.memory_factor or (0 if percentage else vendor.default_memory_mib)
    ppm = 0 if mib else (percentage or WHOLE) * PPM // WHOLE
    if cores is None:
        cores = vendor.default_cores or (WHOLE if ppm == PPM else 0)
    return ContainerRequest(
        name, stage, count, mib * MIB, vram_ppm=ppm, cores=min(cores, WHOLE), task_priority=priority, counted=counted
    )


class _Amounts:
    """The amounts of one container, limits before requests."""

    def __init__(self, container: Document, path: str) -> None:
        self._path = path
        resources = mapping(container.get("resources"), path)
        self._kinds = [(kind, mapping(resources.get(kind), f"{path}.{kind}")) for kind in ("limits", "requests")]

    def mib(self, resource: str) -> int | None:
        """Return the requested MiB; an amount in bytes is refused, with its value in MiB in the message."""
        for kind, amounts in self._kinds:
            value = amounts.get(resource)
            if isinstance(value, str) and _OF_BYTES.search(value) and not value.endswith("Ki"):
                field = f"{self._path}.{kind}.{resource}"
                in_mib = -(-parse_quantity(value, field) // MIB)
                raise invalid(field, value, f"it counts MiB, as a plain number: write {in_mib} for {value} of memory")
        try:
            return self.whole(resource, _MAX_MIB)
        except InvalidRequest as error:
            raise InvalidRequest(f"{error.message} (it counts MiB)", field=error.field) from None

    def whole(self, resource: str, most: int) -> int | None:
        """Return the requested whole number of a resource; None if it is not stated."""
        for kind, amounts in self._kinds:
            value = amounts.get(resource)
            if value is not None:
                field = f"{self._path}.{kind}.{resource}"
                amount, rest = divmod(parse_quantity(value, field, units=_NANO, maximum=most * _NANO), _NANO)
                if rest:
                    raise invalid(field, value, "a whole number is needed")
                return amount
        return None
