"""The requests of a pod's containers for the devices of one family, as values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ullage.model.alignment import AlignmentStage
from ullage.model.quantity import PPM
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.profiles import SliceAsk

MIB = 2**20
WHOLE = 100
"""Percent."""


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """The request of one container: cards, their memory in bytes or millionths, and millionths of their cores.

    `task_priority` is 0 or 1 (lower), None if it is not stated. `counted`: the devices are a resource of the container,
    so that its kubelet requests them from the device plugin. `written_mib` and `written_cores` (in units of the family)
    are written for the plugin where they differ from what is held (None: they do not). `template` is the name of its
    slice, `slice` a request for one of the profiles of a node.
    """

    name: str
    stage: AlignmentStage
    count: int = 0
    vram_bytes: int = 0
    vram_ppm: int = 0
    cores_ppm: int = 0
    task_priority: int | None = None
    counted: bool = False
    counts_cores: bool = False
    written_mib: int | None = None
    written_cores: int | None = None
    template: str = ""
    slice: SliceAsk | None = None

    def all_of_it(self) -> ContainerRequest:
        """Return a request for the same number of cards, and all of each."""
        whole = replace(self, vram_bytes=0, vram_ppm=PPM, cores_ppm=PPM, slice=None, template="")
        return replace(whole, written_mib=None, written_cores=None)

    def vram_on(self, total_bytes: int) -> int:
        """Return the requested bytes of a card of that size."""
        return self.vram_bytes or self.vram_ppm * total_bytes // PPM


@dataclass(frozen=True, slots=True)
class FamilyRequest:
    """The requests of all containers of a pod for the devices of one family, including empty requests."""

    family: Family
    containers: tuple[ContainerRequest, ...]

    @property
    def counted(self) -> bool:
        """Whether the kubelet requests devices from a device plugin for any container."""
        return any(ask.counted for ask in self.containers)
