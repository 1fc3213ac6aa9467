"""Pods in every dialect, through webhook and extender of one process that is configured as the chart installs it.

At the end each pod has the charge that its words ask for, on a card that its words allow, and the device plugin has
handed out the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.chart.test_chart import config, named, render
from tests.kube.admission import Hook
from tests.kube.api_server import ApiServer
from tests.kube.certificates import Certificates
from tests.kube.conftest import WEBHOOKS, define
from tests.kube.control_plane import ControlPlane, binary
from tests.kube.hami_node import HamiNodes, hami_node
from tests.kube.stage import OWNERS, Front, Stage
from tests.kube.test_stories import Scheduled, cluster, play
from tests.ports import free_port
from ullage.kube.client.changes import Create, Delete, Patch
from ullage.kube.client.connection import connect
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES, NUMATOPOLOGIES, PODS
from ullage.kube.client.objects import Pod
from ullage.model.error import UllageError

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]
__all__ = ["cluster", "play"]  # fixtures

MIB, GIB = 2**20, 2**30
NAMESPACE = OWNERS[0]
Document = dict[str, Any]


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduled]:
    """A real control plane; its scheduler has the profiles of the chart."""
    binary("kube-scheduler")
    plane, port = ControlPlane(tmp_path_factory.mktemp("words")), free_port()
    try:
        asyncio.run(_define(plane))
        profiles = config(render())["profiles"]
        plane.start_asking_scheduler(port, {"preemptVerb": "preempt"}, profiles=profiles, podMaxBackoffSeconds=2)
        yield Scheduled(plane, port)
    finally:
        plane.close()


async def _define(plane: ControlPlane) -> None:
    async with connect(plane.kubeconfig) as client:
        await define(HttpKubeApi(client), NUMATOPOLOGIES)


def asking(name: str, limits: dict[str, str], **annotations: str) -> Document:
    """A pod as a user writes it: it names no scheduler."""
    words = {key.replace("__", "/").replace("_", "-"): value for key, value in annotations.items()}
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": words}
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "image", "resources": {"limits": limits}}]},
    }


def nvidia(**limits: int) -> dict[str, str]:
    return {f"nvidia.com/{name.replace('_', '-')}": str(amount) for name, amount in limits.items()}


PLACED = {
    "hami-part": (
        asking("hami-part", nvidia(gpu=1, gpumem=1000, gpucores=10), **{"nvidia.com/use-gpuuuid": "GPU-a-1"}),
        {"GPU-a-1": (31_200, 1000 * MIB)},
    ),
    "hami-memory-alone": (
        asking("hami-memory-alone", nvidia(gpumem=3000), **{"nvidia.com/use-gputype": "H100"}),
        {"GPU-h-0": (0, 3000 * MIB)},
    ),
    "hami-percent": (
        asking(
            "hami-percent", nvidia(gpu=1, gpumem_percentage=25, gpucores=5), **{"nvidia.com/nouse-gputype": "A100,L4"}
        ),
        {"GPU-h-0": (49_450, 4000 * MIB)},
    ),
    "hami-not-that-card": (
        asking(
            "hami-not-that-card",
            nvidia(gpu=1, gpumem=500),
            **{"nvidia.com/nouse-gpuuuid": " GPU-a-1, GPU-h-0 ,GPU-l-0,"},
        ),
        {"GPU-a-0": (0, 500 * MIB)},
    ),
    "theirs": (
        asking(
            "theirs",
            {},
            **{
                "tensor-fusion.ai/vram-request": "2Gi",
                "tensor-fusion.ai/compute-percent-request": "20",
                "tensor-fusion.ai/gpu-model": "NVIDIA-H100",
            },
        ),
        {"GPU-h-0": (197_800, 2 * GIB)},
    ),
    "ours": (
        asking(
            "ours",
            {},
            **{
                "ullage.io/vram-request": "3Gi",
                "ullage.io/compute-percent-request": "30",
                "ullage.io/gpu-model": "NVIDIA-H100",
            },
        ),
        {"GPU-h-0": (296_700, 3 * GIB)},
    ),
    "theirs-in-tflops": (
        asking(
            "theirs-in-tflops",
            {},
            **{
                "tensor-fusion.ai/vram-request": "1Gi",
                "tensor-fusion.ai/tflops-request": "50",
                "tensor-fusion.ai/gpu-model": "NVIDIA-H100",
            },
        ),
        {"GPU-h-0": (50_000, GIB)},
    ),
    "plain": (asking("plain", nvidia(gpu=1), **{"ullage.io/gpu-model": "L4"}), {"GPU-l-0": (121_000, 16_000 * MIB)}),
    "of-another-vendor": (
        asking("of-another-vendor", {"amd.com/gpu": "1"}),
        {"amd/amd.com/gpu/0": (1_000_000, 1_000_000)},
    ),
}
"""Pods, and what each has at the end: of which card how many GFLOPS and bytes (millionths where they are not known)."""

NEVER = {
    "of-nobody": asking("of-nobody", nvidia(gpu=1, gpumem=10), **{"nvidia.com/use-gpuuuid": "GPU-of-nobody"}),
    "too-much": asking("too-much", nvidia(gpu=1, gpumem=99_999)),
    "no-such-type": asking("no-such-type", nvidia(gpu=1, gpumem=10), **{"nvidia.com/use-gputype": "B200"}),
}


def machines() -> list[Document]:
    kinds = {"a": ("NVIDIA-A100", 2), "h": ("NVIDIA-H100", 1), "l": ("L4", 1)}
    found = []
    for name, (model, count) in kinds.items():
        node = hami_node(name, *(f"GPU-{name}-{number}" for number in range(count)))
        cards = json.loads(node["metadata"]["annotations"]["hami.io/node-nvidia-register"])
        node["metadata"]["annotations"]["hami.io/node-nvidia-register"] = json.dumps(
            [card | {"type": model} for card in cards]
        )
        found.append(node)
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "amd.com/gpu": "1"}
    ready = [{"type": "Ready", "status": "True"}]
    return [
        *found,
        {
            "metadata": {"name": "amd"},
            "status": {"allocatable": amounts, "capacity": amounts, "conditions": ready},
        },
    ]


@pytest.fixture
async def front(play: Stage, tmp_path: Path) -> AsyncIterator[Front]:
    """One process with the settings of the chart, asked by the API server and by the scheduler."""
    files = Certificates(tmp_path)
    chart = named(render(), "ConfigMap", "ullage")["data"]["ullage.toml"].removeprefix("[kube]\n")
    found = await play.front(f'webhook_bind = "127.0.0.1:0"\n{files.settings("webhook_")}{chart}')
    await asyncio.to_thread(found.wait_ready)
    hook = Hook(f"{found.url('webhook')}/webhook", files.ca_file.read_bytes(), NAMESPACE)
    if isinstance(play.server, ApiServer):
        play.server.hook = hook
        yield found
        return
    await play.api.write(Create(WEBHOOKS, hook.configuration()))
    await _until_asked(play)
    yield found
    await play.api.write(Delete(WEBHOOKS, hook.namespace))


async def _until_asked(play: Stage) -> None:
    """Wait until the API server asks the new webhook."""
    wrong = asking("wrong", nvidia(gpu=1, gpumem_percentage=101))
    clock = asyncio.get_running_loop().time
    end = clock() + 30
    while True:
        try:
            await play.submit([wrong])
        except UllageError as error:
            if "gpumem-percentage" not in error.message:
                raise
            return
        assert clock() < end, "the webhook is never asked"
        await play.api.write(Delete(PODS, "wrong", NAMESPACE, grace_s=0))


def _is_bound(pods: list[Pod], name: str) -> bool:
    return any(pod.metadata.name == name and pod.spec.node_name for pod in pods)


def _is_handed_out(pod: Pod) -> bool:
    return (pod.metadata.annotations or {}).get("hami.io/bind-phase") == "success"


def charged(pod: Document) -> dict[str, tuple[int, int] | None]:
    notes = pod["metadata"].get("annotations", {})
    cards = [card for card in notes.get("ullage.io/gpu-ids", "").split(",") if card]
    charges = json.loads(notes.get("ullage.io/allocation", "{}")).get("cards") or [None] * len(cards)
    return {
        card: None if charge is None or charge["isolation"] == "shared" else (charge["compute"], charge["vram"])
        for card, charge in zip(cards, charges, strict=True)
    }


async def test_each_pod_gets_its_request_whichever_component_reads_it_first(play: Stage, front: Front) -> None:
    for node in machines():
        await play.kubelets.join(node["metadata"]["name"], **node["status"]["allocatable"])
        if annotations := node["metadata"].get("annotations"):
            await play.api.write(Patch(NODES, node["metadata"]["name"], {"metadata": {"annotations": annotations}}))
    async with HamiNodes(play.api):
        await play.submit(NEVER.values())  # the webhook has read these words before the extender does, or after it
        for pod, _ in PLACED.values():
            await play.submit([pod])
            await play.until(partial(_is_bound, name=pod["metadata"]["name"]), f"{pod['metadata']['name']} is bound")
        await play.until(
            lambda pods: sum(_is_handed_out(pod) for pod in pods) == 5,
            "the plugins have handed out the cards of five pods",
        )
        there = {pod["metadata"]["name"]: pod for pod in await play.pods()}
    assert {name: charged(there[name]) for name in PLACED} == {name: charge for name, (_, charge) in PLACED.items()}
    assert not [name for name in NEVER if there[name]["spec"].get("nodeName")]
    for name in ("hami-part", "hami-memory-alone", "hami-percent", "hami-not-that-card"):
        ((card, charge),) = charged(there[name]).items()
        assert charge is not None
        compute, vram = charge
        written = there[name]["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
        capacity = 312_000 if card.startswith("GPU-a") else 989_000
        assert written == f"{card},NVIDIA,{vram // MIB},{compute * 100 // capacity}:;"
    assert {(name, card) for _, name, card in await front.known()} == {
        (name, card) for name in PLACED for card in charged(there[name])
    }
