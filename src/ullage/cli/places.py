"""Table columns for the zones and CPUs of a placement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.cli.output import Column

if TYPE_CHECKING:
    from ullage.wire.allocation import AllocationBody
    from ullage.wire.node import ExecutorBody


def _zones(body: AllocationBody | ExecutorBody) -> str | None:
    return ",".join(map(str, body.placement.zones)) if body.placement else None


def _cpus(body: AllocationBody | ExecutorBody) -> str | None:
    return body.placement.cpus if body.placement else None


PLACE = (Column("ZONES", _zones, wide=True), Column("CPUS", _cpus, wide=True))
"""The zones, and the CPUs held alone."""
