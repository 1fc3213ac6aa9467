"""After a restart the workload is learned again, and who left is known again, from the ledger and recent events.

What was refused is not recorded: it counts again when it is asked for again.
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
    """Count what holds cards, then what arrived lately; and recall who left."""
    for allocation in (held for held in snapshot.allocations if held.claim is not None):
        _see(allocator, allocation.id, allocation.requirement)
    events = store.events(Page(max(0, snapshot.last_event - RECENT), RECENT))
    _learn(allocator, events)
    allocator.recall_departed(_departed(events))


def _see(allocator: FleetAllocator, uid: str, asked: ResourceRequirement) -> None:
    """Count what was asked for; what it goes by is in use, before it is asked for again."""
    request = Request(uid, asked)
    allocator.rules.strategy_of(request).on(allocator.fleet)
    allocator.see(request)


def _departed(events: Iterable[Event]) -> dict[str, float]:
    """Return the requests whose cards were given back and who hold none again, with when."""
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
