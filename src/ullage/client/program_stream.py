"""The frames between a client and a program in an executor, over a socket that does not block."""

from __future__ import annotations

import select
import socket
import ssl

from ullage.model.error import Unavailable
from ullage.wire.terminal import CHUNK, Frame, FrameKind, TerminalReader, encode

_LOST_TEXT = "the connection to the server was lost; a server that ends, ends the program too"
_MOST_WAITING = 256 * 1024
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ProgramStream:
    """Sends and receives frames as far as the socket allows."""

    def __init__(self, stream: socket.socket) -> None:
        stream.setblocking(False)
        self.socket = stream
        self._reader = TerminalReader()
        self._waiting = bytearray()

    @property
    def takes_more(self) -> bool:
        """Whether so little waits to be sent that more may be put."""
        return len(self._waiting) < _MOST_WAITING

    @property
    def events(self) -> int:
        """What poll(2) should wait for."""
        return select.POLLIN | (select.POLLOUT if self._waiting else 0)

    def put(self, kind: FrameKind, data: bytes = b"") -> None:
        """Have a frame sent."""
        self._waiting += encode(kind, data)

    def send(self) -> bool:
        """Send what the server takes now. Return False if it takes nothing more: it is gone, or the program is."""
        if not self._waiting:
            return True
        try:
            sent = self.socket.send(self._waiting)
        except _WOULD_BLOCK:
            return True
        except OSError:  # the next read finds which
            self._waiting.clear()
            return False
        del self._waiting[:sent]
        return True

    def send_rest(self) -> None:
        """Send all that waits, however long that takes."""
        self.socket.setblocking(True)
        self.socket.sendall(self._waiting)

    def read(self) -> list[Frame] | None:
        """Return the frames that the next bytes complete; None if none have arrived. TLS may hold some already.

        Raises:
            Unavailable: the connection was lost (`program-lost`).

        """
        try:
            data = self.socket.recv(CHUNK)
        except _WOULD_BLOCK:
            return None
        except OSError:
            data = b""
        if not data:
            raise Unavailable(_LOST_TEXT, code="program-lost")
        return list(self._reader.feed(data))
