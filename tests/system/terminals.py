"""The command line at a live server with terminals: programs in executors, and who is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.system.live_server import LiveServer, wait_until


class Shell:
    """Command lines at one server."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.environment = os.environ | {"ULLAGE_HOME": str(server.home)}

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

    def state(self, session: str, task: int = 1) -> str:
        with self.server.client() as client:
            return str(client.get(f"/v1/sessions/{session}/tasks/{task}").json()["state"])


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
