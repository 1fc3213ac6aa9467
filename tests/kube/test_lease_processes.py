"""Two real processes, of which the leader is stopped past its lease and goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kube import bodies
from tests.kube.api_server import ApiServer
from tests.kube.conftest import write_kubeconfig
from tests.kube.test_front import a_node, a_pod, put
from tests.system.live_server import wait_until

PODS = "/api/v1/namespaces/default/pods"
ROOT = Path(__file__).parents[2]


class Leader:
    """A program of this folder, which leads when it can."""

    def __init__(self, folder: Path, kubeconfig: Path, name: str, *more: str, program: str = "leader_program") -> None:
        self.name, self._output = name, folder / name
        with self._output.open("wb") as output:
            command = [sys.executable, "-m", f"tests.kube.{program}", str(kubeconfig), name, *more]
            # Reading compiled code takes the time of a term on a busy machine.
            environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, cwd=ROOT, env=environment)

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


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
        reported = [change for change in history(server) if change["epoch"] == "2"]
        assert reported, "the second wrote"
        after = history(server)[history(server).index(reported[0]) :]
        assert {change["writer"] for change in after} == {"second"}
    finally:
        first.close()
        if second is not None:
            second.close()


@pytest.mark.timeout(900)
def test_a_bind_of_a_leader_that_was_stopped_is_refused_though_its_card_was_given_to_another(
    server: ApiServer, tmp_path: Path
) -> None:
    put(server, "nodes", a_node("n1", 1))
    put(server, "pods", a_pod("early"), a_pod("late"))
    place = write_kubeconfig(tmp_path, server.url)
    first = Leader(tmp_path, place, "early", "hold", program="binder_program")
    second = None
    try:
        wait_until(lambda: first.lines() == ["leads 1", "sends"], "the first is about to bind", 500)
        first.signal(signal.SIGSTOP)
        first.go_on()
        second = Leader(tmp_path, place, "late", program="binder_program")
        wait_until(lambda: second.lines() == ["leads 2", "bound"], "the second has bound another pod", 500)
        first.signal(signal.SIGCONT)
        wait_until(lambda: ("POST", f"{PODS}/early/binding") in calls(server), "the bind arrives", 60)
        wait_until(lambda: len(first.lines()) == 3, "the first is reported", 60)
        assert first.lines()[2].startswith("refused")
        nodes = [server.do(lambda name=name: server.rules.get(("pods", "default", name))) for name in ("early", "late")]
        assert [pod["spec"].get("nodeName") for pod in nodes] == [None, "n1"]
    finally:
        first.close()
        if second is not None:
            second.close()


def calls(server: ApiServer) -> list[tuple[str, str]]:
    return [(method, path.partition("?")[0]) for method, path in server.asked]


def labels(server: ApiServer) -> dict[str, str]:
    node: dict[str, Any] = server.do(lambda: server.rules.get(("nodes", "", "n1")))
    return node["metadata"].get("labels") or {}


def history(server: ApiServer) -> list[dict[str, str]]:
    """The labels of the node after each write."""
    changes = server.do(lambda: list(server.store.since(1)))
    return [change.reported["metadata"]["labels"] for change in changes if change.key[0] == "nodes" and change.before]
