"""Parts of cards in tables: amounts and holders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ullage.cli.size import show_size
from ullage.model.quantity import PPM, format_bytes, format_decimal
from ullage.model.resources import MILLI, show_milli
from ullage.wire.node import GpuBody, GpuHolderBody

if TYPE_CHECKING:
    from ullage.wire.allocation import PartMap


def show_vram(gpu: GpuBody) -> str | None:
    """Return held and total vram, such as `20Gi/40Gi`."""
    return _held(gpu.vram_bytes, gpu.free.vram_bytes, show_size)


def show_compute(gpu: GpuBody) -> str | None:
    """Return held and total TFLOPS, such as `9.75/19.5`."""
    return _held(gpu.compute_gflops, gpu.free.compute_gflops, show_milli)


def show_tflops(gflops: int | None) -> str | None:
    """Return GFLOPS as TFLOPS, such as `19.5`."""
    return None if gflops is None else show_milli(gflops)


def show_part(part: PartMap | None) -> str | None:
    """Return amounts of each card in the form of options: `tflops=80,vram=30Gi`."""
    if part is None:
        return None
    vram = format_bytes(part.vram) if isinstance(part.vram, int) else part.vram
    given = {"tflops": part.tflops, "percent": part.percent, "vram": vram}
    return ",".join(f"{key}={value}" for key, value in given.items() if value is not None) or None


def show_free(gpu: GpuBody) -> str:
    """Return the largest part of a card that fits, such as `0.5`."""
    return show_fraction(gpu.free.fraction)


def show_holders(gpu: GpuBody) -> str | None:
    """Return the holders of a card: `train`, or `train 0.5, serve 0.25`."""
    return ", ".join(map(_holder, gpu.holders)) or None


def show_owners(gpu: GpuBody) -> str | None:
    """Return the owners of the holders of a card, each once."""
    return ", ".join(dict.fromkeys(holder.owner for holder in gpu.holders if holder.owner)) or None


def show_fraction(fraction: float) -> str:
    """Return a fraction without trailing zeros."""
    return format_decimal(round(fraction * PPM))


def _holder(holder: GpuHolderBody) -> str:
    name = holder.session or f"({holder.executor})"
    return name if holder.isolation == "shared" else f"{name} {show_fraction(holder.fraction)}"


def _held(capacity: int | None, free: int | None, show: Callable[[int], str]) -> str | None:
    return None if capacity is None or free is None else f"{show(capacity - free)}/{show(capacity)}"


def show_cards(milli: int) -> str:
    """Return thousandths of cards with the noun: `1 card`, `0.5 cards`."""
    return f"{show_milli(milli)} {'card' if milli == MILLI else 'cards'}"
