"""Where the server is, and the token it wants.

In this order: what the caller gives, `ULLAGE_ENDPOINT` with `ULLAGE_TOKEN`, and the files that a
local server keeps in its home, `$ULLAGE_HOME`: `server.json` while it runs, and `token`.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ullage.model.error import invalid


class Endpoint(msgspec.Struct, frozen=True):
    """A server's address. `pid` is its process, known only of a local one."""

    url: str
    token: str | None = None
    pid: int | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"  # a token does not belong in a traceback


class _ServerFile(msgspec.Struct, frozen=True):
    url: str
    pid: int


def home() -> Path:
    """The directory of this user's local server."""
    given = os.environ.get("ULLAGE_HOME")
    if given:
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "ullage"


def given(url: str | None = None, token: str | None = None) -> Endpoint | None:
    """The server that the caller or the environment names, if one of them does.

    Raises:
        InvalidRequest: the address is not an http or https URL.

    """
    if url is None:
        url = os.environ.get("ULLAGE_ENDPOINT")
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise invalid("endpoint", url, "write a URL such as http://127.0.0.1:8080")
    return Endpoint(url, token or os.environ.get("ULLAGE_TOKEN"))


def local(token: str | None = None) -> Endpoint | None:
    """The local server according to its files: it may have died without removing them."""
    directory = home()
    try:
        file = msgspec.json.decode((directory / "server.json").read_bytes(), type=_ServerFile)
    except (OSError, msgspec.MsgspecError):  # none, or one that is being written
        return None
    if token is None:
        try:
            token = (directory / "token").read_text().strip()
        except OSError:  # another user's server: it will ask for a token, which says more than a missing file
            token = None
    return Endpoint(file.url, token, file.pid)
