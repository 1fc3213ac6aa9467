"""The amounts of a charge on its card, in the units of people, workers and limiters."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.allocation import Charge
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation
from ullage.model.quantity import PPM

_PERCENT = 100


@dataclass(frozen=True, slots=True)
class Grant:
    """A part of one card: fractions are in millionths of it, rounded up.

    `fraction_ppm` is the larger of its two fractions, which is also what counts in shares; it is at most the whole
    card, also of a card that has become smaller than what was granted. Amounts are in GFLOPS and
    bytes, None where the capacity of the card is not known.
    """

    compute_ppm: int
    vram_ppm: int
    compute_gflops: int | None
    vram_bytes: int | None
    isolation: Isolation = Isolation.SHARED

    @classmethod
    def of(cls, gpu: Gpu, charge: Charge | None) -> Grant:
        """Return the grant of `charge` on the card; None is all of it."""
        if charge is None:
            return cls(PPM, PPM, gpu.compute_gflops, gpu.vram_bytes)
        return cls.amounts(gpu, charge.compute, charge.vram, charge.isolation)

    @classmethod
    def amounts(cls, gpu: Gpu, compute: int, vram: int, isolation: Isolation = Isolation.SHARED) -> Grant:
        """Return the grant of amounts in the units of the ledger (see `Charge`)."""
        return cls(
            -(-compute * PPM // max(1, gpu.compute)),
            -(-vram * PPM // max(1, gpu.vram)),
            compute_gflops=None if gpu.compute_gflops is None else compute,
            vram_bytes=None if gpu.vram_bytes is None else vram,
            isolation=isolation,
        )

    @property
    def fraction_ppm(self) -> int:
        return min(PPM, max(self.compute_ppm, self.vram_ppm))

    @property
    def compute_percent(self) -> int:
        """Whole percent of the card's compute, rounded up; 0 if none was granted by amount."""
        return min(_PERCENT, -(-self.compute_ppm * _PERCENT // PPM))
