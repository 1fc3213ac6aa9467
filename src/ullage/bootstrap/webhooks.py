"""Sends notices of ended sessions by HTTP."""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import ssl
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from ullage import __version__
from ullage.model.notice import Notice
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


def post(notice: Notice) -> Delivery:
    """Send a notice once. Redirects are not followed; link-local addresses, as of a cloud's metadata, are refused."""
    parts = urlsplit(notice.url)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.connect()
        if ipaddress.ip_address(connection.sock.getpeername()[0].partition("%")[0]).is_link_local:
            return Delivery("its address is link-local", final=True)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"ullage/{__version__}",
            "Idempotency-Key": notice.id,
        }
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, notice.body.encode(), headers)
        status = connection.getresponse().status
    except (OSError, ssl.SSLError, http.client.HTTPException, ValueError) as error:
        return Delivery(f"{type(error).__name__}: {error}")
    finally:
        connection.close()
    if _OK <= status < _OK + 100:
        return Delivery(None)
    return Delivery(f"HTTP status {status}", final=_BAD <= status < _SERVER and status not in _PASSING)


class Webhooks:
    """Sends what is due, several notices at a time; `news` and `clock` are those of the service."""

    def __init__(self, notices: Notices, news: News, clock: Callable[[], float]) -> None:
        self._notices, self._news, self._clock = notices, news, clock
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
            answer = await asyncio.to_thread(post, notice)
            if answer.reason is None:
                self._notices.sent(notice)
            else:
                self._notices.failed(notice, answer.reason, final=answer.final)
        finally:
            del self._sending[notice.id]
            self._news.publish(News.NOTICES)
