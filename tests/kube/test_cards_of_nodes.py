"""Cards of a Node as their publishers report them: one publisher for each vendor, and the figures of their models."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.kube.cards import RegisteredCards
from ullage.kube.client.objects import KubeNode as NodeObject
from ullage.kube.nodes import CardSources, node_of
from ullage.model.allocation import Allocation
from ullage.model.card_figures import SHIPPED_FIGURES, Figure
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import NodeState
from ullage.model.part import Isolation
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement

REGISTER = "hami.io/node-nvidia-register"
NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"


def a_node(register: str = "", labels: dict[str, str] | None = None, **amounts: str) -> NodeObject:
    offered = {key.replace("__", "/").replace("_", "."): value for key, value in amounts.items()}
    body: dict[str, Any] = {
        "metadata": {"name": "n", "labels": labels or {}, "annotations": {REGISTER: register} if register else {}},
        "status": {"allocatable": offered},
    }
    return msgspec.convert(body, NodeObject)


def registered(*uuids: str, model: str = "NVIDIA-NVIDIA A100-SXM4-80GB") -> str:
    cards = [
        {"id": uuid, "index": at, "count": 10, "devmem": 81920, "type": model, "health": True}
        for at, uuid in enumerate(uuids)
    ]
    return json.dumps(cards)


def cards(node: NodeObject, *more: Any) -> list[tuple[str, str | None, int | None]]:
    found = node_of(node, CardSources([RegisteredCards(), *more]))
    assert [gpu.index for gpu in found.gpus] == list(range(len(found.gpus)))
    return [(gpu.uuid, gpu.vendor, gpu.compute_gflops) for gpu in found.gpus]


def test_cards_of_another_vendor_are_added_to_those_of_a_register() -> None:
    node = a_node(registered("A0"), nvidia_com__gpu="10", amd_com__gpu="2")
    assert cards(node) == [
        ("A0", "NVIDIA", 312_000),
        ("n/amd.com/gpu/0", "AMD", None),
        ("n/amd.com/gpu/1", "AMD", None),
    ]


def test_no_card_of_an_unreadable_register_is_guessed_and_other_cards_count() -> None:
    node = a_node("{", nvidia_com__gpu="10", amd_com__gpu="1")
    assert cards(node) == [("n/amd.com/gpu/0", "AMD", None)]
    assert REGISTER in node_of(node, CardSources([RegisteredCards()])).topology_note


def test_a_driver_reports_the_cards_of_its_vendor_next_to_a_register_of_another() -> None:
    def driver(_node: NodeObject) -> list[Gpu]:
        return [Gpu("M0", 0, vendor="AMD"), Gpu("A1", 1, vendor="NVIDIA")]

    node = a_node(registered("A0"), nvidia_com__gpu="10", amd_com__gpu="4")
    found = node_of(node, CardSources([RegisteredCards(), driver]))
    assert [(gpu.uuid, gpu.vendor) for gpu in found.gpus] == [("A0", "NVIDIA"), ("M0", "AMD")]
    assert [gpu.uuid for gpu in node_of(node, CardSources([driver, RegisteredCards()])).gpus] == ["M0", "A1"]


def test_feature_discovery_says_what_numbered_cards_are() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    (card,) = node_of(a_node(labels=labels, nvidia_com__gpu="1")).gpus
    assert (card.model, card.vram_bytes, card.compute_gflops) == ("NVIDIA-H100-80GB-HBM3", 81559 * 2**20, 989_000)
    (other,) = node_of(a_node(labels=labels, amd_com__gpu="1")).gpus
    assert (other.model, other.vram_bytes) == (None, None)


@pytest.mark.parametrize("product", ["NVIDIA-H100-80GB-HBM3-SHARED", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"])
def test_shared_cards_and_slices_are_not_taken_for_whole_ones(product: str) -> None:
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "81559"}
    (card,) = node_of(a_node(labels=labels, nvidia_com__gpu="1")).gpus
    assert (card.model, card.vram_bytes, card.compute_gflops) == (None, None, None)


@pytest.mark.parametrize("text", ["vram=1g,isolation=hard", "vram=1g,isolation=partitioned", "partition=3g.40gb"])
@pytest.mark.parametrize("register", ["", registered("A0")], ids=["a plain plugin", "a register"])
def test_nobody_is_promised_limits_or_slices_that_nothing_on_the_node_keeps(register: str, text: str) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
    node = node_of(a_node(register, labels, nvidia_com__gpu="1", pods="10"), CardSources([RegisteredCards()]))
    allocator = FleetAllocator(Fleet([replace(node, state=NodeState.READY)]))
    allocator.set_ready()

    def asked(uid: str, text: str) -> Refusal | Allocation:
        return allocator.alloc(Request(uid, ResourceRequirement.from_string(text), Claim("team")), 0.0)

    refused = asked("a", text)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.ISOLATION_UNSUPPORTED
    assert isinstance(asked("b", "vram=1g"), Allocation)


def test_what_a_driver_reports_of_a_card_stays() -> None:
    own = Gpu("M0", 0, vendor="NVIDIA", isolations=frozenset({Isolation.HARD}))
    (card,) = node_of(a_node(nvidia_com__gpu="1"), CardSources([lambda _node: [own]])).gpus
    assert card.isolations == {Isolation.HARD}


def test_figures_of_an_operator_go_before() -> None:
    own = SHIPPED_FIGURES.overridden_by([Figure("A100", 250_000)])
    (card,) = node_of(a_node(registered("A0"), nvidia_com__gpu="10"), CardSources([RegisteredCards()], own)).gpus
    assert card.compute_gflops == 250_000
