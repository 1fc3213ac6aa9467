"""Numatopology objects of other writers and our own, which are read as they were written."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.topology.hostile import shaped
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.holding import Holding, MemoryHolding, PodHolding, Use
from ullage.model.node_record import NodeRecord, Stock
from ullage.model.resources import Resources
from ullage.model.topology import CardPicker, Cpu, Device, Kubelet, Link, Path, Room, Scope, Topology, Zone, ZonePolicy
from ullage.wire.topology.numatopology import read_numatopology
from ullage.wire.topology.numatopology_object import numatopology_object

GI = 2**30


def reported(annotations=None, **spec):
    metadata = {"name": "n1", "annotations": annotations or {}}
    return {"apiVersion": "nodeinfo.volcano.sh/v1alpha1", "kind": "Numatopology", "metadata": metadata, "spec": spec}


def read(annotations=None, **spec):
    record, warnings = read_numatopology(reported(annotations, **spec))
    assert warnings == ()
    return record


def cards(record):
    return [(card.index, card.zones) for card in record.cards]


# --- what others write ---

DOCUMENT = reported(
    {"timestamp": "1767225600"},
    policies={"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"},
    resReserved={"cpu": "1500m", "memory": "1Gi"},
    numares={
        "cpu": {"allocatable": "0-1,3", "capacity": 4},
        "nvidia.com/gpu": {"allocatable": "1", "capacity": 2},
    },
    cpuDetail={"0": {}, "1": {"core": 1}, "2": {"numa": 1, "socket": 1}, "3": {"numa": 1, "socket": 1, "core": 1}},
    gpuDetail={
        "0": {"busID": "0000:3b:00.0", "deviceModel": "A100"},
        "1": {"numa": 1, "busID": "0000:af:00.0", "deviceModel": "A100"},
    },
    podAllocations=[
        {
            "uid": "u1",
            "name": "p",
            "namespace": "team",
            "containerAllocations": [
                {"name": "c", "allocations": {"cpu": "2", "nvidia.com/gpu": "1", "memory": "1Gi"}}
            ],
        }
    ],
)


def test_a_whole_object():
    record, warnings = read_numatopology(DOCUMENT)
    assert warnings == ()
    memory = (MemoryHolding("memory", (), GI),)
    assert record == NodeRecord(
        node="n1",
        topology=Topology(
            zones=(Zone(0), Zone(1)),
            cpus=(Cpu(0, 0, 0, 0), Cpu(1, 0, 0, 1), Cpu(2, 1, 1, 0), Cpu(3, 1, 1, 1)),
            reserved_count=2,
            kubelet=Kubelet(ZonePolicy.RESTRICTED, static_cpus=True),
            source="numatopology",
            observed_at=1767225600.0,
        ),
        cards=(
            Gpu("", 0, zones=(0,), bus_id="0000:3b:00.0", model="A100", vendor="NVIDIA"),
            Gpu("", 1, zones=(1,), bus_id="0000:af:00.0", model="A100", vendor="NVIDIA"),
        ),
        card_resource="nvidia.com/gpu",
        stock={"cpu": Stock(4, (0, 1, 3)), "gpu": Stock(2, (1,))},
        reserved=Resources(1500, GI),
        use=Use((PodHolding("team", "p", "u1", (Holding("c", (2,), counts=(("gpu", 1),), memory=memory),)),)),
    )


def test_everything_is_optional():
    record = read()
    assert (record.topology.zones, record.cards, record.stock, record.use) == ((), (), {}, None)
    assert record.topology.kubelet == Kubelet()
    assert read_numatopology({"metadata": {"name": "n1"}})[0] == record


def test_a_key_that_is_not_an_index_is_dropped_and_named():
    detail = {str(index): {"numa": index // 2} for index in range(4)}
    record, warnings = read_numatopology(reported(gpuDetail={**detail, "badkey": {"numa": 0}}))
    assert cards(record) == [(0, (0,)), (1, (0,)), (2, (1,)), (3, (1,))]
    assert len(warnings) == 1
    assert "badkey" in warnings[0]
    assert read().cards == ()


def test_a_negative_zone_is_unknown_and_not_zone_0():
    record = read(gpuDetail={"0": {"numa": -1, "busID": "0000:3b:00.0"}}, cpuDetail={"0": {"numa": -1}})
    assert cards(record) == [(0, ())]
    assert record.cards[0].bus_id == "0000:3b:00.0"
    assert record.topology.cpus == (Cpu(0, None, 0, 0),)
    assert record.topology.zones == ()


def test_a_card_without_detail_has_an_unknown_zone():
    record = read(numares={"nvidia.com/gpu": {"allocatable": "0", "capacity": 2}}, gpuDetail={"1": {"numa": 1}})
    assert cards(record) == [(0, ()), (1, (1,))]


def test_the_short_name_gpu_means_cards_where_it_is_the_only_one():
    record = read(numares={"gpu": {"allocatable": "1", "capacity": 2}, "cpu": {"capacity": 4}})
    assert (record.stock["gpu"], record.card_resource) == (Stock(2, (1,)), "")
    both = {"gpu": {"allocatable": "1", "capacity": 2}, "nvidia.com/gpu": {"capacity": 8}}
    record, warnings = read_numatopology(reported(numares=both))
    assert record.stock == {"nvidia.com/gpu": Stock(8)}
    assert ["gpuDetail" in warnings[0], "numares.gpu" in warnings[1]] == [True, True]


TWO_VENDORS = {"nvidia.com/gpu": {"allocatable": "0-1", "capacity": 2}, "amd.com/gpu": {"capacity": 1}}


def test_cards_are_of_the_resource_that_counts_as_many_where_several_vendors_have_some():
    record = read(numares=TWO_VENDORS, gpuDetail={"0": {}, "1": {"numa": 1}})
    assert (record.card_resource, {card.vendor for card in record.cards}) == ("nvidia.com/gpu", {"NVIDIA"})
    assert record.stock["amd.com/gpu"] == Stock(1)


def test_the_vendor_of_cards_under_several_resources_is_unknown_and_reported():
    tie = {"nvidia.com/gpu": {"capacity": 1}, "amd.com/gpu": {"capacity": 1}}
    record, warnings = read_numatopology(reported(numares=tie, gpuDetail={"0": {}}))
    assert [card.vendor for card in record.cards] == [None]
    assert "it is unknown which of nvidia.com/gpu, amd.com/gpu its 1 cards are" in warnings[0]


def test_our_own_object_names_the_resource_of_its_cards():
    cards = tuple(Gpu(f"GPU-{n}", n, vendor="NVIDIA", zones=(0,)) for n in range(1))
    display = Device("amd.com/gpu", 0, "0000:06:00.0", zones=(0,))
    record = NodeRecord(
        "n1",
        Topology((Zone(0),), devices=(display,)),
        cards,
        "nvidia.com/gpu",
        {"gpu": Stock(1, (0,)), "amd.com/gpu": Stock(1, (0,))},
    )
    found, warnings = read_numatopology(numatopology_object(record))
    assert warnings == ()
    assert (found.card_resource, [card.vendor for card in found.cards]) == ("nvidia.com/gpu", ["NVIDIA"])


def test_holders_are_unknown_if_one_cannot_be_read():
    unreadable = {"containerAllocations": [{"allocations": {"nvidia.com/gpu": "many"}}]}
    good = DOCUMENT["spec"]["podAllocations"][0]
    record, warnings = read_numatopology(reported(podAllocations=[good, unreadable]))
    assert record.use is None
    assert "allocations.nvidia.com/gpu" in warnings[0]


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"numares": {"cpu": {"allocatable": "0-99999999999"}}}, "numares.cpu.allocatable"),
        ({"numares": {"cpu": {"capacity": -1}}}, "numares.cpu.capacity"),
        ({"numares": {"cpu": "0-3"}}, "numares.cpu"),
        ({"cpuDetail": {"0": {"numa": "0"}}}, "cpuDetail.0.numa"),
        ({"cpuDetail": {"0": {"core": 2**31}}}, "cpuDetail.0.core"),
        ({"cpuDetail": {"65536": {}}}, "cpuDetail.65536"),
        ({"cpuDetail": ["0"]}, "cpuDetail"),
        ({"gpuDetail": {"0": {"numa": True}}}, "gpuDetail.0.numa"),
        ({"resReserved": {"cpu": "much"}}, "resReserved.cpu"),
        ({"policies": {"TopologyManagerPolicy": "strict"}}, "TopologyManagerPolicy"),
        ({"podAllocations": ["p"]}, "podAllocations[0]"),
        ({"podAllocations": [{"containerAllocations": [{"allocations": {"cpu": "a"}}]}]}, "allocations.cpu"),
    ],
)
def test_a_malformed_entry_is_dropped_and_named_and_the_rest_stays(spec, named):
    rest = {"numares": {"x": {"capacity": 1}}, "cpuDetail": {"9": {}}, "gpuDetail": {"9": {}}}
    merged = {
        name: {**rest.get(name, {}), **reported} if isinstance(reported, dict) else reported
        for name, reported in spec.items()
    }
    record, warnings = read_numatopology(reported(**{**rest, **merged}))
    assert len(warnings) == 1
    assert named in warnings[0]
    assert ("x" in record.stock, 9 in [card.index for card in record.cards]) == (True, True)


@pytest.mark.parametrize("detail", ["cpuDetail", "gpuDetail"])
def test_a_zone_above_63_refuses_the_record(detail):
    with pytest.raises(InvalidRequest) as refused:
        read_numatopology(reported(**{detail: {"0": {"numa": 64}}}))
    assert refused.value.code == "topology-invalid"


def test_many_short_sets_cannot_name_more_ids_than_a_machine_has():
    """A megabyte of them would stand for a thousand million ids."""
    allocations = [{"name": str(number), "allocations": {"cpu": "0-65535"}} for number in range(20_000)]
    resources = {f"a.b/{number}": {"allocatable": "0-65535", "capacity": 1} for number in range(20_000)}
    document = reported(numares=resources, podAllocations=[{"uid": "u", "containerAllocations": allocations}])
    record, warnings = read_numatopology(document)
    assert sum(len(stock.free) for stock in record.stock.values()) == 2**18
    assert warnings[-1] == f"and {40_000 - 4 - 100} more"


def test_a_repeated_cpu_refuses_the_record_quickly():
    detail = {str(id_): {} for id_ in range(60_000)}
    with pytest.raises(InvalidRequest) as refused:
        read_numatopology(reported(cpuDetail={**detail, "00": {}}))
    assert refused.value.code == "topology-invalid"
    assert len(refused.value.message) < 300


def test_an_annotation_with_an_amount_out_of_range_is_left_out():
    memory = {"kind": "memory", "zones": [0], "amount_bytes": -1}
    more = {"pods": [{"uid": "u", "containers": [{"name": "c", "memory": [memory]}]}]}
    _, warnings = read_numatopology(reported({"ullage.io/topology": json.dumps(more)}))
    assert len(warnings) == 1
    assert "ullage.io/topology" in warnings[0]


def test_cards_beyond_the_maximum_are_not_listed():
    assert len(read(numares={"gpu": {"capacity": 2**31 - 1}}).cards) == 4096


@pytest.mark.parametrize("document", [None, [], "x", {}, {"kind": "Node"}, {"metadata": {"name": 7}}, {"metadata": []}])
def test_objects_of_another_kind_are_refused(document):
    with pytest.raises(InvalidRequest):
        read_numatopology(document)


# --- what we write ---


def test_free_cards_are_a_set_and_none_is_the_empty_one():
    topology = Topology()
    spec = numatopology_object(NodeRecord("n1", topology, stock={"gpu": Stock(4, (1, 3))}, card_resource="a.b/gpu"))
    assert spec["spec"]["numares"] == {"a.b/gpu": {"allocatable": "1,3", "capacity": 4}}
    assert numatopology_object(NodeRecord("n1", topology, stock={"gpu": Stock(4)}))["spec"]["numares"] == {
        "gpu": {"allocatable": "", "capacity": 4}
    }


def test_an_object_is_written_with_its_zeros_and_without_cards_of_unknown_zone():
    record = replace(read_numatopology(DOCUMENT)[0], cards=(Gpu("g", 0, zones=(0,)), Gpu("h", 1)))
    written = numatopology_object(record, node_uid="node-1")
    assert written["metadata"]["name"] == "n1"
    assert written["metadata"]["annotations"]["timestamp"] == "1767225600"
    assert written["metadata"]["ownerReferences"][0]["uid"] == "node-1"
    spec = written["spec"]
    assert spec["cpuDetail"]["0"] == {"numa": 0, "socket": 0, "core": 0}
    assert spec["gpuDetail"] == {"0": {"numa": 0, "busID": "", "deviceModel": ""}}
    assert spec["policies"] == {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"}
    assert spec["resReserved"] == {"cpu": "1500m", "memory": str(GI)}
    allocations = {"cpu": "2", "memory": str(GI), "nvidia.com/gpu": "1"}
    assert spec["podAllocations"][0]["containerAllocations"] == [{"name": "c", "allocations": allocations}]


def test_who_picks_cards_is_not_written():
    record = read_numatopology(DOCUMENT)[0]
    named = replace(record.topology, kubelet=replace(record.topology.kubelet, picks=CardPicker.NAMED))
    written = numatopology_object(replace(record, topology=named))
    kept = json.loads(written["metadata"]["annotations"]["ullage.io/topology"])["kubelet"]
    assert sorted(kept) == sorted(field.name for field in fields(Kubelet) if field.name != "picks")
    assert read_numatopology(written)[0].topology.kubelet == record.topology.kubelet


def test_annotations_of_another_scheduler_suffice():
    """Without our annotation, the fields alone give the same places."""
    written = numatopology_object(read_numatopology(DOCUMENT)[0])
    del written["metadata"]["annotations"]["ullage.io/topology"]
    assert read_numatopology(written)[0] == read_numatopology(DOCUMENT)[0]


ZONE_SETS = st.sets(st.integers(0, 3)).map(lambda ids: tuple(sorted(ids)))
NAMES = st.text("abc-.", min_size=1, max_size=5)
ID_SETS = st.sets(st.integers(0, 300), max_size=8).map(lambda ids: tuple(sorted(ids)))
ROOMS = st.builds(Room, st.integers(0, 2**56), st.integers(0, 2**56))
RESOURCES = st.sampled_from(["gpu", "example.com/nic", "example.com/fpga"])
HOLDINGS = st.builds(
    Holding,
    container=NAMES,
    cpus=ID_SETS,
    devices=st.dictionaries(RESOURCES, st.lists(NAMES, min_size=1, max_size=3).map(tuple), max_size=2).map(
        lambda found: tuple(sorted(found.items()))
    ),
    memory=st.lists(
        st.builds(MemoryHolding, st.sampled_from(["memory", "hugepages-2Mi"]), ZONE_SETS, st.integers(0, 2**50)),
        max_size=2,
    ).map(tuple),
)
PODS = st.builds(
    PodHolding,
    NAMES,
    NAMES,
    NAMES,
    st.lists(HOLDINGS, max_size=2, unique_by=lambda one: one.container).map(
        lambda found: tuple(sorted(found, key=lambda one: one.container))
    ),
)


LINKS = st.lists(
    st.builds(Link, NAMES, NAMES, st.sampled_from(Path), st.integers(0, 18)),
    max_size=2,
    unique_by=lambda link: (link.a, link.b),
).map(lambda found: tuple(sorted(found, key=lambda link: (link.a, link.b))))


def pod_key(pod):
    return pod.namespace, pod.name, pod.uid


def pods_in_order(pods):
    return tuple(sorted(pods, key=pod_key))


@st.composite
def records(draw):
    zones = tuple(
        Zone(id_, draw(st.none() | ROOMS), draw(st.dictionaries(st.sampled_from([2**21, 2**30]), ROOMS)))
        for id_ in range(4)
    )
    cpus = tuple(
        Cpu(id_, draw(st.none() | st.integers(0, 3)), draw(st.integers(0, 1)), draw(st.integers(0, 9)))
        for id_ in draw(ID_SETS)
    )
    cards = tuple(
        Gpu(
            draw(NAMES),
            index,
            zones=draw(ZONE_SETS),
            bus_id=draw(st.none() | NAMES),
            model=draw(st.none() | NAMES),
            healthy=draw(st.booleans()),
            vendor="NVIDIA",
        )
        for index in draw(ID_SETS)
    )
    reserved = Resources(draw(st.integers(0, 9000)), draw(st.integers(0, 2**40)))
    reserved_cpus = frozenset(draw(ID_SETS))
    options = st.dictionaries(NAMES, NAMES, max_size=2)
    machine = Topology(
        zones=zones,
        distances=draw(st.just(()) | st.just(((10, 11, 12, 12),) * 4)),
        cpus=cpus,
        devices=tuple(
            Device("example.com/nic", index, draw(NAMES), draw(st.none() | NAMES), draw(ZONE_SETS))
            for index in range(draw(st.integers(0, 2)))
        ),
        links=draw(LINKS),
        reserved_cpus=reserved_cpus,
        reserved_count=0 if reserved_cpus else -(-reserved.cpu_milli // 1000),
        kubelet=draw(
            st.none()
            | st.builds(
                Kubelet,
                st.sampled_from(ZonePolicy),
                st.sampled_from(Scope),
                options,
                st.booleans(),
                options,
                st.booleans(),
            )
        ),
        source="numatopology",
        observed_at=draw(st.none() | st.integers(0, 2**40).map(float)),
    )
    return NodeRecord(
        node=draw(NAMES),
        topology=machine,
        cards=cards,
        card_resource="nvidia.com/gpu",
        stock={"gpu": Stock(len(cards), draw(ID_SETS)), "cpu": Stock(len(cpus), draw(ID_SETS))},
        reserved=reserved,
        use=draw(
            st.none() | st.builds(Use, st.lists(PODS, max_size=2, unique_by=pod_key).map(pods_in_order), st.booleans())
        ),
    )


@given(records(), st.sampled_from(["ullage.io", "tensor-fusion.ai"]))
def test_a_record_comes_back_as_it_was_written(record, domain):
    document = json.loads(json.dumps(numatopology_object(record, domain)))
    assert read_numatopology(document, domain) == (record, ())


def backwards(record):
    machine, use = record.topology, record.use
    turned = {name: getattr(machine, name)[::-1] for name in ("cpus", "devices", "links")}
    return replace(
        record,
        topology=replace(machine, **turned),
        cards=record.cards[::-1],
        stock=dict(reversed(record.stock.items())),
        use=use and replace(use, pods=tuple(replace(pod, containers=pod.containers[::-1]) for pod in use.pods[::-1])),
    )


@given(records())
def test_the_order_of_a_record_does_not_change_the_object(record):
    assert json.dumps(numatopology_object(backwards(record))["metadata"]) == json.dumps(
        numatopology_object(record)["metadata"]
    )
    assert numatopology_object(backwards(record))["spec"] == numatopology_object(record)["spec"]


# --- hostile documents ---

KEYS = ["spec", "numares", "numa", "allocatable", "capacity", "cpu", "gpu", "ullage.io/topology", "timestamp"]


@given(shaped(DOCUMENT, KEYS))
def test_any_document_is_a_record_or_refused(document):
    try:
        record, _ = read_numatopology(document)
    except InvalidRequest:
        return
    assert record.node


SUPPLEMENT = json.loads(
    numatopology_object(
        NodeRecord(
            "n1",
            Topology(
                (Zone(0, Room(9, 8)),),
                ((10,),),
                (Cpu(0, None, 0, 0),),
                (Device("n", 0, "d", None, (0,)),),
                (Link("a", "b"),),
                kubelet=Kubelet(),
            ),
            (Gpu("u", 0, zones=(0,)),),
        )
    )["metadata"]["annotations"]["ullage.io/topology"]
)


@given(shaped(SUPPLEMENT, ["zones", "cpus", "id", "index"]))
def test_any_annotation_is_read_left_out_or_refused(supplement):
    document = reported({"ullage.io/topology": json.dumps(supplement)}, cpuDetail={"1": {}})
    try:
        record, _ = read_numatopology(document)
    except InvalidRequest:
        return
    assert 1 in [cpu.id for cpu in record.topology.cpus]
