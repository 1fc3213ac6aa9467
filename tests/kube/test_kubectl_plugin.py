"""`kubectl ullage`: through the API server, as its users call it; and what it says where there is no front."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import uvicorn

from tests.kube.api_server import TOKEN, ApiServer, Canned
from tests.kube.control_plane import kubeconfig
from tests.kube.hami_node import hami_node
from tests.kube.hosting import a_binding, a_machine
from tests.kube.listening import listening
from tests.kube.test_front import Running, a_node, a_pod, put, running
from tests.kube.test_queue_admission import waiting
from tests.ports import free_port
from ullage.bootstrap.cluster_page.routes import cluster_page
from ullage.bootstrap.cluster_page.settings import ClusterSettings
from ullage.cli.kubectl import main
from ullage.kube import shared_page
from ullage.kube.bindings.terms import BindingScope, BindingTerms
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.mirror.cards import RegisteredCards
from ullage.model.queue import parse_queue

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

Call = Callable[..., Awaitable[tuple[int, str, str]]]
LABELS = {"app.kubernetes.io/name": "ullage", "app.kubernetes.io/component": "extender"}
YAML = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: train, namespace: default, creationTimestamp: 2026-01-31T12:00:00Z}
spec:
  template:
    spec:
      containers:
        - name: c
          image: x
          resources: {limits: {nvidia.com/gpu: "1", nvidia.com/gpumem: "20000"}}
---
apiVersion: v1
kind: Service
metadata: {name: train}
spec: {ports: [{port: 80}]}
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each overview is written when it is asked for, on a busy machine too."""
    monkeypatch.setattr(shared_page, "CHEAP_S", float("inf"))


def a_service(name: str = "ullage", namespace: str = "gpus", port: str = "page") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
        "spec": {"ports": [{"name": "extender", "port": 8080}, {"name": port, "port": 9396}]},
    }


