"""A real server in a process of its own, that a test can kill and start again."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

import httpx2


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = 60.0) -> None:
    ends_at = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends_at, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.02)


def _have_terminal(terminal: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


class LiveServer:
    """Entered, it runs; left, it has run until then, or was killed by its test, and ends well.

    It decides in the plain tier, which starts in half the time. `compiled`: it changes over to the compiled tier. With
    `new_session` it has no terminal, with the descriptor of a `terminal` that one.
    """

    def __init__(
        self,
        home: Path,
        *options: str,
        compiled: bool = False,
        new_session: bool = False,
        terminal: int | None = None,
        **environment: str,
    ) -> None:
        self.home = home
        self.new_session = new_session or terminal is not None
        self.terminal = terminal
        self.options = options
        self.environment = environment if compiled else {"NUMBA_DISABLE_JIT": "1"} | environment
        self.python = sys.executable
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        print((self.home / "server.log").read_text())  # noqa: T201 - beside a test that failed
        self.stop()

    def start(self) -> None:
        self.home.mkdir(exist_ok=True)
        program = [self.python, "-X", "faulthandler", "-m", "ullage.cli.main", "up", "--foreground", "--port=0"]
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*program, *self.options],
                env=os.environ | {"ULLAGE_HOME": str(self.home)} | self.environment,
                stdout=log,
                stderr=log,
                start_new_session=self.new_session,
                preexec_fn=None if self.terminal is None else partial(_have_terminal, self.terminal),  # noqa: PLW1509  # one system call
            )
        try:
            wait_until(self._announced, "the server announces itself", 120)
        except AssertionError:
            self.kill()
            raise

    def _announced(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self._end()
        try:
            return json.loads((self.home / "server.json").read_text())["pid"] == self.process.pid
        except (OSError, ValueError):
            return False

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "server.json").read_text())["url"])

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=60)

    def kill(self) -> None:
        """Kill the server, which cleans up nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it in order, unless it is killed: one that has ended by itself, or ends badly, tells its log."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=60) in (0, -signal.SIGKILL), self._end()

    def _end(self) -> str:
        assert self.process is not None
        return f"the server ended with {self.process.poll()}:\n{(self.home / 'server.log').read_text()}"

    def leftovers(self) -> list[str]:
        """Command lines of processes that were started for executors of this server and still live."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if str(self.home).encode() in environment and b"ULLAGE_EXECUTOR=" in environment and state != "Z":
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found
