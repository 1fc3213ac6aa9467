"""`ullage up` and `ullage down`."""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ullage.cli.exits import Exit, caution, complain
from ullage.cli.loading import loading
from ullage.client.api import Api
from ullage.client.endpoint import LOG_FILE, ServerEndpoint, configured, home, local, make_home, silent_service
from ullage.client.local import INSTALL, answers, missing_packages, require_answer
from ullage.client.patience import NotConnected, Patience
from ullage.client.silence import UNANSWERED_S
from ullage.client.spec import working_directory
from ullage.client.transport import Transport
from ullage.model.error import Conflict, Unavailable

if TYPE_CHECKING:
    import subprocess

_START_S = 300.0
"""Seconds within which a server must answer after its start, or after its last line of log."""

_LOOK_S = 0.02
"""Seconds between two checks of a server that starts."""

_SLOW_S = 10.0
"""Seconds after which a start is slow, so that the path of the log is printed."""

_STOP_S = 60.0
"""Seconds within which a server must end its executors and itself."""

_LOGGED = "timestamp="
"""The prefix of log lines; messages for users lack it."""

_LOG_SHOWN = 2000
"""The most bytes of the server's log that are shown after a failed start."""


def configure_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--foreground", action="store_true", help="stay in this terminal until Ctrl-C")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 7480, or a free one if that is taken)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings (default: ullage.toml in its home)")
    parser.add_argument("--gpus", metavar="N", help="use N cards, or these: a list of indexes or uuids")
    parser.add_argument(
        "--show-settings", action="store_true", help="print the settings it would have, and their sources"
    )
    parser.set_defaults(act=_up)


