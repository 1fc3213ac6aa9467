"""Callers without credentials that send too much, too slowly, or without an end."""

from __future__ import annotations

import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from itertools import repeat
from pathlib import Path

KIB, MIB = 2**10, 2**20
PIECE = b"a" * (16 * KIB)
PLENTY = 64 * MIB
"""More than any server may take of a request before it ends the connection."""


class Address:
    """The address of a server; `tls` is set if it uses TLS."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.host, self.port, self.tls = host, port, tls

    def connect(self, timeout_s: float = 60.0) -> socket.socket:
        plain = socket.create_connection((self.host, self.port), timeout=timeout_s)
        return plain if self.tls is None else self.tls.wrap_socket(plain, server_hostname=self.host)

    def ask(self, path: str = "/healthz") -> int:
        """The status of an answer that another caller gets."""
        with self.connect() as caller:
            caller.sendall(f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n\r\n".encode())
            return int(read_answer(caller).split(b" ", 2)[1])


def ask(caller: socket.socket, path: str) -> int:
    """Ask on a connection that stays open, read the whole answer, and return its status."""
    caller.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    answer = HTTPResponse(caller)
    answer.begin()
    answer.read()
    return answer.status


def read_answer(caller: socket.socket) -> bytes:
    """Return all bytes until the connection ends."""
    found = b""
    while piece := _receive(caller):
        found += piece
    return found


def _receive(caller: socket.socket) -> bytes:
    try:
        return caller.recv(64 * KIB)
    except (ConnectionError, ssl.SSLError):
        return b""


def pour(caller: socket.socket, begin: bytes, pieces: Iterator[bytes]) -> int:
    """Send until the connection ends or there is plenty; how many bytes the server's side took."""
    sent = 0
    try:
        caller.sendall(begin)
        for piece in pieces:
            if sent > PLENTY:
                break
            caller.sendall(piece)
            sent += len(piece)
    except (ConnectionError, ssl.SSLError):
        return sent
    return sent


START = b"POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\n"

ENDLESS: dict[str, tuple[bytes, Callable[[], Iterator[bytes]]]] = {
    "a header without an end": (START + b"X-Long: ", lambda: repeat(PIECE)),
    "a path without an end": (b"GET /", lambda: repeat(PIECE)),
    "headers without an end": (START, lambda: repeat(b"X-A: 1\r\n" * 1024)),
    "a chunk extension without an end": (START + b"Transfer-Encoding: chunked\r\n\r\n1;", lambda: repeat(PIECE)),
    "a trailer without an end": (START + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Long: ", lambda: repeat(PIECE)),
    "empty lines without an end": (b"", lambda: repeat(b"\r\n" * 8192)),
    "chunks without an end": (
        START + b"Transfer-Encoding: chunked\r\n\r\n",
        lambda: repeat(b"%x\r\n" % len(PIECE) + PIECE + b"\r\n"),
    ),
    "chunks of one byte without an end": (
        START + b"Transfer-Encoding: chunked\r\n\r\n",
        lambda: repeat(b"1\r\na\r\n" * 4096),
    ),
    "a body as long as it says": (START + b"Content-Length: 999999999999\r\n\r\n", lambda: repeat(PIECE)),
    "requests without an end, whose answers nobody reads": (
        b"",
        lambda: repeat(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 256),
    ),
}
"""The first bytes of a caller, and its repeated bytes."""


def resident_bytes(pid: int) -> int:
    """Memory that a process has now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
