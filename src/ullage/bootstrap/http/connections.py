"""All connections of one server, by what they wait for: the oldest one is cut when its time or the memory runs out."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from ullage.bootstrap.http.bounds import Bounds


class ConnectionPhase(enum.Enum):
    """The part of a request or response that a connection waits for."""

    HANDSHAKE = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    DRAIN = enum.auto()
    IDLE = enum.auto()
    STALLED = enum.auto()


_CUT_AT_ONCE = 16
"""Connections cut in one turn of the event loop: the end of TLS takes time."""

_UNFINISHED = (ConnectionPhase.HANDSHAKE, ConnectionPhase.HEAD, ConnectionPhase.BODY, ConnectionPhase.DRAIN)


class Connection(Protocol):
    """A connection that can be cut."""

    def cut(self) -> None:
        """Close it now, without a response."""


class Connections:
    """The connections of one server. A connection whose request is being answered has no time limit."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float]) -> None:
        self.bounds = bounds
        self._clock = clock
        self._open: set[Connection] = set()
        self._phase: dict[Connection, ConnectionPhase] = {}
        self._waiting: dict[ConnectionPhase, OrderedDict[Connection, float]] = {
            phase: OrderedDict() for phase in ConnectionPhase
        }
        self._bodies_bytes = 0
        self._limit_s = {
            ConnectionPhase.HANDSHAKE: bounds.handshake_s,
            ConnectionPhase.HEAD: bounds.head_s,
            ConnectionPhase.DRAIN: bounds.drain_s,
            ConnectionPhase.BODY: bounds.body_s,
            ConnectionPhase.STALLED: bounds.stalled_s,
        }

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Count a new connection, and cut the oldest waiting one if there are too many.

        Return False, and do not count it, if all others are being answered.
        """
        if len(self._open) >= self.bounds.connections and not self._cut_one():
            return False
        self._open.add(connection)
        return True

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.wait(connection, None)
        self._open.discard(connection)

    def begin(self, arriving: Connection, connection: Connection) -> None:
        """Count `connection` in place of `arriving`: it waits for its head since it was accepted."""
        since = self._waiting[ConnectionPhase.HANDSHAKE].get(arriving, self._clock())
        self.remove(arriving)
        self._open.add(connection)
        self._phase[connection] = ConnectionPhase.HEAD
        self._waiting[ConnectionPhase.HEAD][connection] = since

    def wait(self, connection: Connection, phase: ConnectionPhase | None) -> None:
        """Record the phase of a connection; None if it waits for nothing."""
        before = self._phase.pop(connection, None)
        if before is not None:
            self._waiting[before].pop(connection, None)
        if phase is not None:
            self._phase[connection] = phase
            self._waiting[phase][connection] = self._clock()

    def count_body(self, connection: Connection, count: int) -> None:
        """Count buffered bytes of a body, and cut the oldest uploads above the limit."""
        self._bodies_bytes += count
        while self._bodies_bytes > self.bounds.bodies_bytes and self._waiting[ConnectionPhase.BODY]:
            self._cut_first(ConnectionPhase.BODY)
        if self._bodies_bytes > self.bounds.bodies_bytes:
            connection.cut()

    def release(self, count: int) -> None:
        """Uncount bytes of bodies that are no longer buffered."""
        self._bodies_bytes -= count

    def sweep(self) -> bool:
        """Cut some of the connections that have waited too long. Return whether more remain."""
        now, left = self._clock(), _CUT_AT_ONCE
        for phase, limit_s in self._limit_s.items():
            waiting = self._waiting[phase]
            while waiting and now - next(iter(waiting.values())) > limit_s:
                if not left:
                    return True
                left -= 1
                self._cut_first(phase)
        return False

    def _cut_one(self) -> bool:
        """Cut the oldest connection whose request is unfinished, or else an idle one, or else a stalled one."""
        unfinished = [phase for phase in _UNFINISHED if self._waiting[phase]]
        if unfinished:
            self._cut_first(min(unfinished, key=lambda phase: next(iter(self._waiting[phase].values()))))
            return True
        for phase in (ConnectionPhase.IDLE, ConnectionPhase.STALLED):
            if self._waiting[phase]:
                self._cut_first(phase)
                return True
        return False

    def _cut_first(self, phase: ConnectionPhase) -> None:
        connection = next(iter(self._waiting[phase]))
        self.remove(connection)
        connection.cut()
