"""Addresses at which a server of this process can be reached."""

from __future__ import annotations

import socket

from ullage.model.error import Unavailable

_BACKLOG = 512
"""Who connects before the server has come up, or faster than it answers, waits: so many at a time."""


def listen(host: str, port: int, fix: str) -> socket.socket:
    """A socket that takes connections from now on, so that an address that is told is open.

    Raises:
        Unavailable: the address cannot be had (`port-in-use`); `fix` says what to change.

    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise Unavailable(f"cannot listen on {where}: {error.strerror or error}; {fix}", code="port-in-use") from None
    return listener
