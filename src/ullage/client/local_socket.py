"""The Unix socket of a local server. The kernel names the user who listens there, so it is safe to send the token.

The address of a Unix socket has at most 108 bytes, but a home may have a longer path. So the address refers to a
descriptor of the directory.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

NAME = "server.sock"
"""The socket in the home of a server."""

_OWNER_ONLY = 0o600
_CREDENTIALS = struct.Struct("3i")


class Peer(NamedTuple):
    """The process at the other end, and its user."""

    pid: int
    uid: int


def listen(home: Path, backlog: int, mode: int = _OWNER_ONLY) -> socket.socket:
    """Return a socket in `home` that accepts whom its mode admits. The socket of an ended server is replaced.

    Raises:
        OSError: no socket can be created in the directory.

    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), mode)
        with _address(home) as address:
            with suppress(FileNotFoundError):
                os.unlink(address)  # noqa: PTH108 - a path in /proc
            listener.bind(address)
            if mode != _OWNER_ONLY:
                os.chmod(address, mode)  # noqa: PTH101 - as above; the umask has limited it
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def connect(home: Path, timeout_s: float | None) -> socket.socket:
    """Return a connection to the server of `home`.

    Raises:
        OSError: no process listens there.

    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with _address(home) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end, according to the kernel: as it was when it connected or listened."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return Peer(pid, uid)


@contextmanager
def _address(home: Path) -> Iterator[str]:
    directory = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{NAME}"
    finally:
        os.close(directory)
