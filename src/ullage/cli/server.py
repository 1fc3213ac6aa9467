"""The server itself: `up`, `down`."""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.client.api import Api
from ullage.client.endpoint import Endpoint, given, home, local
from ullage.client.local import INSTALL, answers, missing_packages
from ullage.client.transport import Patience, Transport
from ullage.model.error import Unavailable

if TYPE_CHECKING:
    import subprocess

_START_S = 300.0
"""Seconds that a server may take to answer after its process was started, or after it last wrote to its log."""

_COMPILES = "the first start on a machine compiles what decides, for a few minutes"
_SLOW_S = 5.0
"""Seconds after which a start looks as if something were wrong, so that it is said what takes so long."""

_STOP_S = 60.0
"""Seconds that a server may take to end its executors and itself."""

_LOG_SHOWN = 2000
"""Bytes at the end of the server's log that are shown when it did not start."""


def configure_up(parser: argparse.ArgumentParser) -> None:
    """`ullage up`."""
    parser.add_argument("--foreground", action="store_true", help="stay in this terminal until Ctrl-C")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 7480, or a free one if that is taken)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings (default: ullage.toml in its home)")
    parser.add_argument("--gpus", metavar="N", help="use N cards, or these: a list of indexes or uuids")
    parser.set_defaults(act=_up)


def configure_down(parser: argparse.ArgumentParser) -> None:
    """`ullage down`."""
    parser.set_defaults(act=_down)


def _up(arguments: argparse.Namespace) -> int:
    there = local()
    if there is not None and answers(there):
        print(f"ullage is already running at {there.url}")
        return 0
    if missing := missing_packages():
        raise Unavailable(f"{', '.join(missing)} not installed: {INSTALL}", code="not-installed")
    if arguments.foreground:
        return _serve(arguments)
    there = _start(arguments)
    print(f"ullage is running at {there.url} (process {there.pid})")
    print(f"its token is in {home() / 'token'}")
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    from ullage.bootstrap.server import serve  # noqa: PLC0415  # the whole server, for this one verb

    return serve(home(), arguments.config, arguments.host, arguments.port, arguments.gpus)


def _start(arguments: argparse.Namespace) -> Endpoint:
    """Start the server as a process of its own, and wait until it answers."""
    import subprocess  # noqa: PLC0415  # needed only here

    path = home() / "server.log"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = _Log(path)
    with path.open("ab") as sink:
        child = subprocess.Popen(  # noqa: S603  # this interpreter, arguments checked by argparse
            _foreground_command(arguments),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,  # Ctrl-C in this terminal, or its end, is none of the server's business
        )
    try:
        there = _wait_until_it_answers(child, log)
    except BaseException:
        child.terminate()  # nobody else would
        child.wait()
        raise
    child.returncode = 0  # it lives on, and nobody waits for it
    return there


def _wait_until_it_answers(child: subprocess.Popen[bytes], log: _Log) -> Endpoint:
    """Where it answers. A start that takes long is explained, and shows what the server writes to its log."""
    patience, slow_at, unseen = Patience(_START_S), time.monotonic() + _SLOW_S, ""
    while True:
        there = local()
        if there is not None and answers(there):
            return there
        if news := log.news():
            patience.renew()
        unseen += news
        if time.monotonic() >= slow_at:
            if slow_at > 0:
                print(f"ullage: still starting: {_COMPILES}", file=sys.stderr)
            slow_at = 0.0
            print(unseen, end="", file=sys.stderr, flush=True)
            unseen = ""
        if child.poll() is not None:
            text = log.end() or f"exit code {child.returncode}"
            raise Unavailable(f"the server did not start: {text}", code="not-started")
        reason = (
            f"the server does not answer, and has written nothing for {_START_S:.0f} seconds; its log is {log.path}"
        )
        patience.wait(Unavailable(reason, code="not-started"))


class _Log:
    """What a server that is being started adds to its log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin = self._seen = path.stat().st_size if path.exists() else 0

    def news(self) -> str:
        """What was added since the last call."""
        text = self._read(self._seen)
        self._seen += len(text)
        return text.decode(errors="replace")

    def end(self) -> str:
        """The last of all that was added."""
        return self._read(max(self._begin, self.path.stat().st_size - _LOG_SHOWN)).decode(errors="replace").strip()

    def _read(self, begin: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read()


def _foreground_command(arguments: argparse.Namespace) -> list[str]:
    command = [sys.executable, "-m", "ullage.cli.main", "up", "--foreground"]
    for option in ("host", "port", "config", "gpus"):
        value = getattr(arguments, option)
        if value is not None:
            # The server does not run in this directory for ever: a relative path would mean another file.
            command.append(f"--{option}={value.resolve() if isinstance(value, Path) else value}")
    return command


def _down(_arguments: argparse.Namespace) -> int:
    there = given() or local()
    if there is None or not answers(there):
        print("no server is running")
        return 0
    watched = _watch(there.pid)
    Api(Transport(lambda: there)).shut_down()
    if watched is not None:
        _wait_for_end(watched)
    else:
        _wait_for_silence(there)
    print("the server has ended")
    return 0


def _watch(pid: int | None) -> int | None:
    """A descriptor that becomes readable when the process ends; None if it is not on this machine."""
    if pid is None:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _wait_for_end(watched: int) -> None:
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    ended = poll.poll(_STOP_S * 1000)
    os.close(watched)
    if not ended:
        raise _still_there()


def _wait_for_silence(there: Endpoint) -> None:
    patience = Patience(_STOP_S)
    while answers(there):
        patience.wait(_still_there())


def _still_there() -> Unavailable:
    return Unavailable(f"the server still runs after {_STOP_S:.0f} seconds; its log says more", code="not-ended")
