"""Nodes of the API as applications are bound to them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given

from tests.bindings import ALONE, GIB, MIB, SLICED, TURNS
from tests.wire.hami.pods import read_register
from tests.wire.topology.hostile import shaped
from ullage.kube.bindings.nodes import compute_node
from ullage.kube.client.kinds import NODES, Unreadable
from ullage.kube.mirror.nodes import CardSources, node_of
from ullage.model.compute import ComputeCard, HostRoom
from ullage.wire.hami.node import CORDON, cordoned, read_cordon
from ullage.wire.vendors.shipped import NVIDIA

REGISTER = NVIDIA.register.annotation

CARDS = [
    {
        "id": f"GPU-{number}",
        "index": number,
        "count": 10,
        "devmem": 16_000,
        "type": "RTX",
        "numa": number,
        "health": True,
    }
    for number in range(2)
]
AMOUNTS = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi"}


def written(labels=None, annotations=None, amounts=None, ready="True", **spec):
    return {
        "metadata": {
            "name": "n1",
            "labels": {"gpu.bytetrade.io/type": "nvidia"} | (labels or {}),
            "annotations": {REGISTER: json.dumps(CARDS)} | (annotations or {}),
        },
        "spec": spec,
        "status": {
            "allocatable": AMOUNTS if amounts is None else amounts,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def registered(node):
    annotations = node.metadata.annotations or {}
    if REGISTER not in annotations:
        return None
    cards = [card.gpu for card in read_register(annotations[REGISTER])]
    return cordoned(cards, read_cordon(annotations.get(CORDON, "")))


def described(node):
    return compute_node(node, node_of(node, CardSources([registered])))


def read(**facts):
    return described(NODES.read(json.dumps(written(**facts)).encode()))


def test_a_node_has_its_cards_and_amounts():
    node, problems = read()
    assert (node.capacity, node.ready, problems) == (HostRoom(8000, 32 * GIB, 100 * GIB), True, ())
    assert node.cards[1] == ComputeCard("n1", "GPU-1", "nvidia", 16_000 * MIB, TURNS, "RTX", 1, 1)


@pytest.mark.parametrize(
    ("kind", "mode", "share"),
    [("nvidia", None, TURNS), ("nvidia", "7", TURNS), ("nvidia", "1", SLICED), ("nvidia-gb10", "7", SLICED),
     ("nvidia-gb10", None, SLICED), ("nvidia-gb10", "0", ALONE), ("amd-gpu", "1", ALONE)],
)  # fmt: skip
def test_40_how_a_card_is_shared_is_an_annotation_or_the_default_of_its_type(kind, mode, share):
    device = "n1-nvidia-gb10-0" if kind == "nvidia-gb10" else "GPU-0"
    annotations = {} if mode is None else {f"sharemode.gpu.bytetrade.io/{device}": mode}
    node, _ = read(labels={"gpu.bytetrade.io/type": kind}, annotations=annotations)
    assert (node.cards[0].id, node.cards[0].share, node.accelerators) == (device, share, (kind,))


def test_one_memory_for_everything_is_one_card_with_three_quarters_of_it():
    node, _ = read(labels={"gpu.bytetrade.io/type": "nvidia-gb10"})
    assert [(card.id, card.memory_bytes) for card in node.cards] == [("n1-nvidia-gb10-0", 24 * GIB)]


def test_what_takes_nothing_new_says_so():
    node, _ = read(annotations={CORDON: "GPU-1"})
    assert [card.cordoned for card in node.cards] == [False, True]
    assert not read(ready="False")[0].ready
    assert not read(unschedulable=True)[0].ready
    sick = json.dumps([CARDS[0] | {"health": False}, CARDS[1] | {"mode": "mig"}])
    node, _ = read(annotations={REGISTER: sick})
    assert [(card.healthy, card.cordoned) for card in node.cards] == [(False, False), (True, True)]


def test_a_card_of_another_device_plugin_takes_nothing_new():
    found = NODES.read(json.dumps(written()).encode())
    machine = node_of(found, CardSources([registered]))
    machine = replace(machine, gpus=(machine.gpus[0], replace(machine.gpus[1], used_by="another")))
    node, _ = compute_node(found, machine)
    assert [(card.healthy, card.cordoned) for card in node.cards] == [(True, False), (True, True)]


def test_what_cannot_be_read_is_a_problem_and_the_rest_stands():
    node, problems = read(annotations={REGISTER: "[{"}, amounts={"cpu": "8", "memory": "x", "ephemeral-storage": "-"})
    assert (node.cards, node.capacity) == ((), HostRoom(8000))
    assert [problem.item for problem in problems] == ["n1", "n1"]
    assert "memory" in problems[0].reason
    assert "ephemeral-storage" in problems[1].reason


@given(shaped(written(), ["name", "cpu", "type", REGISTER]))
def test_no_node_breaks_anything(document):
    try:
        found = NODES.read(json.dumps(document, default=str).encode())
    except Unreadable:
        return
    described(found)
