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
    """What one container is aligned by: CPUs it has alone, and devices by resource (`gpu` for cards).

    `memory_bytes` is what it asks of the zones' memory, `hugepages` of their huge pages by page size, both
    in bytes. What it asks without alignment (half a CPU, memory of a burstable pod) is not here.

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
        counts = (self.cpus, MAX_INT32), *((count, MAX_INT32) for _, count in self.devices)
        amounts = (self.memory_bytes, *(amount for _, amount in self.hugepages))
        for amount, most in (*counts, *((amount, MAX_ZONES * MAX_ZONE_BYTES) for amount in amounts)):
            check_amount(amount, "containers", most)


@dataclass(frozen=True, slots=True)
class Alignment:
    """How strictly a request is aligned, by the rules of the kubelet's topology manager.

    Without a `policy` it is as the node says. Without `containers` it is one container that asks for what
    the request asks for: its cards, and its CPUs if they are whole ones.

    Raises:
        InvalidRequest: there are too many containers.

    """

    policy: ZonePolicy | None = None
    containers: tuple[ContainerNeeds, ...] = ()

    def __post_init__(self) -> None:
        if len(self.containers) > MAX_CONTAINERS:
            raise invalid("containers", len(self.containers), f"at most {MAX_CONTAINERS} are aligned")


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
