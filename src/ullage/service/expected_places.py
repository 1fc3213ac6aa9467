"""Probable places: a place is reserved for a short time for each request that a scheduler has asked about."""

from __future__ import annotations

from collections.abc import Callable

from ullage.core.allocator import FleetAllocator
from ullage.core.placing.decision import Choice
from ullage.model.claim import Request
from ullage.model.nomination import Nomination

EXPECTED_S = 10.0
"""Seconds for which the probable place of a request is reserved. A scheduler binds within a second or two."""


class ExpectedPlaces:
    """`clock` is monotonic and `now` is the time since 1970, both in seconds."""

    def __init__(self, books: FleetAllocator, clock: Callable[[], float], now: Callable[[], float]) -> None:
        self._books, self._clock, self._now = books, clock, now
        self._until: dict[str, float] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._until

    def expect(self, request: Request, node: str | None) -> None:
        """Reserve the best place on a node for a request; on none with None. A place that is promised stays."""
        uid = request.uid
        if self._books.nominations.of(uid) is not None and uid not in self._until:
            return  # others were evicted for it, or its place is promised
        self.forget(uid)
        choice = self._books.choose_on(request, node) if node is not None else None
        if isinstance(choice, Choice):
            self._until[uid] = self._clock() + EXPECTED_S
            self._books.nominate(
                Nomination(request, choice.node, self._now(), choice.gpus, charges=choice.charges, hold=True)
            )

    def replaced(self, uid: str) -> None:
        """Note that another reservation takes the place of the expected one."""
        self._until.pop(uid, None)

    def forget(self, uid: str) -> None:
        """End the reservation of the expected place of a request, if there is one."""
        if self._until.pop(uid, None) is not None:
            self._books.withdraw(uid)

    def expire(self) -> None:
        """End the reservations that are older than `EXPECTED_S`."""
        now = self._clock()
        for uid in [uid for uid, until in self._until.items() if until <= now]:
            self.forget(uid)
