"""The list of cards that the older `/gpus` returns: memory in MiB, modes as numbers in text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ullage.model.binding import ShareMode, supported_modes
from ullage.model.compute import BoundCard, ComputeCard
from ullage.wire.gpubinding import MIB, share_number

_WHOLE_CORE = 100


class GpuAppBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An application on a card; `memory` is present where memory is divided."""

    app_name: str
    memory: int | None = None


class GpuUseBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A card; the last two fields are present where memory is divided. `count` is how many applications it may have."""

    node_name: str
    id: str
    index: int
    count: int
    devmem: int
    devcore: int
    type: str
    numa: int
    mode: str
    health: bool
    sharemode: str
    allowed_share_modes: list[str]
    apps: list[GpuAppBody]
    memory_allocated: int | None = None
    memory_available: int | None = None


def gpu_body(card: ComputeCard, rows: Sequence[BoundCard], available: int, tenants: int) -> GpuUseBody:
    """Return a card with its applications, and the amount that one more application could get."""
    sliced = card.share is ShareMode.MEMORY_SLICE
    apps = [GpuAppBody(row.app.name, row.memory_bytes // MIB if sliced else None) for row in rows if not row.draining]
    return GpuUseBody(
        card.node,
        card.id,
        card.index,
        tenants,
        devmem=card.memory_bytes // MIB,
        devcore=_WHOLE_CORE,
        type=card.model,
        numa=card.zone,
        mode="hami-core",
        health=card.healthy,
        sharemode=share_number(card.share),
        allowed_share_modes=sorted(map(share_number, supported_modes(card.accelerator))),
        apps=apps,
        memory_allocated=(card.memory_bytes - available) // MIB if sliced else None,
        memory_available=available // MIB if sliced else None,
    )
