"""The annotations that HAMi's agents write on a node."""

import json
from dataclasses import replace

import pytest

from tests.wire.hami.pods import MIB, read_register
from ullage.model.error import InvalidAnnotation
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation
from ullage.model.topology import Link, Path
from ullage.wire.hami.node import (
    CORDON,
    Handshake,
    cordoned,
    read_cordon,
    read_handshake,
)
from ullage.wire.vendors.load import shipped
from ullage.wire.vendors.registers import NodeText, RegisteredCard, registered_links
from ullage.wire.vendors.scores import read_scores
from ullage.wire.vendors.shipped import NVIDIA

SCORE = "hami.io/node-nvidia-score"
CARD = {
    "id": "GPU-a",
    "index": 3,
    "count": 10,
    "devmem": 8000,
    "devcore": 100,
    "type": "NVIDIA-Tesla P4",
    "numa": 1,
} | {
    "mode": "hami-core",
    "migProfiles": [{"name": "1g"}],
    "health": True,
    "devicevendor": "NVIDIA",
}
SOFTLY = frozenset({Isolation.SHARED, Isolation.SOFT})
A = Gpu("GPU-a", 3, "NVIDIA-Tesla P4", "NVIDIA", 8000 * MIB, zones=(1,), isolations=SOFTLY, max_users=10)
CUT = Gpu("GPU-b", 4, None, "NVIDIA", 0, healthy=False, isolation=Isolation.PARTITIONED, max_users=10)


def test_cards_are_registered_as_json():
    other = CARD | {"id": "GPU-b", "index": 4, "mode": "mig", "health": False, "numa": -1, "devmem": 0, "type": ""}
    found = read_register(json.dumps([CARD, other]))
    assert found == (
        RegisteredCard(A, 100),
        RegisteredCard(replace(CUT, isolations=frozenset({Isolation.PARTITIONED}), partitions=()), 100),
    )
    assert read_register("[]") == read_register("") == ()


def test_cards_are_registered_in_the_older_form():
    seven = "GPU-a,10,8000,100,NVIDIA-Tesla P4,1,true"
    assert read_register(f"GPU-z,1,1,1,T,0,false:{seven}:")[1] == RegisteredCard(replace(A, index=1), 100)
    nine = read_register(f"{seven},3,hami-core:")
    assert nine == read_register(f"{seven},3,hami-core,more:") == (RegisteredCard(A, 100),)
    assert read_register(f"{seven},3,mig:")[0].gpu.isolation is Isolation.PARTITIONED
    assert not read_register(f"{seven},3,mig:".replace("true", "no"))[0].gpu.healthy


@pytest.mark.parametrize(
    "text",
    [
        *(
            "x",
            "a,b:",
            "[{}]",
            "[3]",
            "{}",
            "[",
            '[{"id": ""}]',
            "a,1,1,1,T,0,true,1:",
            "a,x,1,1,T,0,true:",
            "a,-1,1,1,T,0,true:",
        ),
        *(json.dumps([CARD, CARD]), json.dumps([CARD | {"devmem": -1}]), json.dumps([CARD | {"devmem": 2**62}])),
        *(json.dumps([CARD | {"id": str(number)} for number in range(1025)]), "a,1,1,1,T,0,true:" * 2000, "[" * 99_999),
    ],
)
def test_a_register_that_cannot_be_read_is_refused(text):
    with pytest.raises(InvalidAnnotation) as caught:
        read_register(text)
    assert caught.value.field == NVIDIA.register.annotation


def test_scores_are_links():
    text = json.dumps(
        [
            {"uuid": "a", "score": {"b": 100, "c": 60, "d": 50, "a": 0}},
            {"uuid": "b", "score": {"a": 100, "c": 40, "d": 1820}},
            {"uuid": "c", "score": {"a": 30, "d": 20}},
            {"uuid": "d", "score": {"c": 10, "e": 7, "f": 0}},
        ]
    )
    assert read_scores(text, key=SCORE) == (
        Link("a", "b", Path.UNKNOWN, 1),
        Link("a", "c", Path.PHB),
        Link("a", "d", Path.PIX),
        Link("b", "c", Path.PXB),
        Link("b", "d", Path.NODE, 18),
        Link("c", "d", Path.SYS),
        Link("d", "e", Path.UNKNOWN),
    )
    assert read_scores(json.dumps([{"uuid": "a", "score": {"b": 60}}]), key=SCORE) == (Link("a", "b", Path.BOARD),)
    for wrong in (
        "x",
        "[{}]",
        '[{"uuid": "a", "score": {"b": -1}}]',
        json.dumps([{"uuid": str(n)} for n in range(1025)]),
    ):
        with pytest.raises(InvalidAnnotation, match=SCORE):
            read_scores(wrong, key=SCORE)


