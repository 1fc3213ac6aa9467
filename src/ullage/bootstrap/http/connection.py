"""One HTTP connection within limits on all that its caller sends.

uvicorn and httptools limit neither the head of a request nor its time, and continue to read a body after its request
was answered. This protocol limits all of it before any byte reaches the application.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ullage.bootstrap.http.connections import Connection, ConnectionPhase, Connections
from ullage.server.callers import PEER
from ullage.server.guard import UNAUTHENTICATED
from ullage.server.upgrade import TAKE_OVER, Stream
from ullage.wire.schema import ErrorBody

_BAD_REQUEST = 400
_HEAD_TOO_LARGE = 431
_FLUSH_S = 0.02
"""Seconds to send a short response before its connection is cut."""


_PAUSE_S = 0.02
"""Seconds between two reads of a discarded body, or of an unauthenticated caller that repeats its requests."""

_UNAUTHENTICATED_ANSWERS = 32
"""Requests of a connection that are answered without a token before a pause follows each: a page with its files."""

_PIECES_OF_A_HEAD = 2
"""Pieces in which a head may come before each further one doubles the pause."""

_MOST_DOUBLED = 6
"""The pause grows to 1.3 seconds."""


class _TooMuchError(Exception):
    """Stops the parser in the middle of the data."""


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's protocol within `Bounds`."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        app_state: dict[str, Any],
        connections: Connections,
        arriving: Connection,
        peer: int | None = None,
    ) -> None:
        super().__init__(config, state, app_state)
        self._peer = peer  # the user id of a caller on this machine, by the kernel
        self._others, self._bounds, self._arriving = connections, connections.bounds, arriving
        self._phase: ConnectionPhase | None = None
        self._message: ConnectionPhase | None = None  # the part of a request in progress: its head, its body, or none
        self._moved = False  # the parser made progress since the last piece
        self._unparsed = 0  # bytes since the parser made progress
        self._pieces_unparsed = 0
        self._header_count = 0
        self._body = 0  # bytes of the body that count as buffered
        self._step = 0
        self._pieces = self._pieces_bytes = 0  # of the body in progress
        self._fault = ""  # the error of the request, if the parser cannot report it
        self._drained = 0
        self._running: RequestResponseCycle | None = None  # the request that is being answered
        self._unauthenticated = 0  # requests without a token that were answered
        self._hosts = 0  # Host headers of the request in progress

    def cut(self) -> None:
        """Close the connection now, without a response."""
        self._release_body()
        self.transport.abort()

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for the first head."""
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn names a narrower kind
        self._others.begin(self._arriving, self)
        self._phase = ConnectionPhase.HEAD

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection's resources, and end a request without a log line.

        uvicorn does so for the last request that came, which waits where several came at once. Writing a response to a
        closed connection would log an error: a line for each connection that an unknown caller opens.
        """
        self._release_body()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self._others.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data, piece by piece, and stop at the first limit."""
        room = self._bounds.head_bytes - self._unparsed
        if len(data) <= room:
            self._parse(data)
            return
        rest = memoryview(data)
        while rest and not self.transport.is_closing():
            self._parse(bytes(rest[:room]))
            rest, room = rest[room:], self._bounds.head_bytes - self._unparsed

    def _parse(self, piece: bytes) -> None:
        self._moved = False
        super().data_received(piece)
        if self.transport.is_closing():
            return
        self._unparsed = 0 if self._moved else self._unparsed + len(piece)
        self._pieces_unparsed = 0 if self._moved else self._pieces_unparsed + 1
        if self._unparsed >= self._bounds.head_bytes or self._too_many_headers:
            self._refuse_head()
        elif self._phase is ConnectionPhase.DRAIN and self._message is ConnectionPhase.BODY:
            self._drained += len(piece)
            if self._drained > self._bounds.drained_bytes:
                self._leave()
            else:
                self._pause(_PAUSE_S)
        else:
            self._settle()
            if self._pieces_unparsed > _PIECES_OF_A_HEAD:
                doubled = min(self._pieces_unparsed - _PIECES_OF_A_HEAD - 1, _MOST_DOUBLED)
                self._pause(_PAUSE_S * 2**doubled)

    def _pause(self, seconds: float) -> None:
        """Pause reading: a body that is discarded must not take time from others."""
        if not self.flow.read_paused:
            self.flow.pause_reading()
            self.loop.call_later(seconds, self._read_on)

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def _settle(self) -> None:
        """Wait for the next part of the request or response."""
        answered = self._answered
        if self.flow.write_paused:
            phase: ConnectionPhase | None = ConnectionPhase.STALLED
        elif self._message is not None:
            phase = ConnectionPhase.DRAIN if self._message is ConnectionPhase.BODY and answered else self._message
        elif self._unparsed:
            phase = ConnectionPhase.HEAD
        else:
            phase = ConnectionPhase.IDLE if answered else None
        if phase is ConnectionPhase.IDLE and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        if phase is not self._phase:
            self._enter(phase)

    def _enter(self, phase: ConnectionPhase | None) -> None:
        self._phase = phase
        self._drained = 0
        self._others.wait(self, phase)

    def pause_writing(self) -> None:
        """Start the time limit of a client that reads nothing of its response."""
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        """Continue: the client reads again."""
        super().resume_writing()
        self._settle()

    @property
    def _answered(self) -> bool:
        """Return whether every request that was started is answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def _too_many_headers(self) -> bool:
        return self._header_count > self._bounds.headers

    # --- the parser ---

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self.scope[PEER] = self._peer  # type: ignore[literal-required]  # a key of our own
        self.scope[TAKE_OVER] = self._take_over  # type: ignore[literal-required]  # as above
        self._message, self._header_count, self._hosts = ConnectionPhase.HEAD, 0, 0
        self._pieces = self._pieces_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header within the limit; drop trailers.

        Raises:
            _TooMuchError: a second `Host` (RFC 9112, section 3.2), which readers would treat differently.

        """
        if self._message is not ConnectionPhase.HEAD:
            return
        self._header_count += 1
        if name.lower() == b"host":
            self._hosts += 1
            if self._hosts > 1:
                self._fault = "it has more than one Host header"
                raise _TooMuchError
        if not self._too_many_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, unless it has too many headers.

        Raises:
            _TooMuchError: too many earlier requests are unanswered.

        """
        if self._too_many_headers:
            return
        if len(self.pipeline) >= self._bounds.pipelined:
            raise _TooMuchError
        super().on_headers_complete()
        self._message, self._moved = ConnectionPhase.BODY, True

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body, and count it while its request is in progress.

        Raises:
            _TooMuchError: the pieces are too small, and would take too long to parse.

        """
        if self._too_many_headers:
            return
        self._pieces += 1
        self._pieces_bytes += len(body)
        if self._pieces > self._bounds.pieces + self._pieces_bytes // self._bounds.piece_bytes:
            self._fault = f"its body comes in chunks of less than {self._bounds.piece_bytes} bytes"
            raise _TooMuchError
        super().on_body(body)
        self._moved = True
        if self._answered:
            return
        self._body += len(body)
        self._step += len(body)
        self._others.count_body(self, len(body))
        if self._step >= self._bounds.body_step_bytes:
            self._step = 0
            if self._phase is ConnectionPhase.BODY:
                self._others.wait(self, ConnectionPhase.BODY)

    def on_message_complete(self) -> None:
        """End a request."""
        if self._too_many_headers:
            return
        super().on_message_complete()
        self._message, self._moved = None, True

    # --- the answer ---

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _take_over(self, head: bytes) -> Stream:
        """Write the head of a response, and return the connection as a stream, which has no time limit.

        The client sends nothing after its request until it has the head.
        """
        assert self._running is not None
        self._running.disconnected = True  # for uvicorn: there is nothing more to write
        self._release_body()
        self._enter(None)
        reader = asyncio.StreamReader(loop=self.loop)
        protocol = _Upgraded(reader, self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.flow.resume_reading()
        self.transport.write(head)
        return Stream(reader, asyncio.StreamWriter(self.transport, protocol, reader, self.loop))

    def shutdown(self) -> None:
        """Let a request in progress finish; a stream ends now."""
        if self._running is not None and self._running.disconnected:
            self.transport.close()
        super().shutdown()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of a body that is discarded."""
        self._release_body()
        answered = self._running
        super().on_response_complete()
        if self.transport.is_closing():
            self._enter(ConnectionPhase.DRAIN)
            return
        self._settle()
        if answered is not None and answered.scope.get(UNAUTHENTICATED):
            self._unauthenticated += 1
            if self._unauthenticated > _UNAUTHENTICATED_ANSWERS:
                self._pause(_PAUSE_S)

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP with an `ErrorBody`, or cut a connection with an earlier request in progress."""
        if self._message is ConnectionPhase.BODY and self._may_refuse_body:
            self.cycle.disconnected = True  # further output of its application is discarded
            self.cycle.message_event.set()
        elif self._message is ConnectionPhase.BODY or not self._answered:
            self.cut()
            return
        fault = f"this is not a valid request: {self._fault or msg}"
        self._answer(_BAD_REQUEST, ErrorBody(code="malformed-request", message=fault))

    @property
    def _may_refuse_body(self) -> bool:
        """Return whether the request in progress is the only one on its connection without a response."""
        return self._running is self.cycle and not self.cycle.response_started

    def _refuse_head(self) -> None:
        if self._message is not ConnectionPhase.HEAD or not self._answered:
            self.cut()  # a response was begun on this connection, or it has no request
            return
        most = f"{self._bounds.head_bytes} bytes and {self._bounds.headers} headers"
        message = f"the head of the request is too large; at most {most} are read"
        self._answer(_HEAD_TOO_LARGE, ErrorBody(code="head-too-large", message=message))

    def _answer(self, status: int, body: ErrorBody) -> None:
        content = msgspec.json.encode(body)
        head = f"content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + content)
        self._leave()

    def _leave(self) -> None:
        """Close an answered connection; over TLS a close alone continues to read data."""
        self.transport.close()
        self.loop.call_later(_FLUSH_S, self.cut)

    def _release_body(self) -> None:
        if self._body:
            self._others.release(self._body)
            self._body = self._step = 0


class _Upgraded(asyncio.StreamReaderProtocol):
    """The protocol of a connection that is a stream; its end is that of the connection before."""

    def __init__(self, reader: asyncio.StreamReader, before: BoundedConnection) -> None:
        super().__init__(reader)
        self._before = before

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._before.connection_lost(exc)
