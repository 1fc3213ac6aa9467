"""The oversubscription of a node: the sum of limits may exceed its capacity, the sum of requests may not."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.error import invalid
from ullage.model.quantity import is_whole

_PERCENT = 100

_RANGES = {
    "vram_expand_to_host_mem": (0, 100),
    "vram_expand_to_host_disk": (0, 100),
    "compute_oversell_ratio": (100, 100_000),
}


@dataclass(frozen=True, slots=True)
class Oversubscription:
    """The section of a pool. All three are whole percentages.

    Vram may spill into that part of the machine's memory and that part of its disk; compute may be promised up to
    `compute_oversell_ratio` hundredths of the capacity of the cards.
    """

    vram_expand_to_host_mem: int = 50
    vram_expand_to_host_disk: int = 70
    compute_oversell_ratio: int = 500

    def __post_init__(self) -> None:
        for field, (least, most) in _RANGES.items():
            value = getattr(self, field)
            if not is_whole(value) or not least <= value <= most:
                fix = f"a whole percentage from {least} to {most} is needed"
                raise invalid(f"oversubscription.{field}", value, fix)

    def virtual(self, total: tuple[int, int], memory_bytes: int, disk_bytes: int) -> tuple[int, int]:
        """Return the most that limits may add up to, as (compute, vram), rounded down.

        `total` is the (compute, vram) of the machine's cards.
        """
        compute, vram = total
        memory = memory_bytes * self.vram_expand_to_host_mem // _PERCENT
        disk = disk_bytes * self.vram_expand_to_host_disk // _PERCENT
        return compute * self.compute_oversell_ratio // _PERCENT, vram + memory + disk
