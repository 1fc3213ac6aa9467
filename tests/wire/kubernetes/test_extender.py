"""Requests to the extender and its responses, as kube-scheduler writes and reads them."""

import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.kubernetes.samples import sample
from tests.wire.topology.hostile import shaped
from ullage.model.error import InvalidRequest
from ullage.wire.extender import (
    BindResult,
    EmptyBody,
    FilterResult,
    PreemptionResult,
    encode_scores,
    read_args,
    read_bind,
    read_preemption,
)

POD = {"metadata": {"name": "p", "uid": "u-1"}, "spec": {"containers": [{"name": "c"}]}}
NODES = {"metadata": {}, "items": [{"metadata": {"name": name}, "status": {}} for name in ("b", "a", "c")]}


def body(**keys):
    return json.dumps(keys).encode()


# --- filter and prioritize ---


def test_nodes_can_be_offered_by_name():
    args = read_args(body(Pod=POD, Nodes=None, NodeNames=["b", "a"]))
    assert (args.pod, args.offered(), args.simulated) == (POD, ["b", "a"], False)


@pytest.mark.parametrize("spell", [str.lower, str.upper, str.swapcase, lambda name: name[0].lower() + name[1:]])
def test_keys_are_read_in_any_case(spell):
    args = read_args(body(**{spell("Pod"): POD, spell("NodeNames"): ["a"], spell("Nodes"): None}))
    assert (args.pod, args.offered()) == (POD, ["a"])
    bound = read_bind(body(**{spell(key): key for key in ("PodName", "PodNamespace", "PodUID", "Node")}))
    assert (bound.pod_name, bound.pod_namespace, bound.pod_uid, bound.node) == (
        *("PodName", "PodNamespace", "PodUID", "Node"),
    )
    victims = {"n": {spell("Pods"): [{spell("UID"): "v"}], spell("NumPDBViolations"): 1}}
    found = read_preemption(body(**{spell("Pod"): POD, spell("NodeNameToMetaVictims"): victims}))
    assert (found.victims["n"].uids, found.victims["n"].violations) == (("v",), 1)


def test_keys_of_later_versions_are_ignored_and_two_spellings_refused():
    assert read_args(body(Pod=POD, NodeNames=["a"], Later={"x": 1})).offered() == ["a"]
    with pytest.raises(InvalidRequest, match="two spellings"):
        read_args(body(Pod=POD, NodeNames=["a"], nodenames=["b"]))


def test_inside_a_pod_case_counts():
    assert read_args(body(Pod={"Spec": 1, "spec": 2}, NodeNames=[])).pod == {"Spec": 1, "spec": 2}


