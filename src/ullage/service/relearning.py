"""After a restart, the learned workload and the departed requests are restored from the ledger and recent events.

Refused requests are not recorded: they count again when they are repeated.
"""

from __future__ import annotations

from collections.abc import Iterable

from ullage.core.allocator import FleetAllocator
from ullage.model.claim import Request
from ullage.model.event import Event
from ullage.model.request import ResourceRequirement
from ullage.service.store_port import Page, Snapshot, Store

RECENT = 10_000
"""Events that are read again."""


def relearn(allocator: FleetAllocator, snapshot: Snapshot, store: Store) -> None:
    """Count the requests that hold cards, then those that arrived lately, and restore the departed ones."""
    for allocation in (held for held in snapshot.allocations if held.claim is not None):
        _see(allocator, allocation.id, allocation.requirement)
    events = store.events(Page(max(0, snapshot.last_event - RECENT), RECENT))
    _learn(allocator, events)
    allocator.recall_departed(_departed(events))


def _see(allocator: FleetAllocator, uid: str, asked: ResourceRequirement) -> None:
    """Count a request. Its strategy must be in use before, so that it learns."""
    request = Request(uid, asked)
    allocator.rules.strategy_of(request).on(allocator.fleet)
    allocator.see(request)


def _departed(events: Iterable[Event]) -> dict[str, float]:
    """Return the requests that freed their cards and hold none now, with the times."""
    gone: dict[str, float] = {}
    for event in events:
        uid = str(event.data.get("uid", ""))
        if event.kind in ("allocation.freed", "allocation.expired"):
            gone[uid] = event.at
        elif event.kind in ("allocation.bound", "allocation.assumed"):
            gone.pop(uid, None)
    return gone


def _learn(allocator: FleetAllocator, events: Iterable[Event]) -> None:
    """Count each request once, and a session when it is opened and for every executor after its first."""
    asked: dict[str, ResourceRequirement] = {}
    first: set[str] = set()
    for event in events:
        session, text = event.session or "", str(event.data.get("resreq", ""))
        if event.kind in ("allocation.bound", "allocation.assumed") and text:
            _see(allocator, str(event.data["uid"]), ResourceRequirement.from_string(text))
        elif event.kind == "session.created" and text:
            asked[session] = ResourceRequirement.from_string(text)
            first.add(session)
            allocator.learning.see(asked[session])
        elif event.kind == "executor.started" and session in asked:
            if session not in first:
                allocator.learning.see(asked[session])
            first.discard(session)
