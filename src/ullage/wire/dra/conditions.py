"""Whether the devices of claims are ready for a pod, as their drivers say.

A device may have conditions that all have to be True before a pod is bound, and others of which none may be. Where
one of these is, or the first take longer than ten minutes, the claim is to be allocated anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

from ullage.wire.document import Document, mapping, mappings, sequence, text

PATIENCE = timedelta(minutes=10)
"""From the time of the allocation."""


class Readiness(Enum):
    """How devices stand."""

    READY = auto()
    WAITING = auto()
    FAILED = auto()


def readiness(claims: Iterable[Document], now: datetime) -> Readiness:
    """How all devices stand that were allocated to these claims."""
    found = [_of(claim, now) for claim in claims]
    return next((each for each in (Readiness.FAILED, Readiness.WAITING) if each in found), Readiness.READY)


def _of(claim: Document, now: datetime) -> Readiness:
    status = mapping(claim.get("status"), "status")
    allocation = mapping(status.get("allocation"), "status.allocation")
    holds = {
        _key(each): {
            text(condition.get("type"))
            for _, condition in mappings(each.get("conditions"), "conditions")
            if condition.get("status") == "True"
        }
        for _, each in mappings(status.get("devices"), "status.devices")
    }
    ready = True
    for _, each in mappings(mapping(allocation.get("devices"), "devices").get("results"), "results"):
        true = holds.get(_key(each), set())
        if true.intersection(sequence(each.get("bindingFailureConditions"), "bindingFailureConditions")):
            return Readiness.FAILED
        ready = ready and true.issuperset(sequence(each.get("bindingConditions"), "bindingConditions"))
    if ready:
        return Readiness.READY
    since = text(allocation.get("allocationTimestamp"))
    late = bool(since) and now.astimezone(UTC) - datetime.fromisoformat(since) > PATIENCE
    return Readiness.FAILED if late else Readiness.WAITING


def _key(device: Document) -> tuple[str, ...]:
    return tuple(text(device.get(name)) for name in ("driver", "pool", "device", "shareID"))
