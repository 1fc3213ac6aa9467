"""`ullage kube` in a process of its own, that a test can end and start again."""

from __future__ import annotations

import ast
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx2

from tests.kube.conftest import write_kubeconfig
from tests.system.live_server import wait_until

ROOT = Path(__file__).parents[2]
START_S = 500.0
"""What decides may have to be compiled first."""


class LiveFront:
    """Its three addresses are free ports; `settings` are lines of the section `[kube]`.

    The API is a URL of the server in this process, or a kubeconfig.
    """

    program: tuple[str, ...] = ("-m", "ullage.cli.main", "kube")

    def __init__(self, folder: Path, api: str | Path, settings: str = "", *options: str) -> None:
        self.log = folder / "kube.log"
        self._config = folder / "ullage.toml"
        ports = 'http_bind = "127.0.0.1:0"\nmetrics_bind = "127.0.0.1:0"\n'
        kubeconfig = api if isinstance(api, Path) else write_kubeconfig(folder, api)
        self._config.write_text(f'[kube]\nkubeconfig = "{kubeconfig}"\n{ports}{settings}')
        self._options = options
        self._begin = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> LiveFront:
        self._begin = self.log.stat().st_size if self.log.exists() else 0
        command = [sys.executable, "-X", "faulthandler", *self.program, f"--config={self._config}", *self._options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        self.wait_for("kube.serving")
        return self

    def log_text(self) -> str:
        """What this run has logged."""
        return self.log.read_bytes()[self._begin :].decode()

    def wait_for(self, event: str) -> None:
        def logged() -> bool:
            if event not in self.log_text():
                self._must_run()
                return False
            return True

        wait_until(logged, f"{event} is logged", START_S)

    def url(self, name: str) -> str:
        found = re.search(rf"event='kube.serving'.*\b{name}=('[^']*')", self.log_text())
        assert found, self.log_text()
        return str(ast.literal_eval(found[1]))

    def is_up(self) -> bool:
        """Whether it serves: it runs, and has said where."""
        return self.process is not None and self.process.poll() is None and "kube.serving" in self.log_text()

    def is_ready(self) -> bool:
        self._must_run()
        return httpx2.get(f"{self.url('metrics')}/readyz", timeout=60).status_code == 200

    def wait_ready(self) -> LiveFront:
        wait_until(self.is_ready, "it is ready", START_S)
        return self

    def end(self) -> int:
        """Send it SIGTERM; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Kill it where it runs. One that has ended by itself fails its test."""
        if self.process is None:
            return
        print(self.log_text())  # noqa: T201 - the log of a failed test
        if self.process.poll() not in (0, -signal.SIGKILL):
            try:
                self._must_run()
            finally:
                self.kill()

    def _must_run(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.log_text()}"


class BriefFront(LiveFront):
    """One whose terms are short: who comes after a kill waits seconds for the lease."""

    program = ("-m", "tests.kube.front_program")