def configure_down(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(act=_down)


def _up(arguments: argparse.Namespace) -> int:
    if arguments.show_settings:
        from ullage.cli.settings import show_settings  # noqa: PLC0415  # needed only here

        return show_settings(arguments)
    there = local()
    if there is not None and answers(there):
        return _already_running(there, arguments)
    if missing := missing_packages():
        raise Unavailable(f"{', '.join(missing)} not installed: {INSTALL}", code="not-installed")
    if arguments.foreground:
        return _serve(arguments)
    make_home(home())
    with _first_to_start():
        if (other := local()) is not None and answers(other):  # another command was faster
            return _already_running(other, arguments)
        there = _start(arguments)
        caution(there.warnings)
    print(f"ullage is running at {there.url} (process {there.pid})")
    print(f"its token is in {home() / 'token'}; `ullage page` prints the link of its live page")
    return 0


def _already_running(there: ServerEndpoint, arguments: argparse.Namespace) -> int:
    wished = _options(arguments)
    differing = [
        f"{option} is {present or _UNSET[option]}, not {value}"
        for option, value in wished.items()
        if not _same(option, present := _present(there, option), value)
    ]
    if arguments.foreground:
        differing.append("it is not in this terminal")
    if differing:
        again = " ".join(["ullage up", *_words(wished), *(["--foreground"] if arguments.foreground else [])])
        raise Conflict(
            f"a server is running at {there.url}: {'; '.join(differing)}; `ullage down` ends it, then `{again}`",
            code="already-running",
        )
    print(f"ullage is already running at {there.url}")
    return 0


_UNSET = {"gpus": "what detection finds", "config": "no file"}
"""What an option of `ullage up` that is not in force stands for."""


def _present(there: ServerEndpoint, option: str) -> str:
    """Return the value that an option of `ullage up` has at a running server; empty if it has none."""
    address = urlsplit(there.url)
    of_address = {"port": str(address.port), "host": address.hostname or ""}
    return of_address.get(option, there.options.get(option, ""))


def _same(option: str, present: str, wished: str) -> bool:
    """Return whether two values of an option of `ullage up` mean the same."""
    if option == "port":
        return int(wished) in (0, int(present))
    if option == "host":
        return present == wished or present in _addresses(wished)
    if option == "config":
        return bool(present) and os.path.realpath(present) == os.path.realpath(wished)
    return _cards(present) == _cards(wished)


def _addresses(host: str) -> set[str]:
    """Return the addresses of a name; empty if it has none."""
    try:
        return {str(address) for *_, (address, *_) in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return set()


def _cards(text: str) -> list[str]:
    """Return a count or a list of cards without what is only a matter of writing."""
    words = [word.strip() for word in text.split(",")]
    return [str(int(word)) if word.isdecimal() else word for word in words]


@contextmanager
def _first_to_start() -> Iterator[None]:
    """Hold the lock that lets one command start a server of this home."""
    directory = os.open(home(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some file systems cannot lock directories; the lock of the store remains
            fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _serve(arguments: argparse.Namespace) -> int:
    with loading():
        from ullage.bootstrap.server import serve  # noqa: PLC0415  # the whole server, for this one verb
    return serve(home(), arguments.config, arguments.host, arguments.port, gpus=arguments.gpus)


def _start(arguments: argparse.Namespace) -> ServerEndpoint:
    """Start the server as a separate process, and wait until it answers."""
    import subprocess  # noqa: PLC0415  # needed only here

    path = home() / LOG_FILE
    log = _Log(path)
    with path.open("ab") as sink:
        child = subprocess.Popen(  # noqa: S603  # this interpreter, arguments checked by argparse
            _foreground_command(arguments),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,  # Ctrl-C in this terminal, or its end, must not reach the server
        )
    try:
        there = _wait_until_it_answers(child, log)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    child.returncode = 0  # keeps Popen from warning: the server outlives this process
    return there


def _wait_until_it_answers(child: subprocess.Popen[bytes], log: _Log) -> ServerEndpoint:
    """Return the endpoint of the started server.

    Raises:
        Exit: the server ended; its message is printed, and its exit code is that of this command.
        Unavailable: the server was killed, or does not answer in time.

    """
    gives_up_at, slow_at = time.monotonic() + _START_S, time.monotonic() + _SLOW_S
    while True:
        there = local()
        with suppress(Unavailable):  # it listens already, but does not answer in time
            if there is not None and answers(there):
                return there
        if log.grows():
            gives_up_at = time.monotonic() + _START_S
        if time.monotonic() >= slow_at:
            print(f"ullage: still starting; its log is {log.path}", file=sys.stderr, flush=True)
            slow_at = math.inf
        if child.poll() is not None:
            text = log.message()
            if child.returncode > 0 and text:
                print(text, file=sys.stderr)
                raise Exit(child.returncode)
            ended = f"signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"
            reason = f"the server did not start ({ended}); its log is {log.path}"
            raise Unavailable("\n".join(filter(None, (reason, text))), code="not-started")
        if time.monotonic() >= gives_up_at:
            silence = f"has written nothing for {_START_S:.0f} seconds"
            raise Unavailable(f"the server does not answer, and {silence}; its log is {log.path}", code="not-started")
        time.sleep(_LOOK_S)


class _Log:
    """The part of a server's log that its start adds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin = self._seen = path.stat().st_size if path.exists() else 0

    def grows(self) -> bool:
        """Return whether something was added since the last call."""
        before, self._seen = self._seen, self.path.stat().st_size
        return self._seen > before

    def message(self) -> str:
        """Return the last added lines that are messages for users; if there are none, the last lines."""
        lines = self._end().splitlines()
        return "\n".join([line for line in lines if not line.startswith(_LOGGED)] or lines)

    def _end(self) -> str:
        begin = max(self._begin, self.path.stat().st_size - _LOG_SHOWN)
        added = self._read(begin)
        if begin > self._begin:  # it may begin within a line
            added = added.partition(b"\n")[2] or added
        return added.decode(errors="replace").strip()

    def _read(self, begin: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read()


def _foreground_command(arguments: argparse.Namespace) -> list[str]:
    return [sys.executable, "-m", "ullage.cli.main", "up", "--foreground", *_words(_options(arguments))]


def _words(options: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of `ullage up` that are given, as text."""
    found = {}
    for option in ("host", "port", "config", "gpus"):
        value = getattr(arguments, option)
        if isinstance(value, Path) and not value.is_absolute():
            # The server changes its directory, so a relative path would name another file.
            value = Path(working_directory()) / value
        if value is not None:
            found[option] = str(value)
    return found


def _down(_arguments: argparse.Namespace) -> int:
    there = configured() or local()
    if there is None or not _may_end(there):
        if silent_service() is None:
            print("no server is running")
        else:
            print("no server of yours is running; `sudo systemctl stop ullage` ends the service of this machine")
        return 0
    watched = _watch(there.pid)
    Api(Transport(lambda: there)).shut_down()
    if watched is not None:
        _wait_for_end(watched)
    else:
        _wait_for_silence(there)
    print("the server has ended")
    return 0


def _may_end(there: ServerEndpoint) -> bool:
    """Return whether a server answers.

    Raises:
        UllageError: a server runs that does not answer, or refuses this client.

    """
    try:
        require_answer(there)
    except NotConnected:
        if there.pid is None:
            return False
        raise _no_answer(there) from None
    except Unavailable:
        raise _no_answer(there) from None
    return True


def _no_answer(there: ServerEndpoint) -> Unavailable:
    """Return the error for a server that does not accept the request to end."""
    if there.pid is None:
        return Unavailable(f"the server at {there.url} does not answer", code="not-ended")
    text = f"the server at {there.url} (process {there.pid}) does not answer"
    fix = (
        f"`kill -CONT {there.pid}` continues a stopped one; `kill -9 {there.pid}` ends it without loss of stored state"
    )
    return Unavailable(f"{text}: {fix}", code="not-ended")


def _watch(pid: int | None) -> int | None:
    """Return a descriptor that becomes readable when the process ends; None if it is not on this machine."""
    if pid is None:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _wait_for_end(watched: int) -> None:
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    ended = poll.poll(UNANSWERED_S * 1000)
    if not ended:
        complain(f"the server is ending its executors; waiting up to {_STOP_S:.0f} s")
        ended = poll.poll(_STOP_S * 1000)
    os.close(watched)
    if not ended:
        raise _still_running()


def _wait_for_silence(there: ServerEndpoint) -> None:
    patience = Patience(_STOP_S)
    while answers(there):
        patience.wait(_still_running())


def _still_running() -> Unavailable:
    return Unavailable(f"the server still runs after {_STOP_S:.0f} seconds; see its log", code="not-ended")
