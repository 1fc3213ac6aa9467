"""The files of a home by which clients find its server: its address, and a socket that proves its user."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import msgspec

from ullage.bootstrap.listener import BACKLOG
from ullage.client import local_socket
from ullage.client.endpoint import SERVER_FILE, ServerFile
from ullage.client.process import started_at
from ullage.model.error import Unavailable
from ullage.wire.private_file import write_private


def listen_at_home(home: Path) -> socket.socket:
    """Return the socket in the home; the server already holds the lock of its state.

    Raises:
        Unavailable: no socket can be created in the home (`socket-failed`).

    """
    try:
        return local_socket.listen(home, BACKLOG)
    except OSError as error:
        where = home / local_socket.NAME
        fix = "set ULLAGE_HOME to a directory of a local file system"
        raise Unavailable(f"cannot listen on {where}: {error.strerror or error}; {fix}", code="socket-failed") from None


def announce(home: Path, url: str, options: dict[str, str], warnings: list[str]) -> None:
    """Write the file with the address, the process id, the options of the server, and warnings about its settings."""
    pid = os.getpid()
    started = started_at(pid)
    assert started is not None
    write_private(home / SERVER_FILE, msgspec.json.encode(ServerFile(url, pid, started, options, warnings=warnings)))


def withdraw(home: Path) -> None:
    """Remove the files that announce this server. The home may belong to another server now."""
    try:
        announced = msgspec.json.decode((home / SERVER_FILE).read_bytes(), type=ServerFile)
    except (OSError, msgspec.MsgspecError):
        return
    if (announced.pid, announced.started) != (os.getpid(), started_at(os.getpid())):
        return
    for name in (SERVER_FILE, local_socket.NAME):
        with suppress(OSError):
            (home / name).unlink()
