"""Whatever the agents of all vendors register on nodes, and whatever pods say that they have: the books go on.

Nodes name the same cards, in one register or in several; numbers are at the ends of their ranges, or none.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kube.test_mirror import World
from tests.kube.vendor_nodes import a_node, a_pod, card, registered
from tests.kube.volcano_node import volcano_node
from ullage.kube.mirror.cards import register_readers
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.shipped import FAMILIES

Document = dict[str, Any]

UUIDS = ["A0", "A1", "B0", "a-AWSNeuron-0"]
ODD_UUIDS = [*UUIDS, "", "x" * 300, "A0[1]", "a,b", "A0:", 0, None]
NUMBERS = [1, 10, 16_000]
ODD_NUMBERS = [*NUMBERS, 0, -1, 2**30, 2**31 - 1, 2**31, 2**63, 1.5, "7", "x", None, True, []]
MODES = ["", "mig", "mps", "hami-core"]


class OfAllVendors(World):
    readers = register_readers(FAMILIES, lambda: 1000.0)


def uuid(random: Random) -> Any:
    return random.choice(ODD_UUIDS if random.random() < 0.3 else UUIDS)


def number(random: Random) -> Any:
    return random.choice(ODD_NUMBERS if random.random() < 0.3 else NUMBERS)


def of_hami(random: Random) -> str:
    fields = {
        "id": uuid(random),
        "index": number(random),
        "count": number(random),
        "devmem": number(random),
        "devcore": number(random),
        "type": random.choice(["T", "NVIDIA-A100", None, 5]),
        "health": True,
        "numa": random.choice([0, 1, -1, 70, 2**31, None]),
        "mode": random.choice(MODES),
        "custominfo": random.choice([None, {"NetworkID": 1}, {"NetworkID": [1]}, 5]),
        "migProfiles": random.choice([None, [], [{"name": "1g.5gb"}]]),
    }
    return json.dumps([{key: value for key, value in fields.items() if random.random() < 0.9}])


def of_volcano(random: Random) -> str:
    return f"{uuid(random)},{number(random)},{number(random)},NVIDIA-T,true,{random.choice(MODES)}:"


def of_metax(random: Random) -> str:
    amounts = {"totalDevCount": number(random), "totalCompute": number(random), "totalVRam": number(random)}
    return json.dumps([{"uuid": uuid(random), "healthy": True, "numa": random.choice([0, -1, 99_999]), **amounts}])


def of_drs(random: Random) -> str:
    device = {"index": str(number(random)), "minor": str(number(random)), "capacity": number(random)}
    return json.dumps({"devices": [device], "profiles": random.choice([{"1g.6gb": "0"}, {}, {"x": "y"}])})


FORMATS = {"hami": of_hami, "volcano": of_volcano, "metax": of_metax, "drs": of_drs}


def some_node(random: Random, name: str) -> Document:
    annotations: dict[str, str] = {}
    amounts: dict[str, str] = {}
    for family in random.sample(FAMILIES, random.randint(0, 4)):
        rule = family.register
        if rule.format == "capacity":
            amounts |= {key: str(number(random)) for key in (rule.cards, rule.memory, rule.cores) if key}
        else:
            annotations[rule.annotation] = FORMATS[rule.format](random)
        amounts.setdefault(family.resources.count, str(number(random)))
    return a_node(name, annotations, **amounts)


def some_devices(random: Random, family: Family) -> str:
    device = f"{uuid(random)},{family.word},{number(random)},{number(random)}:"
    return random.choice([device, f"{device};", f";{device}", f"{device};{device}", device[:-1]])


def some_pod(random: Random, name: str) -> Document:
    annotations: dict[str, str] = {}
    limits: dict[str, int | str] = {}
    for family in random.sample(FAMILIES, random.randint(0, 2)):
        limits |= {
            key: str(number(random)) for key in (family.resources.count, *family.amounts) if random.random() < 0.5
        }
        rule = family.results
        annotations |= {key: some_devices(random, family) for key in rule.devices if random.random() < 0.5}
        annotations |= {rule.node: random.choice(["a", "b", "", "gone"]), rule.time: str(number(random))}
    placed = {"nodeName": random.choice(["a", "b", "gone"])} if random.random() < 0.7 else {}
    scheduler = random.choice(["ullage", "volcano", "hami"])
    pod = a_pod(name, limits, annotations=annotations, schedulerName=scheduler, **placed)
    return pod | {"status": {"phase": random.choice(["Running", "Pending", "Failed"])}}


@given(st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_books_go_on(random: Random) -> None:
    world = OfAllVendors(*(some_node(random, name) for name in "ab"))
    for _ in range(6):
        if random.random() < 0.4:
            world.nodes.put(some_node(random, random.choice("ab")))
        else:
            world.pods.put(some_pod(random, random.choice("pqr")))
        held = world.held
        cards = [gpu.uuid for gpu in world.cluster.allocator.fleet.cards]
        assert len(set(cards)) == len(cards)
        assert {uuid for gpus in held.values() for uuid in gpus} <= set(cards)
    world.begin()


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (
            a_node(
                "a",
                registered("hami.io/node-nvidia-register", card("G0", 1))
                | registered("hami.io/node-amd-register", card("G0", 1)),
            ),
            "card G0 is also named by a second register",
        ),
        (
            a_node(
                "a",
                **{
                    "mthreads.com/sgpu-core": "16",
                    "mthreads.com/sgpu-memory": str(2**31 - 1),
                    "mthreads.com/vgpu": "1",
                },
            ),
            "the card is left out",
        ),
    ],
)
def test_a_node_whose_cards_cannot_be_counted_is_reported_and_the_others_go_on(node: Document, words: str) -> None:
    world = OfAllVendors(volcano_node("b", "B0"))
    world.nodes.put(node)
    assert world.held == {}
    assert any(error.startswith("a: ") and words in error for error in world.errors), world.errors
    assert [gpu.uuid for each in world.cluster.allocator.fleet.nodes if each.name == "b" for gpu in each.gpus] == ["B0"]
