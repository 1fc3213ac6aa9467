"""Two real processes, of which the leader is stopped past its lease and goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kube import bodies
from tests.kube.api_server import ApiServer
from tests.kube.conftest import write_kubeconfig
from tests.system.live_server import wait_until

ROOT = Path(__file__).parents[2]


class Leader:
    def __init__(self, folder: Path, kubeconfig: Path, name: str) -> None:
        self.name, self._output = name, folder / name
        with self._output.open("wb") as output:
            command = [sys.executable, "-m", "tests.kube.leader_program", str(kubeconfig), name]
            self._process = subprocess.Popen(command, stdout=output, cwd=ROOT)

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def test_a_leader_that_was_stopped_writes_nothing_in_its_old_term(server: ApiServer, tmp_path: Path) -> None:
    server.do(lambda: server.rules.create("nodes", "", bodies.node("n1")))
    place = write_kubeconfig(tmp_path, server.url)
    first = Leader(tmp_path, place, "first")
    second = None
    try:
        wait_until(lambda: first.lines() == ["leads 1"], "the first leads")
        second = Leader(tmp_path, place, "second")
        wait_until(lambda: labels(server).get("writer") == "first", "the first writes")
        first.signal(signal.SIGSTOP)
        wait_until(lambda: second.lines() == ["leads 2"], "the second leads")
        wait_until(lambda: labels(server).get("writer") == "second", "the second writes")
        first.signal(signal.SIGCONT)
        wait_until(lambda: "over 1 not-leading" in first.lines(), "the first notices")
        told = [change for change in history(server) if change["epoch"] == "2"]
        assert told, "the second wrote"
        after = history(server)[history(server).index(told[0]) :]
        assert {change["writer"] for change in after} == {"second"}
    finally:
        first.close()
        if second is not None:
            second.close()


def labels(server: ApiServer) -> dict[str, str]:
    node: dict[str, Any] = server.do(lambda: server.rules.get(("nodes", "", "n1")))
    return node["metadata"].get("labels") or {}


def history(server: ApiServer) -> list[dict[str, str]]:
    """The labels of the node after each write."""
    changes = server.do(lambda: list(server.store.since(1)))
    return [change.told["metadata"]["labels"] for change in changes if change.key[0] == "nodes" and change.before]
