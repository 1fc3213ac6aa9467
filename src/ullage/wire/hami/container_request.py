"""The requests of a pod's containers for the resources of one vendor, as values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ullage.model.alignment import AlignmentStage
from ullage.model.quantity import PPM
from ullage.wire.hami.vendor import HamiVendor

MIB = 2**20
WHOLE = 100
"""Percent."""


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """The request of one container: cards, their memory in bytes or millionths, and percent of their cores.

    `task_priority` is 0 or 1 (lower), None if it is not stated. `counted`: the cards are a resource of the container,
    so that its kubelet requests them from the device plugin.
    """

    name: str
    stage: AlignmentStage
    count: int = 0
    vram_bytes: int = 0
    vram_ppm: int = 0
    cores: int = 0
    task_priority: int | None = None
    counted: bool = False

    def all_of_it(self) -> ContainerRequest:
        """Return a request for the same number of cards, and all of each."""
        return replace(self, vram_bytes=0, vram_ppm=PPM, cores=WHOLE)

    def vram_on(self, total_bytes: int) -> int:
        """Return the requested bytes of a card of that size."""
        return self.vram_bytes or self.vram_ppm * total_bytes // PPM


@dataclass(frozen=True, slots=True)
class VendorRequest:
    """The requests of all containers of a pod for the resources of one vendor, including empty requests."""

    vendor: HamiVendor
    containers: tuple[ContainerRequest, ...]

    @property
    def counted(self) -> bool:
        """Whether the kubelet requests cards from a device plugin for any container."""
        return any(request.counted for request in self.containers)
