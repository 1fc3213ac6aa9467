"""A server process with declared cards for tests of its page, and work that fills it."""

from __future__ import annotations

import base64
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.ports import free_port
from tests.web.browser import WAIT_S, Browser, call, running

SERVE = (
    "import os; os.environ['NUMBA_DISABLE_JIT'] = '1';"  # as `LiveServer`
    "import sys; from pathlib import Path; from ullage.bootstrap.server import serve;"
    "sys.exit(serve(Path(sys.argv[1]), None, None, int(sys.argv[2]), sys.argv[3]))"
)


class Server:
    """A server process at one address that can be stopped and started again."""

    def __init__(self, folder: Path, cards: int = 4, settings: str = "") -> None:
        self._folder, self._cards = folder, cards
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / "ullage.toml").write_text(settings)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    @contextmanager
    def up(self) -> Iterator[None]:
        command = [sys.executable, "-c", SERVE, str(self.home), str(self.port), str(self._cards)]
        with running(command, self._folder / "server.log"):
            deadline = time.monotonic() + WAIT_S
            while not (self.home / "server.json").exists():
                assert time.monotonic() < deadline, (self._folder / "server.log").read_text()
                time.sleep(0.05)
            yield

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def token_of(self, user: str, role: str = "user") -> str:
        """Return a new token of a user."""
        return str(self.ask("POST", "tokens", {"user": user, "role": role})["token"])

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return call(method, f"{self.url}/v1/{path}", body, {"Authorization": f"Bearer {self.token}"})

    def create_session(self, name: str, resreq: str = "cpu=1", owner: str = "team", **more: object) -> None:
        body = {"application": "function", "id": name, "owner": owner, "resreq": resreq}
        self.ask("POST", "sessions", {**body, **more})

    def run_programs(self, session: str, script: str, count: int = 1, resreq: str = "cpu=0.1", **more: object) -> None:
        """Open a session of the application `command` with tasks that run a script of the shell."""
        self.create_session(session, resreq, **{"application": "command", **more})
        program = {"argv": ["/bin/sh", "-c", script], "cwd": str(self._folder), "env": dict(os.environ), "stdin": None}
        packed = base64.b64encode(msgspec.msgpack.encode(program)).decode()
        self.ask("POST", f"sessions/{session}/tasks", {"inputs": [packed] * count, "key": session})


def fill(server: Server) -> None:
    """Queues of two teams, sessions that run, share a card, wait or have ended, and output of programs."""
    server.ask("PUT", "queues/research", {"weight": 3, "guarantee": "gpu=2"})
    server.ask("PUT", "queues/vision", {"weight": 2, "parent": "research"})
    server.ask("PUT", "queues/language", {"weight": 1, "parent": "research"})
    server.ask("PUT", "queues/serving", {"weight": 1, "limit": "gpu=2"})
    steps = "for step in $(seq 1 2000); do echo step $step loss 0.$((9999 - step)); sleep 1; done"
    server.run_programs("train-vit", steps, 2, "cpu=0.2,gpu=1", queue="vision", owner="anna", priority=5)
    server.run_programs("chat-7b", steps, 1, "cpu=0.1,gpu=0.5", queue="serving", owner="cleo")
    server.run_programs("embed", steps, 1, "cpu=0.1,gpu=0.25", queue="serving", owner="bert")
    server.run_programs("eval-mmlu", "echo ok; echo careful >&2", 60, "cpu=0.1", queue="language", owner="bert")
    server.run_programs("broken", "echo no such data >&2; exit 3", 3, "cpu=0.1", queue="language", owner="dora")
    server.run_programs("finetune-13b", steps, 4, "cpu=0.2,gpu=2", queue="language", owner="bert", priority=2)
    server.create_session("huge", "gpu=8", owner="dora", min_instances=1)


def enter(window: Browser, server: Server, hash_: str = "", token: str = "") -> None:
    """Open the page by its link, with the token of the server or another one, and then the view of the address."""
    window.open("about:blank")
    window.complaints()
    window.open(f"{server.url}/enter#{token or server.token}")
    window.until("document.body.dataset.link === 'live'")
    if hash_:
        go(window, hash_)


def go(window: Browser, hash_: str) -> None:
    """Open a view as if its address was typed."""
    window.run(f"location.hash = {hash_!r}")
