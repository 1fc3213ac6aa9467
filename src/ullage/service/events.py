"""The event log: numbered, stored, and followed by clients."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

from ullage.model.allocation import Allocation
from ullage.model.event import Event
from ullage.model.node import Node
from ullage.service.journal import Journal
from ullage.service.news import News
from ullage.service.store_port import AddEvent, Page

RECENT_EVENTS = 1000


class Events:
    """Numbers and stores events, and wakes those who follow them."""

    def __init__(
        self, journal: Journal, news: News, clock: Callable[[], float], on_event: Callable[[Event], None]
    ) -> None:
        """`on_event` is called with each event as it is recorded."""
        self._journal, self._news, self._clock, self._on_event = journal, news, clock, on_event
        self._number = 0
        self._durable = 0
        self.recent: deque[Event] = deque(maxlen=RECENT_EVENTS)
        self.counts: Counter[str] = Counter()
        """By kind, since the start."""

    def resume(self, last: int) -> None:
        """Continue after the last stored number."""
        self._number = self._durable = last

    def add(
        self,
        kind: str,
        session: str | None = None,
        *,
        code: int | None = None,
        message: str = "",
        **data: str | float | tuple[str, ...] | None,
    ) -> None:
        """Record one event; `kind` is a fixed short name. Ids in a tuple become one text with spaces between them."""
        self._number += 1
        self.counts[kind] += 1
        facts = {name: " ".join(value) if isinstance(value, tuple) else value for name, value in data.items()}
        event = Event(self._number, self._clock(), kind, session, code=code, message=message, data=facts)
        self._journal.write(AddEvent(event), then=partial(self._stored, event.number))
        self.recent.append(event)
        self._on_event(event)
        self._news.publish(session or News.EVERYTHING)

    def _stored(self, number: int) -> None:
        self._durable = number

    def page(self, page: Page, session: str | None = None) -> list[Event] | None:
        """Return stored events, as `Store.events`; None if only the store has them.

        Only stored events are shown: a crash loses the others, and their numbers are used again.
        """
        if not self.recent or self.recent[0].number > page.after + 1:
            return None
        stored = (event for event in self.recent if page.after < event.number <= self._durable)
        return list(islice((event for event in stored if session in (None, event.session)), page.limit))

    def forget(self, session: str) -> None:
        """Remove the events of a session that is deleted."""
        kept = [event for event in self.recent if event.session != session]
        self.recent.clear()
        self.recent.extend(kept)


Facts = dict[str, Any]


def allocation_facts(allocation: Allocation) -> Facts:
    """Return the facts of an allocation for its event, so that a replay can request it again."""
    claim = allocation.claim
    assert claim is not None, "the events of an executor's allocation are those of the executor"
    return {
        "uid": allocation.id,
        "node": allocation.node,
        "gpus": allocation.gpus,
        "resreq": str(allocation.requirement),
        "namespace": claim.namespace,
        "priority": claim.priority,
        "asked_at": claim.created_at or None,
    }


def node_facts(node: Node) -> Facts:
    """Return the facts of a node for its event; `cards` is JSON: uuid, model, vendor, bytes and GFLOPS of each."""
    cards = [(gpu.uuid, gpu.model, gpu.vendor, gpu.vram_bytes, gpu.compute_gflops) for gpu in node.gpus]
    return {
        "node": node.name,
        "gpus": len(node.gpus),
        "cpu_milli": node.allocatable.cpu_milli,
        "memory_bytes": node.allocatable.memory_bytes,
        "cards": json.dumps(cards),
    }
