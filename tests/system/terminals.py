"""The command line at a live server with terminals: programs in executors, and who is left of them."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

import httpx2

from tests.system.live_server import LiveServer, wait_until


class Shell:
    """Command lines at one server."""

    def __init__(self, server: LiveServer, **environment: str) -> None:
        self.server = server
        self.environment = os.environ | {"ULLAGE_HOME": str(server.home)} | environment

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "ullage.cli.main", *words]

    def run(self, *words: str, given: bytes = b"", cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.argv(*words), env=self.environment, input=given, capture_output=True, check=False, cwd=cwd, timeout=120
        )

    @contextmanager
    def start(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command line, and kill it at the end if it still runs."""
        pipe = subprocess.PIPE
        with subprocess.Popen(self.argv(*words), env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            try:
                yield process
            finally:
                process.kill()

    def submitted(self, *words: str, cwd: Path | None = None) -> str:
        """Submit a program. Return its session once it runs."""
        done = self.run("submit", "--cpus=0.1", "--mem=64m", *words, cwd=cwd)
        assert done.returncode == 0, done.stderr
        session = done.stdout.decode().strip()
        wait_until(lambda: self.state(session) == "running", f"{session} runs")
        return session

    def knows(self, session: str) -> bool:
        return self._task(session, 1).is_success

    def state(self, session: str, task: int = 1) -> str:
        return str(self._task(session, task).json()["state"])

    def _task(self, session: str, task: int) -> httpx2.Response:
        with httpx2.Client(verify=False, timeout=60) as client:  # some servers speak TLS
            headers = {"Authorization": f"Bearer {self.server.token}"}
            return client.get(f"{self.server.url}/v1/sessions/{session}/tasks/{task}", headers=headers)


def read_until(stream: IO[bytes] | None, text: bytes) -> bytes:
    """Read until a text has come."""
    assert stream is not None
    found = b""
    while text not in found:
        piece = os.read(stream.fileno(), 65536)
        assert piece, f"it ended without {text!r}: {found!r}"
        found += piece
    return found


def with_word(word: str) -> list[int]:
    """Return the living processes that have this word in their command line, this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if word.encode() in words and state != "Z":
            found.append(int(entry.name))
    return found


def host_of(program: int) -> int:
    """Return the host of a program, which is its parent."""
    stat = Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()
    return int(stat[1])


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


class Screen:
    """A terminal on which one command line runs, as a person has it."""

    def __init__(self, shell: Shell, *words: str, rows: int = 33, columns: int = 99) -> None:
        self.end, inner = os.openpty()
        termios.tcsetwinsize(inner, (rows, columns))
        self.before = termios.tcgetattr(inner)
        self.shown = b""

        def own() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            shell.argv(*words),
            env=shell.environment | {"TERM": "dumb"},
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=own,  # noqa: PLW1509  # it is one system call
        )
        self._inner = inner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.end)
        os.close(self._inner)

    def type(self, keys: bytes) -> None:
        os.write(self.end, keys)

    def until(self, text: bytes) -> bytes:
        """Return what is shown from now on up to a text."""
        while text not in self.shown:
            ready, _, _ = select.select([self.end], [], [], 60)
            assert ready, f"{text!r} is not shown: {self.shown!r}"
            self.shown += os.read(self.end, 65536)
        found, _, self.shown = self.shown.partition(text)
        return found + text

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.end, (rows, columns))

    def close(self) -> int:
        """Wait for the command line, and read what it shows. Return its exit code."""
        while self.process.poll() is None:
            ready, _, _ = select.select([self.end], [], [], 0.02)
            if ready:
                self.shown += os.read(self.end, 65536)
        while select.select([self.end], [], [], 0)[0]:
            self.shown += os.read(self.end, 65536)
        return self.process.returncode

    @property
    def is_as_before(self) -> bool:
        """Whether the terminal has the modes that it had before the command line."""
        return termios.tcgetattr(self._inner) == self.before
