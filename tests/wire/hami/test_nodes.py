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
    SCORE,
    Handshake,
    cordoned,
    read_cordon,
    read_handshake,
    read_scores,
)
from ullage.wire.vendors.registers import RegisteredCard
from ullage.wire.vendors.shipped import NVIDIA

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
    assert read_scores(text) == (
        Link("a", "b", Path.UNKNOWN, 1),
        Link("a", "c", Path.PHB),
        Link("a", "d", Path.PIX),
        Link("b", "c", Path.PXB),
        Link("b", "d", Path.NODE, 18),
        Link("c", "d", Path.SYS),
        Link("d", "e", Path.UNKNOWN),
    )
    assert read_scores(json.dumps([{"uuid": "a", "score": {"b": 60}}])) == (Link("a", "b", Path.BOARD),)
    for wrong in (
        "x",
        "[{}]",
        '[{"uuid": "a", "score": {"b": -1}}]',
        json.dumps([{"uuid": str(n)} for n in range(1025)]),
    ):
        with pytest.raises(InvalidAnnotation, match=SCORE):
            read_scores(wrong)


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
