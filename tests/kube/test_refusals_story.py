"""Twenty-two pods in every dialect that fit nowhere: its event has the cause, the request, what exists, what helps.

What `kubectl describe` and `ullage why` show is the event of the pod, and the reasons of its nodes.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until, write_kubeconfig
from tests.kube.hami_node import REGISTER, hami_node
from tests.kube.hosting import a_binding, labels_of
from tests.kube.test_events import recorded
from tests.kube.test_front import put, running
from tests.kube.test_webhook import admitted
from ullage.cli.main import main
from ullage.kube.bindings.filter import SCOPE_LABEL
from ullage.kube.bindings.terms import BindingScope, BindingTerms
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.mirror.cards import RegisteredCards
from ullage.kube.webhook.admission import nowhere
from ullage.kube.webhook.webhook import Webhook
from ullage.model.card_pool import PoolRule

pytestmark = [pytest.mark.timeout(300), pytest.mark.anyio]

Document = dict[str, Any]
POOLS = (PoolRule("training", {"kind": "training"}),)


def nvidia(**limits: int) -> dict[str, str]:
    return {f"nvidia.com/{name.replace('_', '-')}": str(amount) for name, amount in limits.items()}


def asks(
    *limits: dict[str, str], cpu: str = "0", namespace: str = "default", labels: Any = None, **words: str
) -> Document:
    """A pod whose containers have these limits, with words of any domain: `ullage__gpu_count` is one of ours."""
    domains = {"ullage": "ullage.io", "theirs": "tensor-fusion.ai", "hami": "nvidia.com"}
    parted = [(key.partition("__"), text) for key, text in words.items()]
    notes = {f"{domains[domain]}/{name.replace('_', '-')}": text for (domain, _, name), text in parted}
    containers = [
        {"name": f"c{at}", "image": "x", "resources": {"limits": each, "requests": {"cpu": cpu}}}
        for at, each in enumerate(limits or ({},))
    ]
    metadata = {"namespace": namespace, "annotations": notes, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"containers": containers}, "status": {"phase": "Pending"}}


def machines() -> list[Document]:
    one, two = hami_node("a", "GPU-a-0", "GPU-a-1"), hami_node("h", "GPU-h-0", mib=80_000)
    (card,) = json.loads(two["metadata"]["annotations"][REGISTER])
    two["metadata"]["annotations"][REGISTER] = json.dumps([card | {"type": "NVIDIA-H100"}])
    one["metadata"]["labels"] = {"kind": "training"}
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", "amd.com/gpu": "2"}
    ready = [{"type": "Ready", "status": "True"}]
    plain = {"metadata": {"name": "amd"}, "status": {"allocatable": amounts, "capacity": amounts, "conditions": ready}}
    return [one, two, plain]


CASES: dict[str, Document] = {
    "hami-memory": asks(nvidia(gpu=1, gpumem=100_000)),
    "hami-cards": asks(nvidia(gpu=3, gpumem=1000)),
    "hami-model": asks(nvidia(gpu=1, gpumem=1000), hami__use_gputype="B200"),
    "hami-uuid": asks(nvidia(gpu=1, gpumem=1000), hami__use_gpuuuid="GPU-x"),
    "hami-two-containers": asks(nvidia(gpu=2, gpumem=12_000), nvidia(gpu=1, gpumem=9000)),
    "hami-cores": asks(nvidia(gpu=1, gpumem=50_000, gpucores=80)),
    "theirs-memory": asks(theirs__vram_request="100Gi"),
    "theirs-tflops": asks(theirs__tflops_request="2000"),
    "theirs-model": asks(theirs__vram_request="1Gi", theirs__gpu_model="B200"),
    "theirs-vendor": asks(theirs__vram_request="1Gi", theirs__vendor="Intel", theirs__isolation="hard"),
    "ours-memory": asks(ullage__vram_request="90Gi"),
    "ours-percent": asks(ullage__compute_percent_request="80", ullage__gpu_model="NVIDIA-H100"),
    "ours-index": asks(ullage__vram_request="1Gi", ullage__gpu_indices="7"),
    "ours-pool": asks(ullage__vram_request="1Gi", ullage__gpupool="serving"),
    "ours-pool-is-small": asks(ullage__vram_request="20Gi", ullage__gpupool="training"),
    "ours-slice": asks(ullage__vram_request="1Gi", ullage__isolation="partitioned"),
    "plain-cards": asks(nvidia(gpu=4)),
    "plain-other-vendor": asks({"amd.com/gpu": "3"}),
    "plain-cpu": asks(nvidia(gpu=1), cpu="100"),
    "unknown-memory": asks(ullage__vram_request="1Gi", ullage__vendor="AMD", ullage__isolation="shared"),
    "bound-to-nobody": asks(nvidia(gpu=1), namespace="bound", labels=labels_of("app", "alice")),
    "bound-too-few": asks(nvidia(gpu=2), namespace="bound", labels=labels_of("few", "alice")),
}


SAID: dict[str, tuple[str, ...]] = {
    "hami-memory": (
        "asks for 100000Mi on one card",
        "the largest has 80000Mi",
        "nvidia.com/gpumem: 40000",
        "1 node now",
    ),
    "hami-cards": ("asks for 1000Mi on each of 3 cards", "the largest node has 2 cards", "nvidia.com/gpu: 2"),
    "hami-model": (
        "gpu_model_like=B200",
        "of another model: there are NVIDIA-A100",
        "; nvidia.com/gpu: 1, nvidia.com/gpumem: 1000 would fit on 2",
    ),
    "hami-uuid": ("gpu_uuid=GPU-x", "other cards are named by their uuids", "there are GPU-a-0, GPU-a-1"),
    "hami-two-containers": (
        "asks for 12000Mi on each of 3 cards",
        "the largest node has 2 cards",
        "on cards that its containers share it asks for 21000Mi on each of 2 cards",
    ),
    "hami-cores": (
        "80 % of the compute",
        "free of one is 70 % of its compute (692.3 TFLOPS)",
        "would fit on 1 node now",
    ),
    "theirs-memory": ("asks for 100Gi on one card", "the largest has 80000Mi", "2 cards: the capacity of"),
    "theirs-tflops": (
        "asks for 2000 TFLOPS",
        "the largest has 989 TFLOPS",
        '; tensor-fusion.ai/gpu-count: "1", tensor-fusion.ai/tflops-request: "692.3" would fit on 1 node',
    ),
    "theirs-model": (
        "gpu_model=B200",
        "the card is of another model: there are NVIDIA-A100",
        '; tensor-fusion.ai/gpu-count: "1", tensor-fusion.ai/vram-request: 1Gi would fit',
    ),
    "theirs-vendor": (
        "gpu_vendor=Intel",
        "the card is of another vendor: there are NVIDIA, AMD",
        "; ask for a vendor that is there; ",
    ),
    "ours-memory": (
        "asks for 90Gi on one card",
        "the largest has 80000Mi",
        '; ullage.io/gpu-count: "1", ullage.io/vram-request: 40000Mi would fit on 1 node now',
    ),
    "ours-percent": (
        "80 % of the compute",
        "is 70 % of its compute",
        "4 cards: the card is of another model",
        'ullage.io/compute-percent-request: "70"',
    ),
    "ours-index": (
        "gpu_index=7",
        "another card is named: there are 0, 1",
        "ullage.io/vram-request: 1Gi would fit on 2 nodes now",
    ),
    "ours-pool": (
        "pool=serving",
        "the card is of another pool: there are cards of no pool, training",
        "; name a pool that is there, or add nodes to it; ",
    ),
    "ours-pool-is-small": (
        "20Gi on one card, pool=training",
        "the largest has 16000Mi",
        "ullage.io/vram-request: 16000Mi, ullage.io/gpupool: training",
    ),
    "ours-slice": (
        "isolation=partitioned",
        "the card cannot keep its users apart in this way",
        "; ask for another isolation, or add cards that have it; ",
    ),
    "plain-cards": (
        "asks for 4 whole cards",
        "the largest node has 2 cards",
        "; nvidia.com/gpu: 2 would fit",
    ),
    "plain-other-vendor": (
        "3 whole cards, gpu_vendor=AMD",
        "the largest node has 2 cards",
        "; amd.com/gpu: 2 would fit",
    ),
    "plain-cpu": (
        "1 whole card, gpu_vendor=NVIDIA, cpu=100",
        "; the best node has 64 cpu",
        "; nvidia.com/gpu: 1, cpu: 64 would fit on 1 node now",
    ),
    "unknown-memory": (
        "gpu_vendor=AMD; the capacity of the card is not known; declare it (card_model",
        "gpu=0.5, or nvidia.com/gpumem-percentage in a pod",
    ),
    "bound-to-nobody": (
        "asks for 1 whole card",
        "cards that are bound for its application alone",
        "GPUBinding",
        "not-bound",
    ),
    "bound-too-few": ("requested=2, bound=1; bind 1 more card by GPUBindings, or ask for less",),
}
"""What is asked, what there is, and what would help, as the event of each pod says it."""

NOT_SAID = {
    "hami-memory": "declare it",
    "hami-model": "declare it",
    "hami-uuid": "declare it",
    "theirs-vendor": "users apart",
    "theirs-model": "declare it",
}
"""What would not help these."""


async def test_each_pod_that_fits_nowhere_has_its_reason(
    server: ApiServer, api: HttpKubeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(server, "nodes", *machines())
    put(server, "namespaces", {"metadata": {"name": "bound", "labels": {SCOPE_LABEL: "enabled"}}})
    put(server, "gpubindings", a_binding("b", "GPU-a-0", app="few", owner="alice", namespace="bound"))
    terms = BindingTerms(BindingScope.LABELLED)
    async with running(server, api, readers=[RegisteredCards()], pools=POOLS, bindings=terms) as up:
        up.front.mirror.settle()
        webhook = Webhook(nowhere=nowhere(up.front.cluster, declared={"training"}))
        holds = asks(nvidia(gpu=1, gpumem=40_000, gpucores=30), hami__use_gpuuuid="GPU-h-0")
        (holder,) = put(server, "pods", {**holds, "metadata": holds["metadata"] | {"name": "holder"}})
        assert await up.place(holder, ["a", "h", "amd"]) == "!h"
        for name, document in CASES.items():
            metadata = document["metadata"] | {"name": name}
            (pod,) = put(server, "pods", admitted({**document, "metadata": metadata}, webhook))
            found = await up.ask("filter", Pod=pod, NodeNames=["a", "h", "amd"])
            assert not found["NodeNames"], name
        await until(lambda: {name for name, _, _ in recorded(server)} >= CASES.keys(), "each has its event")
        said = {name: message for name, _, message in recorded(server)}
    config = f"--kubeconfig={write_kubeconfig(tmp_path, server.url)}"
    for name, document in CASES.items():
        assert [part for part in SAID[name] if part not in said[name]] == [], said[name]
        assert said[name].count(";") >= 1, "a reason and what helps"
        assert "\n" not in said[name], "kubectl describe shows it in one line"
        assert NOT_SAID.get(name, "\n") not in said[name]
        assert await asyncio.to_thread(main, ["why", f"{document['metadata']['namespace']}/{name}", config]) == 0
        assert said[name] in capsys.readouterr().out, "what its owner asks is answered by the same"
