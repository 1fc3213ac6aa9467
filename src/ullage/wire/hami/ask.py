"""What the containers of a pod ask of cards in the resources of one vendor, as values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ullage.model.alignment import Stage
from ullage.model.quantity import PPM
from ullage.wire.hami.words import Words

MIB = 2**20
WHOLE = 100
"""Percent."""


@dataclass(frozen=True, slots=True)
class ContainerAsk:
    """What one container asks: cards, and of each of them bytes or millionths of its memory, and percent of its cores.

    `task_priority` is 0 or 1 (lower), None if nothing is said. `counted`: the cards are a resource of the container,
    so that its kubelet asks the device plugin for them.
    """

    name: str
    stage: Stage
    count: int = 0
    vram_bytes: int = 0
    vram_ppm: int = 0
    cores: int = 0
    task_priority: int | None = None
    counted: bool = False

    def all_of_it(self) -> ContainerAsk:
        """The same cards, and all of each."""
        return replace(self, vram_bytes=0, vram_ppm=PPM, cores=WHOLE)

    def vram_on(self, total_bytes: int) -> int:
        """Bytes of a card of that many."""
        return self.vram_bytes or self.vram_ppm * total_bytes // PPM


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """What all containers of a pod ask under the names of one vendor, also those that ask for nothing."""

    words: Words
    containers: tuple[ContainerAsk, ...]

    @property
    def counted(self) -> bool:
        """Whether the kubelet asks a device plugin for cards of a container."""
        return any(ask.counted for ask in self.containers)
