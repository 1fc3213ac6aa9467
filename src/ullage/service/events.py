"""The record of what happened: numbered, stored, followed by whoever asks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from ullage.model.event import Event
from ullage.service.journal import Journal
from ullage.service.news import News
from ullage.service.store_port import AddEvent

RECENT_EVENTS = 1000


class Events:
    """Numbers events, stores them and tells who follows."""

    def __init__(self, journal: Journal, news: News, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._news = news
        self._clock = clock
        self._number = 0
        self.recent: deque[Event] = deque(maxlen=RECENT_EVENTS)
        self.counts: Counter[str] = Counter()
        """By kind, since the start."""

    def resume(self, last: int) -> None:
        """Go on after the last stored number."""
        self._number = last

    def add(
        self,
        kind: str,
        session: str | None = None,
        *,
        code: int | None = None,
        message: str = "",
        **data: str | float | None,
    ) -> None:
        """Record one event; `kind` is a fixed short name."""
        self._number += 1
        self.counts[kind] += 1
        event = Event(self._number, self._clock(), kind, session, code, message, data)
        self._journal.write(AddEvent(event))
        self.recent.append(event)
        self._news.publish(session or News.EVERYTHING)
