"""Cards and their allocations, as returned by `GET /api/allocation`.

Compute is in TFLOPS and vram in bytes, both written as Kubernetes quantities; where the capacity of a card is not
known, they are percentages of it. Cards are named by uuid, workers by the uid of their pod.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ullage.model.allocation import Allocation, Charge
from ullage.model.amounts import Amounts
from ullage.model.gpu import Gpu
from ullage.model.part import Part
from ullage.model.quantity import format_bytes, format_percent
from ullage.model.resources import show_milli
from ullage.wire.body import body_of


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Common settings of all entries."""


class Quantities(_Entry, frozen=True, kw_only=True, omit_defaults=True):
    """Compute and vram of one card, each in one of its units."""

    tflops: str | None = None
    vram: str | None = None
    compute_percent: str | None = None
    vram_percent: str | None = None

    @classmethod
    def on(cls, gpu: Gpu, compute: int, vram: int) -> Quantities:
        """Return the amounts that the ledger has; millionths where the capacity of the card is not known."""
        return cls(
            tflops=show_milli(compute) if gpu.compute_gflops is not None else None,
            vram=format_bytes(vram) if gpu.vram_bytes is not None else None,
            compute_percent=format_percent(compute) if gpu.compute_gflops is None else None,
            vram_percent=format_percent(vram) if gpu.vram_bytes is None else None,
        )

    @classmethod
    def of(cls, amounts: Part) -> Quantities:
        """Return requested amounts; an amount that is not requested is left out."""
        return cls(
            tflops=show_milli(amounts.compute_gflops) if amounts.compute_gflops else None,
            vram=format_bytes(amounts.vram_bytes) if amounts.vram_bytes else None,
            compute_percent=format_percent(amounts.compute_ppm) if amounts.compute_ppm else None,
            vram_percent=format_percent(amounts.vram_ppm) if amounts.vram_ppm else None,
        )


class CardEntry(_Entry, frozen=True, kw_only=True):
    """A card: `available` is its capacity less bound amounts, `effectiveAvailable` less assumed amounts too."""

    name: str
    node: str
    index: int
    phase: str
    healthy: bool
    used_by: str
    pool: str | None
    vendor: str | None
    model: str | None
    numa_node: int | None
    isolation: str | None
    isolation_policy: str
    capacity: Quantities | None
    available: Quantities
    effective_available: Quantities

    @classmethod
    def of(cls, gpu: Gpu, node: str, *, bound: Amounts, assumed: Amounts) -> CardEntry:
        """Return a card of which these amounts are bound and assumed; a deficit is shown as 0."""
        left = Amounts(gpu.compute, gpu.vram).above(bound)
        effective = left.above(assumed)
        known = gpu.compute_gflops is not None or gpu.vram_bytes is not None
        return body_of(
            cls,
            gpu,
            name=gpu.uuid,
            node=node,
            numa_node=gpu.zones[0] if len(gpu.zones) == 1 else None,
            capacity=Quantities.on(gpu, gpu.compute, gpu.vram) if known else None,
            available=Quantities.on(gpu, *left),
            effective_available=Quantities.on(gpu, *effective),
        )


class Worker(_Entry, frozen=True, kw_only=True):
    """The holder of an allocation; a holder without a pod, such as an executor, has no names."""

    uid: str
    state: str
    namespace: str | None = None
    workload: str | None = None
    pod: str | None = None

    @classmethod
    def of(cls, allocation: Allocation) -> Worker:
        return body_of(cls, allocation, allocation.claim, uid=allocation.id, state=allocation.shown_state.value)


class HeldCard(_Entry, frozen=True, kw_only=True):
    """What is held of one card, and where its partition is; `amounts` null means the whole card."""

    gpu: str
    amounts: Quantities | None = None
    isolation: str | None = None
    template: str | None = None
    slot_start: int | None = None
    slot_end: int | None = None
    isolation_group: int | None = None


class AllocationEntry(_Entry, frozen=True, kw_only=True):
    """One allocation: its request and limit per card, and what it holds."""

    uid: str
    state: str
    node: str
    gpu_count: int
    isolation: str
    gpus: tuple[HeldCard, ...]
    request: Quantities | None
    limit: Quantities | None
    namespace: str | None = None
    workload: str | None = None
    pod: str | None = None
    qos: str | None = None
    priority: int | None = None
    pool: str | None = None
    assumed_at: float | None = None
    bound_at: float | None = None

    @classmethod
    def of(cls, allocation: Allocation, cards: Mapping[str, Gpu]) -> AllocationEntry:
        """Return the entry of an allocation; `cards` are the known cards by uuid."""
        asked, claim = allocation.requirement, allocation.claim
        charges: tuple[Charge | None, ...] = allocation.charges or (None,) * len(allocation.gpus)
        return body_of(
            cls,
            allocation,
            claim,
            uid=allocation.id,
            state=allocation.shown_state.value,
            gpu_count=asked.gpu_count,
            isolation=asked.cards.isolation,
            gpus=tuple(
                _held(uuid, charge, cards.get(uuid)) for uuid, charge in zip(allocation.gpus, charges, strict=True)
            ),
            request=None if asked.part is None else Quantities.of(asked.part),
            limit=None if claim is None or claim.limit is None else Quantities.of(claim.limit),
            pool=asked.cards.pool,
        )


class AllocationReport(_Entry, frozen=True, kw_only=True):
    """Cards by uuid; workers per node and per card, including those without workers; allocations by uid."""

    gpu_store: dict[str, CardEntry]
    node_worker_store: dict[str, tuple[Worker, ...]]
    allocation: dict[str, AllocationEntry]
    gpu_to_worker_map: dict[str, tuple[Worker, ...]]


def _held(uuid: str, charge: Charge | None, gpu: Gpu | None) -> HeldCard:
    if charge is None:
        return HeldCard(gpu=uuid)
    slot = charge.slot
    return HeldCard(
        gpu=uuid,
        amounts=Quantities.on(gpu or _KNOWN, charge.compute, charge.vram),
        isolation=charge.isolation.value,
        template=slot.template if slot else None,
        slot_start=slot.start if slot else None,
        slot_end=slot.end if slot else None,
        isolation_group=slot.group if slot else None,
    )


_KNOWN = Gpu("", 0, compute_gflops=0, vram_bytes=0)
"""A stand-in for a card that no longer exists: its charges are read as GFLOPS and bytes."""
