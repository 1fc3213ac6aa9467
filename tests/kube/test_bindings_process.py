"""`ullage kube` with bindings as a process: tokens, routes, and what is known after it was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import write_kubeconfig
from tests.kube.hosting import ALONE, RESOURCES, ROOT, a_deployment, a_machine, delete, pod_of
from tests.kube.live_front import BriefFront, LiveFront
from tests.kube.test_front import binding, cards_of, put
from tests.system.live_server import wait_until
from ullage.cli.bindings import parse_choice
from ullage.model.error import InvalidRequest

pytestmark = pytest.mark.timeout(900)
COMFY = f"{ROOT}/apps/comfyui"
BOUND = f"{COMFY}/compute-resources/bindings"
CHOICE = {"computeBinding": [{"nodeName": "a", "deviceId": "g1"}]}
SETTINGS = """
[kube.bindings]
scope = "on"
bind = "127.0.0.1:0"
user_prefix = "users:"
admin_groups = ["admins"]
quotas."*".cards = 5
"""


@pytest.fixture
def front(server: ApiServer, tmp_path: Path) -> Iterator[LiveFront]:
    for name in ("alice", "bob"):
        server.rules.tokens[name] = {"username": f"users:{name}", "groups": []}
    server.rules.tokens["root"] = {"username": "root", "groups": ["admins"]}
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    put(server, "deployments", a_deployment(), a_deployment(owner="bob"))
    front = BriefFront(tmp_path, server.url, SETTINGS)
    with closing(front):
        yield front.start().wait_ready()


def call(front: LiveFront, user: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {user}"} if user else {}
    content = None if body is None else json.dumps(body)
    answer = httpx2.request(method, front.url("bindings") + path, content=content, headers=headers, timeout=60)
    return answer.status_code, answer.json() if answer.status_code == 200 else answer.text


def ask(front: LiveFront, verb: str, **body: Any) -> Any:
    return httpx2.post(f"{front.url('extender')}/{verb}", content=json.dumps(body), timeout=60).json()


def test_what_was_bound_is_known_after_a_kill(server: ApiServer, front: LiveFront) -> None:
    (pod,) = put(server, "pods", pod_of("p"))
    assert call(front, "alice", "POST", f"{COMFY}/resume", CHOICE)[1]["code"] == 200
    assert ask(front, "filter", Pod=pod, NodeNames=["a"])["NodeNames"] == ["a"]
    assert ask(front, "bind", **binding(pod, "a"))["Error"] == ""
    assert cards_of(server, "p") == ["g1"]
    assert call(front, "alice", "DELETE", BOUND)[0] == 200
    front.kill()

    front.start().wait_ready()
    (device,) = call(front, "alice", "GET", RESOURCES)[1]["data"][0]["devices"]
    assert [row["state"] for row in device["bindings"]] == ["draining"]
    (device,) = call(front, "bob", "GET", RESOURCES)[1]["data"][0]["devices"]
    assert (device["state"], device["bindings"]) == ("draining", [])
    assert call(front, "bob", "POST", f"{COMFY}/resume", CHOICE)[1]["code"] == 422
    delete(server, "pods", "p", gracePeriodSeconds=0)
    wait_until(lambda: call(front, "bob", "POST", f"{COMFY}/resume", CHOICE)[1]["code"] == 200, "it is free", 60)
    assert front.end() == 0


def test_60_metrics_count_who_had_a_card_and_who_had_not(front: LiveFront) -> None:
    reported = [call(front, owner, "POST", f"{COMFY}/resume", CHOICE)[1]["code"] for owner in ("alice", "bob")]
    assert reported == [200, 422]
    page = httpx2.get(f"{front.url('metrics')}/metrics", timeout=60).text
    for line in (
        'ullage_kube_calls_total{code="ok",verb="bindings-resume"} 1.0',
        'ullage_kube_calls_total{code="computeBindingUnavailable",verb="bindings-resume"} 1.0',
        'ullage_kube_binding_rows{state="Bound"} 1.0',
    ):
        assert line in page


def test_the_command_line_binds_and_unbinds(front: LiveFront) -> None:
    def run(user: str, *words: str) -> subprocess.CompletedProcess[str]:
        own = {**os.environ, "ULLAGE_ENDPOINT": front.url("bindings"), "ULLAGE_TOKEN": user}
        command = [sys.executable, "-m", "ullage.cli.main", "bindings", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=own)

    assert "comfyui" not in run("alice").stdout
    chosen = "--compute-binding=a:g1"
    assert "g1" in run("alice", "check", "comfyui", chosen).stdout
    assert "no-such" in run("alice", "resume", "comfyui", "--compute-binding=a:no-such").stderr
    unnamed = run("alice", "resume", "comfyui")
    assert (unnamed.returncode, "needs a card: name one by --compute-binding" in unnamed.stderr) == (2, True)
    assert run("alice", "resume", "comfyui", chosen).returncode == 0
    assert "comfyui of alice" in run("root", "list").stdout
    assert "comfyui" not in run("bob", "list").stdout
    assert run("alice", "quotas").stdout.splitlines()[1].split() == ["alice", "-", "-", "cards", "1", "of", "5"]
    assert run("alice", "quotas", "--owner=bob").returncode == 2
    refused = run("bob", "resume", "comfyui", chosen)
    assert (refused.returncode, "exclusive-already-bound:g1" in refused.stderr) == (75, True)
    assert refused.stderr.count("computeBinding") == 1
    assert run("bob", "show", "comfyui", "--owner=alice").returncode == 2
    assert '"deviceId": "g1"' in run("root", "show", "comfyui", "--owner=alice", "-o", "json").stdout
    assert run("alice", "suspend", "comfyui").returncode == 0
    assert run("bob", "resume", "comfyui", "--compute-binding=a").returncode == 2
    assert run("bob", "resume", "comfyui", chosen).returncode == 0


@pytest.mark.parametrize(
    ("text", "memory"),
    [("n:g", None), ("n:g:2", 2 << 30), ("n:g:512Mi", 2**29), ("n:g:1Gi", 1 << 30), ("n:g:1.5", 3 << 29)],
)
def test_a_choice_is_node_card_and_memory(text: str, memory: int | None) -> None:
    assert parse_choice(text).get("memory") == memory


@pytest.mark.parametrize("text", ["", "n", "n:", ":g", "n:g:", "n:g:1:2", "n:g:much"])
def test_an_invalid_choice_is_reported(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--compute-binding"):
        parse_choice(text)


def test_the_caller_is_the_user_that_the_cluster_names(front: LiveFront) -> None:
    assert call(front, "", "GET", RESOURCES)[0] == 401
    assert call(front, "mallory", "GET", RESOURCES)[0] == 401
    assert call(front, "bob", "GET", f"{BOUND}?owner=alice")[0] == 403
    assert call(front, "root", "GET", f"{BOUND}?owner=alice")[1]["data"] == []
    switch = f"{RESOURCES}/nodes/a/devices/g1/support-type"
    assert call(front, "bob", "PUT", switch, {"supportType": "TimeSlice"})[0] == 403
    assert call(front, "root", "PUT", switch, {"supportType": "TimeSlice"})[1]["data"]["status"] == "switched"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ('scope = "sometimes"', "scope"),
        ('bind = "127.0.0.1:0"', "kube.bindings.scope"),
        ('scope = "on"\nbind = ":8081"', "kube.cert_file"),
        ('scope = "on"\nproxy_ca_file = "ca.pem"', "kube.cert_file"),
        ('scope = "on"\nallocations = "rows"', "kube.bindings.allocations"),
    ],
)
def test_a_wrong_setting_is_reported_and_nothing_starts(tmp_path: Path, settings: str, field: str) -> None:
    config = tmp_path / "ullage.toml"
    place = write_kubeconfig(tmp_path, "http://127.0.0.1:9")
    config.write_text(f'[kube]\nkubeconfig = "{place}"\n[kube.bindings]\n{settings}\n')
    command = [sys.executable, "-m", "ullage.cli.main", "kube", f"--config={config}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert field in done.stderr
    assert "Traceback" not in done.stderr
