"""The cards of nodes in the forms in which the agents of vendors register them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.error import InvalidRequest
from ullage.model.part import Isolation
from ullage.wire.vendors.profiles import SliceAsk, profile_for, read_profiles
from ullage.wire.vendors.registers import NodeText, registered_cards, serves
from ullage.wire.vendors.shipped import FAMILIES

MIB = 2**20
SOFT = frozenset({Isolation.SHARED, Isolation.SOFT})
HARD = frozenset({Isolation.SHARED, Isolation.HARD})


def family(name):
    return next(each for each in FAMILIES if each.name == name)


def cards_of(name, annotations=None, **amounts):
    return registered_cards(family(name), NodeText("n", annotations or {}, amounts))


def test_a_node_without_a_register_has_no_cards_of_a_family():
    for each in FAMILIES:
        assert registered_cards(each, NodeText("n")) is None
        assert not serves(each, NodeText("n"))


def test_cards_of_metax_have_their_own_form():
    devices = [
        {"uuid": "M0", "model": "C500", "totalDevCount": 4, "totalCompute": 100, "totalVRam": 65536, "numa": 1}
        | {"healthy": True, "qosPolicy": "best-effort", "linkZone": 2},
        {"uuid": "M1", "numa": -1},
    ]
    first, second = cards_of("MetaX-sGPU", {"metax-tech.com/node-gpu-devices": json.dumps(devices)})
    assert (first.gpu.model, first.gpu.vram_bytes, first.gpu.zones) == ("C500", 65536 * MIB, (1,))
    assert (first.gpu.max_users, first.gpu.isolations, first.cores) == (4, SOFT, 100)
    assert first.facts == {"LinkZone": 2, "class": "best-effort"}
    assert (second.gpu.healthy, second.gpu.zones, second.gpu.index) == (False, (), 1)


def test_cards_of_enflame_have_the_slices_of_their_node():
    spec = {"devices": [{"capacity": "6", "index": "x"}], "profiles": {"1g.6gb": "0", "6g.36gb": "5", "x": "9"}}
    (only,) = cards_of("Enflame-DRS", {"enflame.com/gcu-drs-capacity": json.dumps(spec)})
    assert (only.gpu.uuid, only.gpu.vram_bytes, only.gpu.max_users) == ("n-enflame-drs-0", 36864 * MIB, 6)
    assert only.facts["minor"] == "0"
    assert [(each.size, each.memory_gib, each.cores) for each in only.facts["profiles"]] == [(1, 6, 17), (6, 36, 100)]


@pytest.mark.parametrize(
    ("name", "amounts", "cards"),
    [
        ("Cambricon", {"mlu.smlu.vcore": "250", "mlu.smlu.vmemory": "200"}, [(0, 20480), (1, 20480), (2, 20480)]),
        ("MooreThreads", {"sgpu-core": "32", "sgpu-memory": "192"}, [(0, 49152), (1, 49152)]),
        ("KunlunXin", {"xpu": "4"}, [(0, 98304), (0, 98304), (1, 98304), (1, 98304)]),
        ("MetaX", {"gpu": "1"}, [(None, 65536)]),
        ("Enflame", {"gcu": "0"}, []),
    ],
)
def test_cards_that_the_capacity_of_a_node_counts(name, amounts, cards):
    domain = family(name).resources.count.partition("/")[0]
    found = cards_of(name, **{f"{domain}/{key}": value for key, value in amounts.items()})
    assert [each.gpu.vram_bytes // MIB for each in found] == [mib for _, mib in cards]
    if name == "KunlunXin":
        assert [each.gpu.zones for each in found] == [(zone,) for zone, _ in cards]
    assert [each.gpu.index for each in found] == list(range(len(cards)))


def test_devices_of_neuron_have_the_cores_of_their_node():
    found = cards_of("AWSNeuron", **{"aws.amazon.com/neuron": "2", "aws.amazon.com/neuroncore": "16"})
    assert [(each.gpu.uuid, each.cores, each.gpu.max_users) for each in found] == [
        ("n-AWSNeuron-0", 8, 8),
        ("n-AWSNeuron-1", 8, 8),
    ]


def test_a_node_says_whether_cards_of_ascend_take_the_soft_mode():
    register = {"hami.io/node-register-Ascend310P": '[{"id": "N0", "devmem": 21527, "health": true}]'}
    ((hard,), (soft,)) = (cards_of("Ascend310P", register | {"hami-vnpu-core": said}) for said in ("false", "true"))
    assert hard.gpu.isolations == HARD
    assert soft.gpu.isolations == HARD | SOFT


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Enflame-DRS", '{"devices": [{"capacity": 0}], "profiles": {"1g.6gb": "0"}}'),
        ("Enflame-DRS", '{"devices": [{"capacity": 6}], "profiles": {"x": "0"}}'),
        ("Enflame-DRS", '{"devices": {}}'),
        ("MetaX-sGPU", '[{"uuid": ""}]'),
        ("MetaX-sGPU", '[{"uuid": "M0"}, {"uuid": "M0"}]'),
        ("MetaX-sGPU", json.dumps([{"uuid": f"M{at}"} for at in range(1025)])),
        ("Hygon", "D0,1,1,1,T,0"),
        ("Biren", "[["),
    ],
)
def test_a_register_that_cannot_be_read_is_refused_by_its_key(name, text):
    with pytest.raises(InvalidRequest) as caught:
        cards_of(name, {family(name).register.annotation: text})
    assert caught.value.field == family(name).register.annotation


def test_more_cards_than_a_node_has_are_refused():
    with pytest.raises(InvalidRequest, match="at most 1024"):
        cards_of("Enflame", **{"enflame.com/gcu": "1025"})


@given(st.text(max_size=40) | st.recursive(st.none() | st.text(max_size=3), st.lists).map(json.dumps))
def test_any_text_is_read_or_refused(text):
    for each in FAMILIES:
        if each.register.annotation:
            try:
                registered_cards(each, NodeText("n", {each.register.annotation: text}))
            except InvalidRequest:
                continue


def test_the_smallest_slice_that_suffices():
    profiles = read_profiles({"1g.6gb": "0", "2g.12gb": "1", "3g.18gb": "2", "6g.36gb": "5"})
    asked = {
        SliceAsk(size=2): "2g.12gb",
        SliceAsk(size=4): None,
        SliceAsk(memory=13): "3g.18gb",
        SliceAsk(memory=73): "1g.6gb",  # more than twice the largest: MiB
        SliceAsk(memory=13000): "3g.18gb",
        SliceAsk(memory=37): None,
        SliceAsk(cores=34): "2g.12gb",
        SliceAsk(memory=6, cores=51): "6g.36gb",
    }
    for ask, name in asked.items():
        found = profile_for(ask, profiles)
        assert (found and found.name) == name