def test_an_answer_has_capital_keys():
    args = read_args(body(Pod=POD, NodeNames=["n3", "n1", "n2"]))
    answer = args.result(["n3", "n1"], {"n2": "1/1 CardInsufficientMemory"}, {})
    assert json.loads(answer.encode()) == {
        "Nodes": None,
        "NodeNames": ["n3", "n1"],
        "FailedNodes": {"n2": "1/1 CardInsufficientMemory"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def test_nodes_in_full_are_a_simulation_and_answered_in_full():
    args = read_args(body(Pod=POD, Nodes=NODES))
    assert (args.simulated, args.offered()) == (True, ["b", "a", "c"])
    answer = json.loads(args.result(["c", "b"], {}, {"a": "node unregistered"}).encode())
    assert answer["NodeNames"] is None
    assert answer["Nodes"] == {"metadata": {}, "items": [NODES["items"][0], NODES["items"][2]]}
    assert answer["FailedAndUnresolvableNodes"] == {"a": "node unregistered"}


def test_no_nodes_at_all_is_an_error_and_an_empty_list_is_none():
    assert read_args(body(Pod=POD, NodeNames=[])).offered() == []
    assert read_args(body(Pod=POD, Nodes={"items": None})).offered() == []
    with pytest.raises(InvalidRequest, match="NodeNames"):
        read_args(body(Pod=POD)).offered()
    for nodes in ({"items": {}}, {"items": [3]}, {"items": [{}]}, {"items": [{"metadata": {"name": ""}}]}):
        with pytest.raises(InvalidRequest, match=r"Nodes\.items"):
            read_args(body(Pod=POD, Nodes=nodes)).offered()


@pytest.mark.parametrize("raw", [b"", b"  \n"])
@pytest.mark.parametrize("read", [read_args, read_bind, read_preemption])
def test_an_empty_body_has_its_own_error(read, raw):
    with pytest.raises(EmptyBody) as caught:
        read(raw)
    assert caught.value.code == "empty-body"


@pytest.mark.parametrize(
    "raw",
    [
        *(b"{", b"[]", b"null", b"3", b'{"Pod": null, "NodeNames": []}', b'{"NodeNames": ["a"]}', b'{"Pod": []}'),
        *(b'{"Pod": {}, "NodeNames": "a"}', b'{"Pod": {}, "NodeNames": [1]}', b'{"Pod": {}, "Nodes": []}'),
        *(b'\xff{"Pod": {}}', b'{"Pod": {"a": "\xff"}, "NodeNames": ["\xff"]}', b'{"Pod": ' + b"[" * 200_000),
    ],
)
def test_an_unreadable_request_gives_an_ordinary_response(raw):
    with pytest.raises(InvalidRequest) as caught:
        read_args(raw)
    assert not isinstance(caught.value, EmptyBody)
    answer = json.loads(FilterResult(error=caught.value.message).encode())
    assert answer == {**answer, "Nodes": None, "NodeNames": None, "Error": caught.value.message}
    assert caught.value.message


def test_a_body_is_bounded():
    raw = body(Pod=POD, NodeNames=["a"])
    assert read_args(raw, most=len(raw)).offered() == ["a"]
    for read in (read_args, read_preemption, read_bind):
        with pytest.raises(InvalidRequest, match=f"at most {len(raw) - 1} are read"):
            read(raw, most=len(raw) - 1)


def test_scores_are_from_0_to_10():
    assert json.loads(encode_scores({"a": 0, "b": 10})) == [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 10}]
    assert encode_scores({}) == b"[]"
    for wrong in (-1, 11):
        with pytest.raises(InvalidRequest, match="Score"):
            encode_scores({"a": 3, "b": wrong})


# --- bind and preempt ---


@pytest.mark.parametrize("missing", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_a_bind_names_pod_and_node(missing):
    keys = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n"}
    with pytest.raises(InvalidRequest, match="body"):
        read_bind(body(**{key: value for key, value in keys.items() if key != missing}))
    with pytest.raises(InvalidRequest, match=missing):
        read_bind(body(**{**keys, missing: ""}))
    assert json.loads(BindResult().encode()) == {"Error": ""}


def test_victims_come_in_two_forms():
    whole = {"n": {"Pods": [{"metadata": {"uid": "v"}}], "NumPDBViolations": 2}, "m": {"Pods": None}}
    meta = {"n": {"Pods": [{"UID": "v"}], "NumPDBViolations": 2}, "m": {"Pods": []}}
    for keys in ({"NodeNameToVictims": whole}, {"NodeNameToMetaVictims": meta, "NodeNameToVictims": None}):
        found = read_preemption(body(Pod=POD, **keys))
        assert (found.pod, found.victims["n"].uids, found.victims["n"].violations) == (POD, ("v",), 2)
        assert found.victims["m"].uids == ()


def test_victims_are_returned_in_the_short_form():
    assert json.loads(PreemptionResult.of({"n": (["v", "w"], 1)}).encode()) == {
        "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "v"}, {"UID": "w"}], "NumPDBViolations": 1}}
    }


# --- a real cluster's ---


def test_recorded_requests_are_read():
    for name in ("filter", "prioritize"):
        args = read_args(sample(name))
        assert (args.offered(), args.simulated) == (["n0002", "n0020", "n0008"], False)
        assert args.pod["metadata"]["name"] == "p00015"
    assert set(json.loads(read_args(sample("filter")).result(["n0008"], {}, {}).encode())) == {
        *("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"),
    }
    assert read_bind(sample("bind")).node == "n0080"
    assert read_preemption(sample("preempt")).victims["n0000"].uids == ("f5b84d68-d555-40ec-bbd4-d29d6feb3a1f",)


# --- anything ---

_KEYS = ("Pod", "pod", "Nodes", "NodeNames", "nodenames", "items", "metadata", "name", "Pods", "UID", "uid")
_VICTIMS = {"n": {"Pods": [{"UID": "v", "metadata": {"uid": "v"}}], "NumPDBViolations": 1}}
_FILTER = {"Pod": POD, "Nodes": NODES, "NodeNames": ["a"], "nodeNames": ["b"]}
_PREEMPT = {"NodeNameToVictims": _VICTIMS, "NodeNameToMetaVictims": _VICTIMS}
_ARGS = _FILTER | _PREEMPT | {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "m"}


def _tried(raw):
    for read in (read_args, read_bind, read_preemption):
        with suppress(InvalidRequest):
            found = read(raw)
            if read is read_args:
                found.result(found.offered(), {}, {}).encode()


@given(shaped(_ARGS, _KEYS))
def test_any_document_is_read_or_refused(document):
    _tried(msgspec.json.encode(document))


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(raw):
    _tried(raw)
