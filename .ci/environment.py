"""Make a virtual environment with exactly what a lock names, and this checkout in it.

    python3 .ci/environment.py .venv requirements.lock

On a terminal a bar shows how far it is. Whatever fails is shown whole. It needs the standard library only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_NEEDED = (3, 11)
_AT_ONCE = 4
_TURN_S = 0.2
_BAR, _WIDTH = 30, 100
_BASE = ("pip", "setuptools")
"""Packages of every virtual environment."""


class _Bar:
    """One line with a bar that is written again as work goes on; on what is no terminal, the first text and the last.

    Each package counts twice: when it is fetched, and when it is installed.
    """

    def __init__(self, head: str, place: Path, packages: int) -> None:
        self.text, self.fetched = "", 0
        self._head, self._place, self._packages = head, place, packages
        self._began, self._ended = time.monotonic(), threading.Event()
        self._shows = sys.stderr.isatty()
        if self._shows:
            threading.Thread(target=self._turn, daemon=True).start()
        else:
            sys.stderr.write(f"{head}\n")

    def end(self, text: str) -> None:
        self._ended.set()
        line = f"{self._head}: {text} after {time.monotonic() - self._began:.0f} s"
        sys.stderr.write(f"\r{line:<{_WIDTH}}\n" if self._shows else f"{line}\n")

    def _turn(self) -> None:
        while not self._ended.wait(_TURN_S):
            sys.stderr.write(f"\r{self._line()[:_WIDTH]:<{_WIDTH}}")
            sys.stderr.flush()

    def _line(self) -> str:
        found = {path.name.partition("-")[0] for path in self._place.glob("lib/python*/site-packages/*.dist-info")}
        done = min(self.fetched, self._packages) + min(len(found.difference(_BASE)), self._packages)
        full = _BAR * done // (2 * self._packages)
        seconds = time.monotonic() - self._began
        return f"{self._head} [{'#' * full:.<{_BAR}}] {self.text} ({seconds:.0f} s)"


def main(place: Path, lock: Path) -> int:
    """Make the environment; return the exit code."""
    if sys.version_info < _NEEDED:
        sys.stderr.write("Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ...\n")
        return 1
    packages = re.split(r"^(?=[\w.-]+==)", lock.read_text(), flags=re.MULTILINE)[1:]
    bar = _Bar(f"Setting up {place}", place, len(packages))
    with tempfile.TemporaryDirectory() as folder:
        parts = _write_parts(packages, Path(folder))
        # The lock is complete and in parts, so nothing is resolved; what is imported compiles itself.
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--no-deps", "--no-compile", "--no-input"]
        quiet = ["--disable-pip-version-check", "--progress-bar=off"]
        steps = (
            ("python", [[sys.executable, "-m", "venv", str(place)]]),
            ("packages", [[*pip, *quiet, "--require-hashes", "-r", str(part)] for part in parts]),
            ("this checkout", [[*pip, *quiet, "--no-build-isolation", "-e", "."]]),
        )
        for name, commands in steps:
            bar.text = name
            with ThreadPoolExecutor(len(commands)) as threads:
                ends = list(threads.map(lambda command: _run(command, bar), commands))
            failed = next(((code, output) for code, output in ends if code), None)
            if failed is not None:
                return _fail(bar, name, *failed)
    bar.end("done")
    return 0


def _write_parts(packages: list[str], folder: Path) -> list[Path]:
    """Write locks that are installed at the same time: unpacking is what takes the longest, and it uses one core."""
    count = min(_AT_ONCE, os.cpu_count() or 1)
    parts = [folder / f"part-{number}.txt" for number in range(count)]
    for number, part in enumerate(parts):
        part.write_text("".join(packages[number::count]))
    return parts


def _run(command: list[str], bar: _Bar) -> tuple[int, str]:
    output = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as work:  # noqa: S603 - the commands above
        assert work.stdout is not None
        for text in work.stdout:
            output.append(text)
            if text.startswith("Collecting "):
                bar.fetched += 1
                bar.text = text.split()[1].partition("==")[0]
            elif text.startswith("Installing collected"):
                bar.text = "installing"
    return work.returncode, "".join(output)


def _fail(bar: _Bar, name: str, code: int, output: str) -> int:
    bar.end(f"{name} failed")
    sys.stderr.write(output)
    if "ensurepip" in output:
        sys.stderr.write("on Debian or Ubuntu install python3-venv\n")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
