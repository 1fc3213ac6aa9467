"""An amount in a body."""

from __future__ import annotations

from ullage.wire.schema import View


class AmountBody(View, frozen=True, kw_only=True):
    """An amount per dimension."""

    cpu_milli: int
    memory_bytes: int
    gpu_milli: int
