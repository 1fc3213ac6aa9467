"""Usage in the units of quotas and of shares, and usage by workloads outside the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from operator import add, sub
from typing import NamedTuple

from ullage.model.allocation import Allocation, Charge
from ullage.model.gpu import Gpu
from ullage.model.quantity import PPM


class Usage(NamedTuple):
    """What the requests of one namespace hold: GFLOPS and bytes asked, and at most used; workers; millionths of cards.

    The last is the compute of cards of any kind, also of those whose GFLOPS are not known.
    """

    compute_request: int = 0
    vram_request: int = 0
    compute_limit: int = 0
    vram_limit: int = 0
    workers: int = 0
    cores_ppm: int = 0

    def plus(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage._make(map(add, self, other))

    def minus(self, other: Usage) -> Usage:
        """Return the difference."""
        return Usage._make(map(sub, self, other))


class OtherUsage(NamedTuple):
    """Usage of a node by workloads outside the ledger. They hold no cards and are never evicted.

    `slots` is by how many the allocations that the node may have are fewer.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    slots: int = 0


class CardHolding(NamedTuple):
    """Cpu, memory and thousandths of cards, exactly."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpu_milli: Fraction = Fraction(0)

    def plus(self, other: CardHolding) -> CardHolding:
        """Return the sum."""
        return CardHolding(
            self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes, self.gpu_milli + other.gpu_milli
        )


def share_of(compute: int, total: int) -> int:
    """Return what compute is of a card that has so much, in millionths of it, rounded up; no more than all of it."""
    return min(PPM, -(-compute * PPM // max(1, total)))


def usage_of(allocation: Allocation, gpus: Iterable[Gpu | None]) -> Usage:
    """Return what an allocation on these cards counts; see `Fleet.usage_of`."""
    claim, charges = allocation.claim, allocation.charges
    limit = claim.limit if claim is not None else None
    compute = vram = compute_limit = vram_limit = cores = 0
    for position, gpu in enumerate(gpus):
        needs = (0, 0)
        if charges:
            charge = charges[position]
            needs = counted(gpu, (charge.compute, charge.vram)) if gpu is not None else _granted(charge)
            cores += share_of(charge.compute, PPM if gpu is None else gpu.compute)
        elif gpu is not None:
            needs = gpu.compute_gflops or 0, gpu.vram_bytes or 0
        cores += 0 if charges else PPM
        compute, vram = compute + needs[0], vram + needs[1]
        if claim is not None and limit is not None:
            total = (0, 0) if gpu is None else (gpu.compute, gpu.vram)
            most = claim.limit_usage(needs, counted(gpu, limit.on(*total)))
            compute_limit, vram_limit = compute_limit + most[0], vram_limit + most[1]
    if limit is None:
        compute_limit, vram_limit = compute, vram
    return Usage(compute, vram, compute_limit, vram_limit, workers=1, cores_ppm=cores)


def _granted(charge: Charge) -> tuple[int, int]:
    """Return what quotas count of a charge on a card that nobody knows by now: nothing where it is in millionths."""
    if charge.basis is None:
        return charge.compute, charge.vram
    compute = 0 if charge.basis.compute_gflops is None else charge.compute
    return compute, 0 if charge.basis.vram_bytes is None else charge.vram


def counted(gpu: Gpu | None, amounts: tuple[int, int]) -> tuple[int, int]:
    """Return what quotas count of these amounts on a card: GFLOPS and bytes where it reports them, else nothing."""
    compute, vram = amounts
    if gpu is None:
        return compute, vram
    return compute if gpu.compute_gflops is not None else 0, vram if gpu.vram_bytes is not None else 0
