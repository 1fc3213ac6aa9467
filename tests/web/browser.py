"""A real browser, driven through chromedriver's HTTP interface (W3C WebDriver): no package is needed."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ports import free_port

PROGRAMS = ("chromium", "chromedriver")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
WAIT_S = 60.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)


def call(method: str, url: str, body: object = None, headers: dict[str, str] | None = None) -> Any:
    """The JSON answer to a JSON request."""
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, data, sent, method=method)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended with the block."""
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


class Browser:
    """One window."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, url: str) -> None:
        call("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str) -> Any:
        """Run a script in the page and return its result."""
        return call("POST", f"{self._session}/execute/sync", {"script": script, "args": []})["value"]

    def until(self, expression: str) -> Any:
        """The value of an expression as soon as it is true in the page."""
        deadline = time.monotonic() + WAIT_S
        while not (value := self.run(f"return {expression}")):
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {expression}\n{self.run('return document.body.innerText')}")
            time.sleep(0.05)
        return value

    def devtools(self, command: str, **parameters: object) -> None:
        call("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def picture(self) -> str:
        """Return what the window shows as a PNG in base64."""
        return str(call("GET", f"{self._session}/screenshot")["value"])

    def complaints(self) -> list[str]:
        """Return the errors and policy violations of the console since the last call."""
        entries = call("POST", f"{self._session}/se/log", {"type": "browser"})["value"]
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a new profile in `folder`."""
    port = free_port()
    driver = f"http://127.0.0.1:{port}"
    options = {"binary": shutil.which("chromium"), "args": [*_FLAGS, f"--user-data-dir={folder / 'profile'}"]}
    wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
    with running(["chromedriver", f"--port={port}"], folder / "chromedriver.log"):
        _await(f"{driver}/status")
        made = call("POST", f"{driver}/session", {"capabilities": wanted})
        session = f"{driver}/session/{made['value']['sessionId']}"
        try:
            yield Browser(session)
        finally:
            call("DELETE", session)


def _await(url: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            call("GET", url)
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
