"""Listening sockets of this process."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from ullage.model.error import Unavailable, invalid

BACKLOG = 512
"""The most connections that wait to be accepted."""

_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104  # only compared


def url_host(host: str) -> str:
    """Return a host as it stands in a URL: an IPv6 address is in brackets."""
    return f"[{host}]" if ":" in host else host


def reachable_host(address: str, names: Sequence[str]) -> str:
    """Return the host of the URL of a server: one that a client can open, also where it listens on all addresses."""
    if address in _ALL_ADDRESSES:
        return next(iter(names), "localhost")
    return url_host(address)


def check_address(host: str, field: str = "host") -> None:
    """Refuse an empty address, which would listen on all addresses of the machine.

    Raises:
        InvalidRequest: it is empty.

    """
    if not host.strip():
        raise invalid(field, host, "write an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them")


def listen(host: str, port: int, fix: str) -> socket.socket:
    """Return a listening socket, so that an announced address accepts connections.

    Raises:
        InvalidRequest: the host is empty or unknown, or is another machine.
        Unavailable: the address cannot be used (`port-in-use`); `fix` says what to change.

    """
    check_address(host)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except socket.gaierror as error:
        listener.close()
        fix = f"{error.strerror}; write an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them"
        raise invalid("host", host, fix) from None
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            fix = "no interface of this machine has it; write 127.0.0.1, or 0.0.0.0 for all addresses of this machine"
            raise invalid("host", host, fix) from None
        where = f"{url_host(host)}:{port}"
        raise Unavailable(f"cannot listen on {where}: {error.strerror or error}; {fix}", code="port-in-use") from None
    return listener
