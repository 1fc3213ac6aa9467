"""Placements of pods: ours with ids, Volcano's with amounts; both are read again, all else is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.pod.placements import PLACEMENTS
from tests.wire.pod.pods import pod
from ullage.model.error import InvalidAnnotation, InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.topology import Cpu, Device, Topology, Zone
from ullage.model.zone_placement import Rank, ZonePlacement
from ullage.wire.pod.placement import decision_annotations, placement_annotations, read_placement

GI = 2**30
MACHINE = Topology(
    zones=(Zone(0), Zone(1)),
    cpus=(*(Cpu(id_, id_ // 4, id_ // 4, id_) for id_ in range(8)), Cpu(8, None, 0, 8)),
    devices=(Device("example.com/nic", 0, "nic-0", zones=(0, 1)), Device("example.com/nic", 1, "nic-1")),
)
CARDS = (Gpu("g0", 0, zones=(0,)), Gpu("g1", 1, zones=(1,)), Gpu("g2", 2))


def written(annotations):
    return pod(metadata={"annotations": annotations})


@given(PLACEMENTS, st.sampled_from(["ullage.io", "tensor-fusion.ai"]))
def test_a_placement_is_read_as_it_was_written(placement, domain):
    assert read_placement(written(placement_annotations(placement, domain)), domain) == placement


def test_a_pod_without_annotations_was_not_placed():
    assert read_placement(pod()) is None


def test_the_decision_has_amounts_by_zone_in_the_words_of_the_cluster():
    placement = ZonePlacement(
        zones=(1,),
        cpus=(3, 4, 5, 8),
        devices=(("example.com/nic", ("nic-0", "nic-1")), ("gpu", ("g0", "g1", "g2"))),
        memory=((1, GI),),
    )
    found = decision_annotations(placement, MACHINE, CARDS, "nvidia.com/gpu")
    assert json.loads(found["volcano.sh/topology-decision"]) == {
        "numa": {
            "0": {"cpu": "1", "nvidia.com/gpu": "1"},
            "1": {"cpu": "2", "example.com/nic": "1", "memory": str(GI), "nvidia.com/gpu": "1"},
        }
    }
    assert read_placement(written(found)) == ZonePlacement(
        zones=(0, 1),
        memory=((1, GI),),
        rank=Rank.BOUND,
        amounts=((0, "cpu", 1), (0, "gpu", 1), (1, "cpu", 2), (1, "example.com/nic", 1), (1, "gpu", 1)),
    )


def test_a_decision_is_read_in_quantities():
    text = (
        '{"numa": {"1": {"cpu": "4", "memory": "8Gi", "hugepages-2Mi": "1Gi", "amd.com/gpu": "2", "x/y": 0}, "0": {}}}'
    )
    found = read_placement(written({"volcano.sh/topology-decision": text}))
    assert (found.zones, found.memory) == ((0, 1), ((1, 8 * GI),))
    assert found.amounts == ((1, "cpu", 4), (1, "gpu", 2), (1, "hugepages-2Mi", GI))


def test_our_annotation_takes_precedence_over_that_of_volcano():
    placement = ZonePlacement(zones=(0,), cpus=(0, 1))
    both = {"volcano.sh/topology-decision": '{"numa": {"1": {}}}', **placement_annotations(placement)}
    assert read_placement(written(both)) == placement


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("ullage.io/numa-placement", "0"),
        ("ullage.io/numa-placement", '{"zones": [64]}'),
        ("ullage.io/numa-placement", '{"cpus": "0-99999999999"}'),
        ("ullage.io/numa-placement", '{"rank": "seen"}'),
        ("ullage.io/numa-placement", '{"place": 1}'),
        ("volcano.sh/topology-decision", "numa"),
        ("volcano.sh/topology-decision", '{"numa": [0]}'),
        ("volcano.sh/topology-decision", '{"numa": {"-1": {}}}'),
        ("volcano.sh/topology-decision", '{"numa": {"64": {}}}'),
        ("volcano.sh/topology-decision", '{"numa": {"0": {"cpu": "four"}}}'),
        ("volcano.sh/topology-decision", '{"numa": {"0": {"memory": "1Ei"}}}'),
        ("volcano.sh/topology-decision", "[" * 100_000),
    ],
)
def test_a_malformed_annotation_is_refused_with_its_key(key, text):
    with pytest.raises(InvalidAnnotation, match=key.replace(".", r"\.")):
        read_placement(written({key: text}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["0", "4", "1Gi", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["numa", "0", "64", "cpu", "zones", "cpus", "memory"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from(["ullage.io/numa-placement", "volcano.sh/topology-decision"]), JSON)
def test_any_value_is_a_placement_or_refused(key, value):
    for text in (json.dumps(value), value):
        try:
            found = read_placement(written({key: text}))
        except InvalidRequest:
            continue
        assert found is None or isinstance(found, ZonePlacement)
