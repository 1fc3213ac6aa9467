"""`ullage why NAMESPACE/POD`: the pod and its events, as its owner reads them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until, write_kubeconfig
from tests.kube.test_events import recorded
from tests.kube.test_front import a_node, a_pod, put, running
from ullage.cli.main import main
from ullage.kube.client.http import HttpKubeApi

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]


async def why(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = await asyncio.to_thread(main, ["why", *words])
    read = capsys.readouterr()
    return code, read.out + read.err


async def test_a_pod_that_fits_nowhere_says_why_and_its_nodes_say_it_in_one_text(
    server: ApiServer, api: HttpKubeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(server, "nodes", *(a_node(name, 2) for name in "abc"))
    (pod,) = put(server, "pods", a_pod("train", 3))
    config = f"--kubeconfig={write_kubeconfig(tmp_path, server.url)}"
    async with running(server, api) as up:
        code, said = await why(capsys, "default/train", config)
        assert (code, said) == (
            0,
            "default/train: no event or condition gives a reason yet; its scheduler is default-scheduler\n",
        )
        found = await up.ask("filter", Pod=pod, NodeNames=list("abc"))
        assert {*found["FailedNodes"].values(), *found["FailedAndUnresolvableNodes"].values()} == {
            "NodeInsufficientDevice"
        }
        await until(lambda: len(recorded(server)) == 1, "it is written")
        sentence = (
            "asks for 3 whole cards, gpu_vendor=NVIDIA; the largest node has 2 cards "
            "(all 6 cards of 3 nodes looked at); nvidia.com/gpu: 2 would fit on 3 nodes now"
        )
        for words in (("default/train",), ("train", "-n", "default"), ("train",)):
            code, said = await why(capsys, *words, config)
            assert code == 0
            assert said.startswith(
                f"default/train: FilteringFailed: {sentence}; 3 of 3 nodes: NodeInsufficientDevice\n"
            )
        code, said = await why(capsys, "default/train", config, "-o", "json")
        assert json.loads(said)["events"][0]["message"].startswith(sentence)


async def test_a_pod_on_its_node_one_that_is_not_there_and_one_of_another_scheduler(
    server: ApiServer, api: HttpKubeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = f"--kubeconfig={write_kubeconfig(tmp_path, server.url)}"
    placed, other = a_pod("placed"), a_pod("other")
    placed["spec"]["nodeName"] = "a"
    put(server, "pods", placed, other)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}

    def says(pod: dict[str, Any]) -> dict[str, Any]:
        return pod | {"status": {"phase": "Pending", "conditions": [condition]}}

    server.do(lambda: server.rules.change(("pods", "default", "other"), says, "status"))
    assert (await why(capsys, "default/placed", config))[1] == "default/placed: it is on a\n"
    assert (await why(capsys, "default/other", config))[1] == "default/other: Unschedulable: 0/1 nodes\n"
    assert (await why(capsys, "default/never", config))[0] == 2


async def test_without_a_server_of_sessions_it_says_how_a_pod_is_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path))
    monkeypatch.delenv("ULLAGE_ENDPOINT", raising=False)
    code, said = await why(capsys, "train")
    assert code == 69
    assert "ullage why NAMESPACE/train" in said
