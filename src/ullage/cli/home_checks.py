"""Checks of the home of a local server, of its files, and of the server that answers."""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from ullage import __version__
from ullage.cli.size import show_size
from ullage.client.api import Api
from ullage.client.endpoint import LOG_FILE, SERVER_FILE, ServerEndpoint, configured, home, nearby, silent_service
from ullage.client.local import require_answer
from ullage.client.transport import Transport
from ullage.model.error import InvalidRequest, UllageError
from ullage.wire.finding import BAD, OK, WARN, Finding

_LITTLE_BYTES, _TOO_LITTLE_BYTES = 1 << 30, 100 << 20
"""Free bytes of the disk below which a warning is due, and below which a server soon stops."""

_SKEW_S, _GREAT_SKEW_S = 5.0, 60.0
"""Seconds between two clocks that are worth a warning, and that are an error."""

_TOKEN = re.compile(r"[\x21-\x7e]{16,}")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MAY_PASS = stat.S_IXGRP | stat.S_IXOTH
"""What a server adds whose work runs as its owners: they must reach their own directories in the home."""


def check_home(directory: Path) -> Iterator[Finding]:
    """Check that this user can use the home, and nobody else."""
    if not directory.exists():
        above = _first_that_exists(directory)
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            yield Finding("home", OK, f"{directory} does not exist yet; the first server creates it")
        else:
            yield Finding(
                "home",
                BAD,
                f"{directory} cannot be created: {above} is no directory that this user can write",
                _ANOTHER_HOME,
            )
        return
    if not directory.is_dir():
        yield Finding("home", BAD, f"{directory} is no directory", _ANOTHER_HOME)
        return
    found = directory.stat()
    if found.st_uid != os.geteuid() and os.geteuid() != 0:
        yield Finding("home", BAD, f"{directory} belongs to user {found.st_uid}", _ANOTHER_HOME)
    elif not os.access(directory, os.R_OK | os.W_OK | os.X_OK) or not found.st_mode & stat.S_IWUSR:
        yield Finding("home", BAD, f"{directory} is not writable", f"chmod u+rwx {directory}")
    elif found.st_mode & _OTHERS & ~_MAY_PASS:
        others = stat.filemode(found.st_mode)
        yield Finding("home", WARN, f"{directory} is open to other users ({others})", f"chmod 700 {directory}")
    elif found.st_mode & _OTHERS:
        yield Finding("home", OK, f"{directory} belongs to this user; others reach only what is theirs in it")
    else:
        yield Finding("home", OK, f"{directory} belongs to this user alone")


_ANOTHER_HOME = "name another directory with ULLAGE_HOME"


def check_token(directory: Path) -> Iterator[Finding]:
    """Check that the file of the token can be read by this user alone, and holds a token."""
    path = directory / "token"
    try:
        mode = path.stat().st_mode
        token = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        yield Finding("token", OK, "there is none yet; the first server makes one")
        return
    except OSError as error:
        yield Finding("token", BAD, f"{path} cannot be read: {error.strerror}", f"chmod 600 {path}")
        return
    if mode & _OTHERS:
        text = f"other users can read {path} ({stat.filemode(mode)})"
        fix = f"chmod 600 {path}; to have a new token, also `ullage down`, remove the file, `ullage up`"
        yield Finding("token", BAD, text, fix)
    elif not _TOKEN.fullmatch(token):
        fix = "`ullage down`, remove the file, `ullage up`: the server makes a new one"
        yield Finding("token", BAD, f"{path} holds no token: at least 16 visible ASCII characters are needed", fix)
    else:
        yield Finding("token", OK, f"{path} can be read by this user alone")


def check_disk(directory: Path) -> Iterator[Finding]:
    """Check the free space where the state of the server is kept."""
    place = _first_that_exists(directory)
    free = shutil.disk_usage(place).free
    text = f"{show_size(free)} free for {directory}"
    fix = "free disk space; ended sessions and their logs go with `ullage delete SESSION`"
    if free < _TOO_LITTLE_BYTES:
        yield Finding("disk", BAD, text, fix)
    else:
        yield Finding("disk", WARN if free < _LITTLE_BYTES else OK, text, fix if free < _LITTLE_BYTES else "")


def check_server() -> Iterator[Finding]:
    """Check that the named server, or the local one, answers, accepts this client, and is of this version."""
    there = configured() or nearby()
    if there is None:
        if (service := silent_service()) is not None:
            text, fix = f"the service of this machine does not answer in {service}", "`sudo systemctl start ullage`"
            yield Finding("server", BAD, text, fix)
        elif (home() / SERVER_FILE).exists():
            text = (
                f"no server runs, but an ended one left {home() / SERVER_FILE}: it was killed, or the machine restarted"
            )
            fix = f"`ullage up` starts one, with all that was stored; the end of the last one is in {home() / LOG_FILE}"
            yield Finding("server", WARN, text, fix)
        else:
            yield Finding("server", OK, "no local server runs; `ullage up` starts one")
        return
    try:
        require_answer(there)
    except UllageError as error:
        yield Finding("server", BAD, error.message, _fix_of_silence(there))
        return
    yield from _of_answering(there)


def _fix_of_silence(there: ServerEndpoint) -> str:
    if there.pid is None:
        return "check the address in ULLAGE_ENDPOINT, and that the server runs there"
    return f"`kill -CONT {there.pid}` continues a stopped one; else `kill -9 {there.pid}`, which loses nothing stored"


def _of_answering(there: ServerEndpoint) -> Iterator[Finding]:
    transport = Transport(lambda: there, 0.0)
    try:
        api = Api(transport)
        asked_at = time.time()
        overview = api.overview()
        middle = (asked_at + time.time()) / 2
        server = overview.server
        yield Finding("server", OK, f"the server at {there.url} answers; its store is {server.storage}")
        if server.version != __version__:
            fix = (
                "`ullage down`, then `ullage up`" if there.pid is not None else "install the same version on both sides"
            )
            yield Finding("version", WARN, f"the server is {server.version}, this command line {__version__}", fix)
        else:
            yield Finding("version", OK, f"the server and this command line are {__version__}")
        for text in there.warnings:
            yield Finding("settings", WARN, text)
        for text in dict.fromkeys(text for queue in overview.queues for text in queue.warnings):
            if text not in there.warnings:
                yield Finding("queues", WARN, text, "lower it with `ullage queues set`, or add nodes")
        yield from _clock(overview.at - middle)
    except InvalidRequest as error:
        yield Finding("server", BAD, error.message, "the token of a local server is in the file `token` of its home")
    except UllageError as error:
        yield Finding("server", BAD, error.message, _fix_of_silence(there))
    finally:
        transport.close()


def _clock(ahead_s: float) -> Iterator[Finding]:
    skew = abs(ahead_s)
    if skew < _SKEW_S:
        yield Finding("clock", OK, "the clocks of the server and of this machine agree")
        return
    text = f"the clock of the server is {skew:.0f} s {'ahead of' if ahead_s > 0 else 'behind'} that of this machine"
    verdict = BAD if skew >= _GREAT_SKEW_S else WARN
    yield Finding(
        "clock",
        verdict,
        text,
        "synchronise both clocks, for example with chrony, and restart the server: it keeps the clock of its start",
    )


def _first_that_exists(path: Path) -> Path:
    """Return the path, or the nearest directory above it that exists."""
    return next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
