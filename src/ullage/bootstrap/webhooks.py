"""Sends notices of ended sessions by HTTP."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from ullage import __version__
from ullage.model.link_local import is_link_local
from ullage.model.notice import LINK_LOCAL, Notice, is_named
from ullage.service.news import News
from ullage.service.notices import Notices

TIMEOUT_S = 10.0
MOST_AT_ONCE = 8
_OK, _BAD, _SERVER = 200, 400, 500
_PASSING = frozenset({408, 425, 429})
"""Codes of refusals that pass: a later attempt may be taken."""


class Delivery(NamedTuple):
    """Why a notice was not taken, and whether another attempt is useless; None for one that was taken."""

    reason: str | None
    final: bool = False


class _RefusedAddressError(Exception):
    """A host has an address that notices are not sent to."""


def post(notice: Notice, allowed: Sequence[str] = ()) -> Delivery:
    """Send a notice once. Redirects are not followed.

    A host with a link-local address, or one of the metadata of a cloud, gets none unless `allowed` names it.
    """
    parts = urlsplit(notice.url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(host, parts.port, timeout=TIMEOUT_S)
    try:
        connection.sock = _connect(host, connection.port, is_allowed=is_named(host, allowed))
        if secure:
            connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"ullage/{__version__}",
            "Idempotency-Key": notice.id,
        }
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, notice.body.encode(), headers)
        status = connection.getresponse().status
    except _RefusedAddressError as error:
        return Delivery(str(error), final=True)
    except (OSError, ssl.SSLError, http.client.HTTPException, ValueError) as error:
        return Delivery(f"{type(error).__name__}: {error}")
    finally:
        connection.close()
    if _OK <= status < _OK + 100:
        return Delivery(None)
    return Delivery(f"HTTP status {status}", final=_BAD <= status < _SERVER and status not in _PASSING)


def _connect(host: str, port: int, *, is_allowed: bool) -> socket.socket:
    """Return a connection to one of the addresses that a host has now, once all of them are checked.

    Raises:
        _RefusedAddressError: one of them is refused.
        OSError: none answers.

    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for *_, (address, *_rest) in found:
        if not is_allowed and is_link_local(ip_address(str(address))):
            raise _RefusedAddressError(f"its address {address} is {LINK_LOCAL}")
    failure: OSError | None = None
    for family, kind, protocol, _, place in found:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(TIMEOUT_S)
            connection.connect(place)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure or OSError(f"{host} has no address")


class Webhooks:
    """Sends what is due, several notices at a time; `news` and `clock` are those of the service.

    `allowed` are the hosts that an operator allows.
    """

    def __init__(
        self, notices: Notices, news: News, clock: Callable[[], float], allowed: Sequence[str] = ("*",)
    ) -> None:
        self._notices, self._news, self._clock, self._allowed = notices, news, clock, allowed
        self._sending: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Send notices until it is cancelled."""
        try:
            while True:
                with self._news.listen(News.NOTICES) as changed:
                    waiting = [notice for notice in self._notices.waiting if notice.id not in self._sending]
                    now = self._clock()
                    for notice in waiting:
                        if notice.due_at <= now and len(self._sending) < MOST_AT_ONCE:
                            self._sending[notice.id] = asyncio.create_task(self._send(notice))
                    later = min((notice.due_at for notice in waiting if notice.due_at > now), default=None)
                    await changed(None if later is None else later - now)
        finally:
            for task in self._sending.values():
                task.cancel()

    async def _send(self, notice: Notice) -> None:
        try:
            answer = await asyncio.to_thread(post, notice, self._allowed)
            if answer.reason is None:
                self._notices.sent(notice)
            else:
                self._notices.failed(notice, answer.reason, final=answer.final)
        finally:
            del self._sending[notice.id]
            self._news.publish(News.NOTICES)
