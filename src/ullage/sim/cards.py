"""Cards of the nodes of a trace, by the name of their model."""

from __future__ import annotations

from ullage.model.gpu import Gpu

_GIB = 1 << 30
_VRAM_GIB = {
    "P100": 16,
    "T4": 16,
    "V100M16": 16,
    "V100M32": 32,
    "A10": 24,
    "A100-SXM4-80GB": 80,
    "A800-SXM4-80GB": 80,
    "H800": 80,
}
"""Memory of the card models in the lists of Alibaba; that of the others is not published and stays unknown."""


def cards_of(node: str, model: str | None, count: int) -> tuple[Gpu, ...]:
    """Return `count` cards of one model."""
    vram = _VRAM_GIB.get(model or "")
    return tuple(Gpu(f"{node}/{i}", i, model, vram_bytes=None if vram is None else vram * _GIB) for i in range(count))
