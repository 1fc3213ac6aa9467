"""The files of a home by which clients find its server: its address, and a socket that proves its user."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ullage.bootstrap.listener import BACKLOG
from ullage.client import local_socket
from ullage.client.endpoint import SERVER_FILE, ServerFile
from ullage.client.process import started_at
from ullage.model.error import Unavailable
from ullage.wire.private_file import write_private

_ENTERED_BY_ALL, _OPEN_TO_ALL, _READ_BY_ALL = 0o755, 0o666, 0o644


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


def listen_for_all(directory: Path) -> socket.socket:
    """Return the socket for all users of this machine, in a directory that is created.

    Raises:
        Unavailable: no socket can be created there (`socket-failed`).

    """
    try:
        directory.mkdir(mode=_ENTERED_BY_ALL, parents=True, exist_ok=True)
        directory.chmod(_ENTERED_BY_ALL)
        return local_socket.listen(directory, BACKLOG, _OPEN_TO_ALL)
    except OSError as error:
        where, fix = directory / local_socket.NAME, "the setting users.socket names another directory"
        raise Unavailable(f"cannot listen on {where}: {error.strerror or error}; {fix}", code="socket-failed") from None


def announce_to_all(directory: Path, url: str) -> None:
    """Write the file by which clients of all users find the server."""
    pid = os.getpid()
    file = ServerFile(url, pid, started_at(pid) or 0)
    write_private(directory / SERVER_FILE, msgspec.json.encode(file), _READ_BY_ALL)


def announce(
    home: Path, url: str, options: dict[str, str], warnings: list[str], *, settings: dict[str, Any] | None = None
) -> None:
    """Write the file with the address, the process id, the options and the settings of the server, and warnings."""
    pid = os.getpid()
    started = started_at(pid)
    assert started is not None
    file = ServerFile(url, pid, started, options, warnings=warnings, settings=settings or {})
    write_private(home / SERVER_FILE, msgspec.json.encode(file))


def announced(home: Path) -> ServerFile | None:
    """Return what the server of a home has announced; None if none runs, or this user may not read it."""
    try:
        file = msgspec.json.decode((home / SERVER_FILE).read_bytes(), type=ServerFile)
    except (OSError, msgspec.MsgspecError):
        return None
    return file if started_at(file.pid) == file.started else None


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
