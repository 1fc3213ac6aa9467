"""The address and the token of the server.

In this order: the arguments of the caller, `ULLAGE_ENDPOINT` with `ULLAGE_TOKEN`, the files in the home of a local
server, `$ULLAGE_HOME` (`server.json` and `server.sock` while it runs, and `token`), and those of the system service in
`/run/ullage`, which knows its callers by the socket.

A local server is reached only by its socket, because its port may belong to another user by now.
"""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from ullage.client.process import started_at
from ullage.model.error import Forbidden, InvalidRequest, invalid

SERVER_FILE = "server.json"
LOG_FILE = "server.log"
SETTINGS_FILE = "ullage.toml"
"""The settings in the home of a server, unless another file is named."""

SYSTEM = "/run/ullage"
"""The directory of the socket of the system service, which all users of a machine share."""

UNIT = "etc/systemd/system/ullage.service"
"""The unit of the system service, below the root of the machine."""

SYSTEM_HOME = "/var/lib/ullage"
SYSTEM_SETTINGS = "/etc/ullage/ullage.toml"
"""The home and the settings of the system service."""

_TOKEN = re.compile(r"[\x21-\x7e]+")
_THIS_MACHINE = re.compile(r"localhost|.+\.localhost|127(\.\d{1,3}){3}|::1")
"""Names and addresses of this machine alone."""


class ServerEndpoint(msgspec.Struct, frozen=True):
    """The address of a server; of a local one also its process, home, options and warnings."""

    url: str
    token: str | None = None
    pid: int | None = None
    home: str | None = None
    options: dict[str, str] = {}
    warnings: list[str] = []

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"  # a token does not belong in a traceback


class ServerFile(msgspec.Struct, frozen=True):
    """The file of a local server: its address, its process and the start of that (see `process`), its options.

    `options` are those of `ullage up` that cannot be read from the address: the file `config` and `gpus` as they are in
    force, whether an option or the file says so. `warnings` are about its settings. `settings` are those of its file as
    it was at the start, by their names, such as `history.days`.
    """

    url: str
    pid: int
    started: int
    options: dict[str, str] = {}
    warnings: list[str] = []
    settings: dict[str, Any] = {}


def home() -> Path:
    """Return the directory of this user's local server."""
    given = os.environ.get("ULLAGE_HOME")
    if given:
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "ullage"


def make_home(directory: Path) -> None:
    """Create the directory of a local server, for its user alone.

    Raises:
        InvalidRequest: the directory, or a file in it, cannot be created (`home-unusable`).

    """
    from tempfile import TemporaryFile  # noqa: PLC0415 - slow to import, and needed only where a server starts

    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise InvalidRequest(
            f"the home {directory} cannot be used: {error.strerror or error}; name another one with ULLAGE_HOME",
            code="home-unusable",
            field="ULLAGE_HOME",
        ) from None


def configured(url: str | None = None, token: str | None = None) -> ServerEndpoint | None:
    """Return the server that the caller or the environment names; None if neither does.

    A token for another machine over plain http is warned of, once in a process.

    Raises:
        InvalidRequest: the address is not an http or https URL; it has a path, a query or a fragment, no host or an
            invalid port; or the token is invalid.

    """
    if url is None:
        url = os.environ.get("ULLAGE_ENDPOINT")
    if not url:
        return None
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise invalid("endpoint", url, "write a URL such as http://127.0.0.1:8080")
    extra = urlsplit(url)
    if extra.path.strip("/") or extra.query or extra.fragment:
        raise invalid("endpoint", url, f"write the address alone: {extra.scheme}://{extra.netloc}")
    _check_host(url, extra)
    token = token or os.environ.get("ULLAGE_TOKEN")
    if token and not _TOKEN.fullmatch(token):
        text = "a token has no spaces, line breaks or control characters; copy the file `token` of its home"
        raise InvalidRequest(f"ULLAGE_TOKEN: {text}", field="token")
    if token and extra.scheme == "http" and not _THIS_MACHINE.fullmatch(extra.hostname or ""):
        text = f"the token goes to {url} in plain text, which others can read; use https, or a tunnel"
        warnings.warn(text, stacklevel=2)
    return ServerEndpoint(url, token)


def _check_host(url: str, parts: SplitResult) -> None:
    """Refuse an address without a host, or with an invalid port."""
    try:
        good = parts.hostname is not None and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise invalid("endpoint", url, "write a host, and a port from 1 to 65535, as in http://127.0.0.1:8080")


def local(token: str | None = None) -> ServerEndpoint | None:
    """Return this user's local server from its files; None if its process is gone.

    Raises:
        Forbidden: this user may not read the home (`home-unreadable`), so a server may run there.

    """
    return _server_in(home(), token)


def nearby(token: str | None = None) -> ServerEndpoint | None:
    """Return this user's local server, else that of the system; None if neither runs. `ULLAGE_HOME` names one alone.

    Raises:
        Forbidden: as `local`.

    """
    own = local(token)
    if own is not None or os.environ.get("ULLAGE_HOME"):
        return own
    return _server_in(Path(os.environ.get("ULLAGE_SYSTEM") or SYSTEM), token)


def silent_service() -> str | None:
    """Return where the system service belongs, if this machine has one and this user's `ULLAGE_HOME` names no other."""
    if os.environ.get("ULLAGE_HOME"):
        return None
    place = os.environ.get("ULLAGE_SYSTEM") or SYSTEM
    installed = place == SYSTEM and Path("/", UNIT).exists()
    return place if installed or Path(place).is_dir() else None


class ServerPlace(NamedTuple):
    """The home of a server, and its settings file if there is one."""

    home: Path
    settings: Path | None


def looked_after() -> ServerPlace | None:
    """Return the place of the server that this user looks after; None where only root does.

    It is that of the system service if this machine has one, `ULLAGE_HOME` names no other, and this user has no home of
    a server; else that of this user.
    """
    if home().exists() or silent_service() is None:
        return own_place()
    settings = Path(SYSTEM_SETTINGS)
    return ServerPlace(Path(SYSTEM_HOME), settings if settings.exists() else None) if os.geteuid() == 0 else None


def own_place() -> ServerPlace:
    """Return the place of this user's own server."""
    settings = home() / SETTINGS_FILE
    return ServerPlace(home(), settings if settings.exists() else None)


def _server_in(directory: Path, token: str | None) -> ServerEndpoint | None:
    try:
        file = msgspec.json.decode((directory / SERVER_FILE).read_bytes(), type=ServerFile)
    except PermissionError as error:
        fix = "it belongs to another user; name another one with ULLAGE_HOME, or a server with ULLAGE_ENDPOINT"
        text = f"the home {directory} cannot be read: {error.strerror}; {fix}"
        raise Forbidden(text, code="home-unreadable", field="ULLAGE_HOME") from None
    except (OSError, msgspec.MsgspecError):  # none, or not of this version
        return None
    if started_at(file.pid) != file.started:
        return None
    if token is None:
        try:
            token = (directory / "token").read_text().strip() or None
        except OSError:  # another user's server, which will ask for a token
            token = None
    return ServerEndpoint(file.url, token, file.pid, home=str(directory), options=file.options, warnings=file.warnings)
