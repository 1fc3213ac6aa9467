"""The frames between a client, the server, and the host of a program in an executor.

A frame is one byte of kind, four bytes of length (big endian), and the data. The client speaks first: `RESIZE`, upon
which the host starts the program. The host runs without site-packages, so this module uses the standard library only.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

PROTOCOL = "ullage-terminal"
"""The value of the header `Upgrade` of a request that becomes a stream of these frames."""

CHUNK = 32 * 1024
"""Bytes of output or input in one frame."""

_MOST_DATA = 64 * 1024
MOST_ORDER = 4 << 20
"""The most bytes of an `ORDER`, which has a whole environment."""

HEAD = struct.Struct(">BI")
SIZE = struct.Struct(">HH")
"""The data of `RESIZE`: rows and columns; 0 without a terminal."""

CODE = struct.Struct(">i")
"""The data of `EXIT` and `SIGNAL`: an exit code, the number of a signal."""


class FrameKind(IntEnum):
    """What a frame is: of a client, of the server to the host, of the host, of the server to the client."""

    STDIN = 1
    EOF = 2
    RESIZE = 3
    SIGNAL = 4
    DETACH = 5
    """The client leaves on purpose, so the program goes on without one."""
    ATTACHED = 17
    LOST = 18
    """The client is gone."""
    ORDER = 19
    """The program to run, as JSON: the server gets an `ExecBody`, the host gets the fields of `HostOrder`."""
    HELLO = 33
    """Who connects, as JSON: `secret`, or `executor` and `task`."""
    STDOUT = 34
    STDERR = 35
    EXIT = 36
    END = 49
    """The program did not start, or did not end by itself: why, as text."""
    TAKEN = 50
    """Another client has attached to the program."""


_KINDS = frozenset(FrameKind)
OF_CLIENTS = frozenset({FrameKind.STDIN, FrameKind.EOF, FrameKind.RESIZE, FrameKind.SIGNAL, FrameKind.DETACH})


class Frame(NamedTuple):
    """One frame."""

    kind: FrameKind
    data: bytes = b""


class HostOrder(NamedTuple):
    """A program, its whole environment and its directory; None is that of the host.

    `tty`: it has a terminal of its own. `logged`: its output goes to the standard output and error of the host, too.
    `grace_s`: seconds that it may go on after its client is lost.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    tty: bool
    logged: bool = False
    grace_s: float = 0.0


class BrokenStreamError(ValueError):
    """The bytes are no frames."""


def encode(kind: FrameKind, data: bytes = b"") -> bytes:
    """Return a frame as bytes."""
    return HEAD.pack(kind, len(data)) + data


def head_of(data: bytes) -> tuple[FrameKind, int]:
    """Return the kind and the length that the head of a frame states.

    Raises:
        BrokenStreamError: there is no such kind, or the length is above the limit.

    """
    kind, length = HEAD.unpack_from(data)
    if kind not in _KINDS or length > (MOST_ORDER if kind == FrameKind.ORDER else _MOST_DATA):
        raise BrokenStreamError(f"no frame has the kind {kind} and {length} bytes")
    return FrameKind(kind), length


class TerminalReader:
    """Collects bytes, and returns the frames that they complete."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete with `data`.

        Raises:
            BrokenStreamError: the bytes are no frames.

        """
        self._data += data
        frames, begin = [], 0
        while len(self._data) - begin >= HEAD.size:
            kind, length = head_of(bytes(self._data[begin : begin + HEAD.size]))
            end = begin + HEAD.size + length
            if len(self._data) < end:
                break
            frames.append(Frame(kind, bytes(self._data[begin + HEAD.size : end])))
            begin = end
        del self._data[:begin]
        return frames