def test_a_register_is_read_as_its_agent_writes_it():
    """Go writes the keys of a map in ascending order; a pair whose ends differ has the score 0, at both ends or one."""
    text = (
        '[{"uuid":"GPU-0","score":{"GPU-1":1250,"GPU-2":0,"GPU-3":10}},'
        '{"uuid":"GPU-1","score":{"GPU-0":1250,"GPU-2":20,"GPU-3":20}},'
        '{"uuid":"GPU-2","score":{"GPU-0":0,"GPU-1":20,"GPU-3":430}},'
        '{"uuid":"GPU-3","score":{"GPU-0":0,"GPU-1":20,"GPU-2":430}}]'
    )
    node = NodeText("n", {SCORE: text})
    assert registered_links(NVIDIA, node) == (
        Link("GPU-0", "GPU-1", Path.PIX, 12),
        Link("GPU-1", "GPU-2", Path.NODE),
        Link("GPU-1", "GPU-3", Path.NODE),
        Link("GPU-2", "GPU-3", Path.PHB, 4),
    )
    assert registered_links(NVIDIA, NodeText("n", {SCORE: '[{"uuid":"GPU-0","score":{}}]'})) == ()
    assert registered_links(NVIDIA, NodeText("n")) == ()


def family_of(name):
    return next(family for vendor in shipped() for family in vendor.family if family.name == name)


def test_cards_of_one_group_of_a_register_are_linked():
    cards = [CARD | {"id": f"N{n}", "index": n, "custominfo": {"NetworkID": n // 2}} for n in range(4)]
    ascend = family_of("Ascend910B4")
    found = registered_links(ascend, NodeText("n", {ascend.register.annotation: json.dumps(cards)}))
    assert found == (Link("N0", "N1", Path.UNKNOWN, 1), Link("N2", "N3", Path.UNKNOWN, 1))
    without = [{**card, "custominfo": None} for card in cards[:2]]
    assert registered_links(ascend, NodeText("n", {ascend.register.annotation: json.dumps(without)})) == ()
    metax = family_of("MetaX-sGPU")
    zones = [{"uuid": f"M{n}", "linkZone": zone} for n, zone in enumerate((1, 0, 1, 0, 2))]
    found = registered_links(metax, NodeText("n", {metax.register.annotation: json.dumps(zones)}))
    assert found == (Link("M0", "M2", Path.UNKNOWN, 1),)


@pytest.mark.parametrize("text", ["a,b", " a , b ,", '["a", "b"]', '["a", " b", ""]'])
def test_cards_can_be_excluded(text):
    assert read_cordon(text) == {"a", "b"}
    assert [card.cordoned for card in cordoned((A, Gpu("a", 0)), read_cordon(text))] == [False, True]


def test_a_cordon_ends_when_its_annotation_is_gone():
    assert read_cordon("") == read_cordon("[]") == frozenset()
    barred = cordoned((A,), frozenset({"GPU-a"}))
    assert cordoned(barred, frozenset()) == (A,)
    for wrong in ("[3]", "[", ",".join(map(str, range(1025)))):
        with pytest.raises(InvalidAnnotation, match=CORDON):
            read_cordon(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Requesting_2026.01.31 12:00:00", Handshake("Requesting", 1769860800.0)),
        ("Requesting_2026-01-31T12:00:00Z", Handshake("Requesting", 1769860800.0)),
        ("Reported_2026.01.31 12:00:00", Handshake("Reported", 1769860800.0)),
        *(("Deleted_", Handshake("Deleted")), ("", Handshake("")), ("Requesting_soon", Handshake("Requesting"))),
    ],
)
def test_handshakes_are_read(text, expected):
    found = read_handshake(text)
    assert found == expected
    asked = found.state == "Requesting" and found.at is not None
    assert [found.overdue(1769860800.0 + late) for late in (0, 60, 61)] == [False, False, asked]
