"""Whether the devices of claims are ready for a pod, as their drivers report it.

A device may have binding conditions, which all have to be True before a pod is bound, and failure conditions, of which
none may be True. If a failure condition is True, or the binding conditions take longer than ten minutes, the claim has
to be allocated again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

from ullage.wire.document import Document, mapping, mappings, section, sequence, text

PATIENCE = timedelta(minutes=10)
"""The longest wait for binding conditions, from the time of the allocation."""


class Readiness(Enum):
    """The readiness of devices."""

    READY = auto()
    WAITING = auto()
    FAILED = auto()


def readiness(claims: Iterable[Document], now: datetime) -> Readiness:
    """Return the readiness of all devices that were allocated to these claims."""
    found = [_of(claim, now) for claim in claims]
    return next((each for each in (Readiness.FAILED, Readiness.WAITING) if each in found), Readiness.READY)


def _of(claim: Document, now: datetime) -> Readiness:
    status = section(claim, "status")
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
    for _, each in mappings(section(allocation, "devices").get("results"), "results"):
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
