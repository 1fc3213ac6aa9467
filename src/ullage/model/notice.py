"""Notices: what a server sends to a URL when a session has ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from ullage.model.error import invalid
from ullage.model.link_local import is_link_local, literal_address

MAX_URL = 2000
LINK_LOCAL = "link-local or of the metadata of a cloud, unless notify_hosts names exactly this host"


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice that is not delivered yet. `body` is JSON, `due_at` in seconds since the epoch.

    `attempts` were made and failed.
    """

    id: str
    session: str
    url: str
    body: str
    due_at: float
    attempts: int = 0

    @property
    def host(self) -> str:
        """The host that gets it. The rest of a URL is often a secret."""
        return urlsplit(self.url).hostname or ""


def check_url(url: str, field: str = "notify") -> None:
    """Refuse what is no URL of HTTP with a host.

    Raises:
        InvalidRequest: it is none, or it is too long.

    """
    fix = "write a URL such as https://hooks.example.com/ullage"
    if len(url) > MAX_URL or any(ord(character) <= ord(" ") for character in url):
        raise invalid(field, url, f"{fix}, of at most {MAX_URL} characters without blanks")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise invalid(field, url, fix)


def check_host(url: str, allowed: Iterable[str], field: str = "notify") -> None:
    """Refuse a URL whose host matches none of the patterns that an operator allows, such as `*.example.com`.

    A link-local address, or one of the metadata of a cloud, has to be named as it is.

    Raises:
        InvalidRequest: none matches.

    """
    host, patterns = urlsplit(url).hostname or "", list(allowed)
    if not any(fnmatchcase(host, pattern.lower()) for pattern in patterns):
        known = ", ".join(patterns) or "none"
        raise invalid(field, url, f"the server sends notices to these hosts only (notify_hosts): {known}")
    address = literal_address(host)
    if address is not None and is_link_local(address) and not is_named(host, patterns):
        raise invalid(field, url, f"no notice is sent to {address}, which is {LINK_LOCAL}")


def is_named(host: str, allowed: Iterable[str]) -> bool:
    """Return whether an operator allows a host by its whole name."""
    return host in (pattern.lower() for pattern in allowed)
