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
from ullage.kube.client.objects import KubeNode as NodeObject
from ullage.kube.mirror.cards import RegisteredCards
from ullage.kube.mirror.nodes import CardSources, node_of, template_of
from ullage.model.allocation import Allocation
from ullage.model.card_figures import SHIPPED_FIGURES, Figure
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import NodeState
from ullage.model.node_record import NodeRecord
from ullage.model.part import Isolation
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.topology import CardPicker, Kubelet, Link, Path, Topology, Zone

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


# --- links ---

SCORES = "hami.io/node-nvidia-score"


def with_scores(*pairs: tuple[str, str, int], register: str, **amounts: str) -> NodeObject:
    node = a_node(register, **amounts)
    listed = [{"uuid": one, "score": {other: score}} for one, other, score in pairs]
    assert node.metadata.annotations is not None
    node.metadata.annotations[SCORES] = json.dumps(listed)
    return node


def a_record(*links: Link, kubelet: Kubelet | None = None) -> NodeRecord:
    return NodeRecord("n", Topology((Zone(0),), links=links, kubelet=kubelet, source="exporter"))


def test_links_of_an_exporter_come_before_those_of_a_register() -> None:
    node = with_scores(("A0", "A1", 450), ("A0", "A2", 10), register=registered("A0", "A1", "A2"))
    sources = CardSources([RegisteredCards()])
    alone = node_of(node, sources).topology
    assert alone is not None
    assert alone.links == (Link("A0", "A1", Path.PIX, 4), Link("A0", "A2", Path.SYS))
    both = node_of(node, sources, a_record(Link("A0", "A1", Path.PXB), Link("A1", "A2", Path.NODE))).topology
    assert both is not None
    assert both.links == (Link("A0", "A1", Path.PXB, 4), Link("A0", "A2", Path.SYS), Link("A1", "A2", Path.NODE))
    assert both.source == "exporter"
    counted = node_of(node, sources, a_record(Link("A0", "A1", Path.PXB, 2))).topology
    assert counted is not None
    assert counted.links[0] == Link("A0", "A1", Path.PXB, 2)


@pytest.mark.parametrize(
    ("node", "picks"),
    [
        (a_node(registered("A0"), nvidia_com__gpu="10"), CardPicker.NAMED),
        (a_node(nvidia_com__gpu="2"), CardPicker.PARTITION),
        (a_node(nvidia_com__gpu="0", amd_com__gpu="2"), CardPicker.LOWEST),
        (a_node(), CardPicker.LOWEST),
    ],
)
def test_who_picks_cards_beside_a_kubelet_follows_from_the_node(node: NodeObject, picks: CardPicker) -> None:
    record = a_record(Link("A0", "A1", Path.PIX), kubelet=Kubelet(picks=CardPicker.NAMED))
    topology = node_of(node, CardSources([RegisteredCards()]), record).topology
    assert topology is not None
    assert topology.kubelet is not None
    assert topology.kubelet.picks is picks
    assert topology.links == record.topology.links
    again = node_of(node, CardSources([RegisteredCards()]), replace(record, topology=topology)).topology
    assert again is topology


def test_a_node_of_an_autoscaler_keeps_the_links_of_its_cards() -> None:
    node = with_scores(("A0", "A1", 450), register=registered("A0", "A1"))
    machine = template_of(node, CardSources([RegisteredCards()]))
    assert [gpu.uuid for gpu in machine.gpus] == ["n/A0", "n/A1"]
    assert machine.topology is not None
    assert machine.topology.links == (Link("n/A0", "n/A1", Path.PIX, 4),)