@pytest.fixture
def ullage(server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs a command line: its exit code, its output and its complaints."""
    put(server, "namespaces", {"metadata": {"name": "gpus"}})
    config = tmp_path / "kubeconfig"
    found = kubeconfig(server.url, {}, {"token": TOKEN})
    found["contexts"][0]["context"]["namespace"] = "team"
    config.write_text(json.dumps(found))

    async def call(*words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, [*words, f"--kubeconfig={config}"])
        read = capsys.readouterr()
        return code, read.out, read.err

    return call


@asynccontextmanager
async def front(server: ApiServer, api: HttpKubeApi, **options: Any) -> AsyncIterator[tuple[Running, str]]:
    """A front whose page is behind a Service; and the URL of the page."""
    async with running(server, api, readers=[RegisteredCards()], **options) as up:
        app = cluster_page(up.front, ClusterSettings(options.get("queues", ())))
        port = free_port()
        serving = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
        task = asyncio.create_task(serving.serve(sockets=[listening(port)]))
        url = f"http://127.0.0.1:{port}"
        put(server, "services", a_service())
        server.proxied["gpus/ullage:page"] = url
        try:
            yield up, url
        finally:
            serving.should_exit = True
            await task


async def test_cards_and_top_show_who_has_what(server: ApiServer, api: HttpKubeApi, ullage: Call):
    put(server, "nodes", hami_node("a", "GPU-a-0", mib=16_000), a_node("b", 1))
    part, huge = a_pod("part"), a_pod("huge", 9)
    part["spec"]["containers"][0]["resources"]["limits"] |= {"nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "25"}
    pod, other = put(server, "pods", part, huge)
    async with front(server, api) as (up, url):
        assert await up.place(pod, ["a"]) == "!a"
        await up.ask("filter", Pod=other, NodeNames=["a", "b"])
        code, out, err = await ullage("cards")
        assert (code, err) == (0, "")
        title, first, second = out.splitlines()
        assert title.split() == ["NODE", "GPU", "MODEL", "FREE", "VRAM", "TFLOPS", "ZONE", "HEALTHY", "HELD", "BY"]
        assert first.split()[:2] == ["a", "0"]
        assert "default/part 0.25" in first
        assert second.split()[:2] == ["b", "0"]
        assert [line.split()[0] for line in (await ullage("cards", "b"))[1].splitlines()] == ["NODE", "b"]
        assert "GPU-a-0" in (await ullage("cards", "a", "-o", "wide"))[1]
        assert (await ullage("cards", "--sort=-node", "-o", "name"))[1].split() == ["b/0", "a/0"]
        assert (await ullage("cards", "--state", "partial", "-o", "node", "--no-header"))[1] == "a\n"
        assert await ullage("cards", "--me") == (2, "", ANY)
        code, out, err = await ullage("cards", "c")
        assert (code, out) == (2, "")
        assert "node c" in err
        code, out, err = await ullage("top")
        assert code == 0
        assert "default/part 0.25" in out
        assert "1 waiting pod" in out
        assert "asks for 9 whole cards" in " ".join(out.replace("│", " ").split())
        code, out, _ = await ullage("top", "-o", "json")
        assert [pod["pod"] for pod in json.loads(out)["waiting"]] == ["huge"]
        assert (await ullage("cards", f"--front={url}"))[0] == 0, "without the API server"
        assert (await ullage("cards", "--front=gpus/ullage"))[0] == 0, "by its name"


async def test_a_plan_says_where_a_pod_would_go_or_why_nowhere(
    server: ApiServer, api: HttpKubeApi, ullage: Call, tmp_path: Path
):
    put(server, "nodes", hami_node("a", "GPU-a-0", mib=16_000), hami_node("b", "GPU-b-0", mib=40_000))
    file = tmp_path / "train.yaml"
    file.write_text(YAML)
    async with front(server, api) as (up, _):
        code, out, err = await ullage("plan", "-f", str(file))
        assert (code, err) == (0, "")
        assert out.startswith("fits: node b ")
        assert "GPU-b-0" in out
        (whole,) = put(server, "pods", a_pod("whole"))
        assert await up.place(whole, ["b"]) == "!b"
        code, out, _ = await ullage("plan", "-f", str(file))
        assert code == 1
        first, hint, *rest = out.splitlines()
        assert first.startswith("does not fit: insufficient-vram: asks for 20000Mi on one card")
        assert "nvidia.com/gpumem: 16000 would fit on 1 node now" in first
        assert hint == "freed cards could help; `kubectl ullage cards` shows their holders"
        assert rest == []
        assert (await ullage("plan", "-r", "gpu=1,vram=4g"))[1].startswith("fits: node a ")
        assert (await ullage("plan", "-r", "gpu=1,vram=400g"))[0] == 1
        for words in ((), ("-r", "gpu=1", "-f", str(file)), ("-r", "gpu=many"), ("-f", str(tmp_path / "none"))):
            assert (await ullage("plan", *words))[0] == 2, words
        file.write_text(YAML.partition("---")[2])
        code, _, err = await ullage("plan", "-f", str(file))
        assert code == 2
        assert "it has 0 pods" in err


async def test_queues_and_bindings_are_listed(server: ApiServer, api: HttpKubeApi, ullage: Call):
    put(server, "nodes", a_machine("n1", {"GPU-1": "1"}))
    put(server, "gpubindings", a_binding("b", "GPU-1", "comfyui", "alice", "default", memory=4096))
    put(server, "pods", waiting("p", gpus=9, queue="research"))
    queues = (parse_queue("research", "root", 2, None, None),)
    async with front(server, api, queues=queues, bindings=BindingTerms(BindingScope.LABELLED)) as (up, _):
        code, out, err = await ullage("queues")
        assert (code, err) == (0, "")
        title, row = out.splitlines()
        assert title.split()[:3] == ["NAME", "WEIGHT", "SHARE"]
        assert {"PODS", "PENDING", "OLDEST"} <= set(title.split())
        assert row.split()[:3] == ["research", "2", "0.0%"]
        assert (await ullage("queues", "-o", "parent,pods", "--no-header"))[1].split() == ["root", "1"]
        assert (await ullage("queues", "-o", "name", "--sort=-pending"))[1] == "research\n"
        code, out, err = await ullage("queues", "--sort", "pendign")
        assert (code, out) == (2, "")
        assert "did you mean pending?" in err
        code, out, err = await ullage("bindings")
        assert (code, err) == (0, "")
        assert [line.split()[:2] for line in out.splitlines()] == [["NODE", "CARD"], ["n1", "GPU-1"]]
        assert "comfyui of alice" in out
        assert (await ullage("bindings", "-o", "csv=node,card", "--no-header"))[1] == "n1,GPU-1\n"
        assert up.front.candidate.epoch is not None


async def test_why_reads_the_pod_and_needs_no_front(server: ApiServer, ullage: Call):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    pod = a_pod("train")
    pod["metadata"]["namespace"] = "team"
    put(server, "namespaces", {"metadata": {"name": "team"}})
    put(server, "pods", pod)

    def says(pod: dict[str, Any]) -> dict[str, Any]:
        return pod | {"status": {"phase": "Pending", "conditions": [condition]}}

    server.do(lambda: server.rules.change(("pods", "team", "train"), says, "status"))
    for words in (("train",), ("pod/train",), ("team/train",), ("train", "-n", "team")):
        assert (await ullage("why", *words))[1] == "team/train: Unschedulable: 0/1 nodes\n", words
    assert (await ullage("why", "train", "-n", "default"))[0] == 2
    code, out, _ = await ullage("why", "train", "-o", "json")
    assert (code, json.loads(out)["pod"]) == (0, "team/train")


async def test_without_a_front_it_says_what_is_missing(server: ApiServer, ullage: Call):
    code, _, err = await ullage("cards")
    assert code == 69
    assert "install the chart with page.enabled=true, or name it by --front" in err
    put(server, "services", a_service(port="bindings"))
    assert (await ullage("cards"))[0] == 69, "a Service of an Ullage without a page"
    put(server, "services", a_service("one"))
    code, _, err = await ullage("cards")
    assert code == 69
    assert 'the front gpus/one cannot be reached: no endpoints available for service "one"' in err
    put(server, "services", a_service("two"))
    code, _, err = await ullage("cards")
    assert code == 2
    assert "gpus/one, gpus/two; name it by --front" in err
    code, _, err = await ullage("cards", "--front=gpus/none")
    assert code == 69
    assert 'services "none" not found' in err
    assert (await ullage("cards", "--front=ullage"))[0] == 2
    code, _, err = await ullage("cards", f"--front=http://127.0.0.1:{free_port()}")
    assert code == 69
    assert "does not answer" in err


async def test_who_may_not_ask_is_told_which_right_is_missing(server: ApiServer, ullage: Call):
    server.canned.append(Canned("GET", "/services", 403))
    code, _, err = await ullage("cards")
    assert code == 2
    assert "name it by --front" in err
    put(server, "services", a_service())
    server.canned.append(Canned("GET", "/v1/overview", 403))
    code, _, err = await ullage("cards")
    assert code == 2
    assert "the verbs get and create on services/proxy" in err


async def test_the_place_of_the_front_may_be_in_the_environment(
    server: ApiServer, api: HttpKubeApi, ullage: Call, monkeypatch: pytest.MonkeyPatch
):
    put(server, "nodes", a_node("a", 1))
    async with front(server, api) as (_, url):
        put(server, "services", a_service("second"))
        assert (await ullage("cards"))[0] == 2
        monkeypatch.setenv("ULLAGE_FRONT", url)
        code, out, err = await ullage("cards")
        assert (code, err) == (0, "")
        assert out.splitlines()[1].split()[0] == "a"


@pytest.mark.parametrize("words", [(), ("no-verb",), ("why",), ("cards", "--no-option")])
async def test_a_wrong_command_line_is_refused(ullage: Call, words: tuple[str, ...]):
    code, out, err = await ullage(*words)
    assert (code, out) == (2, "")
    assert "kubectl ullage" in err
