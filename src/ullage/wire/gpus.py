"""The list of cards that the older `/gpus` returns: memory in MiB, modes as numbers in text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ullage.model.binding import ShareMode, supported_modes
from ullage.model.compute import BoundCard, ComputeCard
from ullage.wire.body import body_of
from ullage.wire.gpubinding import MIB, share_number

_WHOLE_CORE = 100


class GpuAppBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An application on a card; `memory` is present where memory is divided."""

    app_name: str
    memory: int | None = None


class GpuUseBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A card; the last two fields are present where memory is divided. `count` is how many applications it may have."""

    node: str = msgspec.field(name="nodeName")
    id: str
    index: int
    count: int
    devmem: int
    devcore: int
    model: str = msgspec.field(name="type")
    zone: int = msgspec.field(name="numa")
    mode: str
    healthy: bool = msgspec.field(name="health")
    sharemode: str
    allowed_share_modes: list[str]
    apps: list[GpuAppBody]
    memory_allocated: int | None = None
    memory_available: int | None = None


def gpu_body(card: ComputeCard, rows: Sequence[BoundCard], available: int, tenants: int) -> GpuUseBody:
    """Return a card with its applications, and the amount that one more application could get."""
    sliced = card.share is ShareMode.MEMORY_SLICE
    apps = [GpuAppBody(row.app.name, row.memory_bytes // MIB if sliced else None) for row in rows if not row.draining]
    return body_of(
        GpuUseBody,
        card,
        count=tenants,
        devmem=card.memory_bytes // MIB,
        devcore=_WHOLE_CORE,
        mode="hami-core",
        sharemode=share_number(card.share),
        allowed_share_modes=sorted(map(share_number, supported_modes(card.accelerator))),
        apps=apps,
        memory_allocated=(card.memory_bytes - available) // MIB if sliced else None,
        memory_available=available // MIB if sliced else None,
    )
