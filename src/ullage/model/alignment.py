"""What a request asks of zones: how strictly, and by which of its containers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT32, check_amount
from ullage.model.topology import MAX_ZONE_BYTES, MAX_ZONES, ZonePolicy

MAX_CONTAINERS = 64
"""Containers of one request that are aligned; a pod with more is not a request for cards."""


class Stage(StrEnum):
    """When a container of a pod runs: init ones one by one before the others, sidecars from their turn on."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerNeeds:
    """What one container is aligned by: CPUs of its own, and devices by resource (`gpu` for cards).

    `memory_bytes` is the memory that must come from its zones; `hugepages` is the same for huge pages, by
    page size, all in bytes. What is not aligned (half a CPU, the memory of a burstable pod) is not here.

    Raises:
        InvalidRequest: an amount is negative or too large (`amount-out-of-range`).

    """

    name: str = ""
    stage: Stage = Stage.APP
    cpus: int = 0
    memory_bytes: int = 0
    devices: tuple[tuple[str, int], ...] = ()
    hugepages: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        own = f"containers.{self.name}" if self.name else "containers"
        for name, count in (("cpus", self.cpus), *self.devices):
            check_amount(count, f"{own}.{name}", MAX_INT32)
        pages = ((f"hugepages.{size}", amount) for size, amount in self.hugepages)
        for name, amount in (("memory_bytes", self.memory_bytes), *pages):
            check_amount(amount, f"{own}.{name}", MAX_ZONES * MAX_ZONE_BYTES)


@dataclass(frozen=True, slots=True)
class Alignment:
    """How strictly a request is aligned, by the rules of the kubelet's topology manager.

    Without a `policy` the node decides how strictly. Without `containers` the request is aligned as a single
    container that has all of its cards, and its CPUs if it asks for a whole number of them.

    Raises:
        InvalidRequest: there are too many containers.

    """

    policy: ZonePolicy | None = None
    containers: tuple[ContainerNeeds, ...] = ()

    def __post_init__(self) -> None:
        if len(self.containers) > MAX_CONTAINERS:
            raise invalid("containers", len(self.containers), f"align at most {MAX_CONTAINERS} of them")


AS_THE_NODE_SAYS = Alignment()


def parse_zone_policy(text: str, field: str = "numa") -> ZonePolicy:
    """The policy of that name.

    Raises:
        InvalidRequest: there is none.

    """
    try:
        return ZonePolicy(text)
    except ValueError:
        raise invalid(field, text, f"choose one of {', '.join(ZonePolicy)}") from None
