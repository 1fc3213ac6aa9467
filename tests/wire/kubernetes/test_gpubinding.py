"""GPUBinding objects, and their labels and annotations."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.topology.hostile import shaped
from ullage.model.affinity import Expression, Operator
from ullage.model.binding import Binding, BindingMismatch, BindingState, Consume, ShareMode, Tenant
from ullage.model.error import InvalidRequest
from ullage.wire.gpubinding import (
    binding_name,
    consume_of,
    read_binding,
    read_memory,
    share_mode,
    tenant_of,
    write_binding,
    write_memory,
)

MIB = 2**20
GIB = 2**30
SPEC = {"uuid": "GPU-1", "appName": "comfyui", "owner": "alice", "namespace": "user-alice", "podSelector": {}}
ALICE = Tenant("comfyui", "alice", "user-alice", {"tier": "gpu"})


def thing(*, labels=None, annotations=None, **spec):
    return {
        "apiVersion": "gpu.bytetrade.io/v1alpha1",
        "kind": "GPUBinding",
        "metadata": {"name": "b", "labels": labels, "annotations": annotations},
        "spec": {key: value for key, value in (SPEC | spec).items() if value is not ...},
    }


# --- objects ---


def test_an_object_is_read():
    found = read_binding(thing(memory="8192", labels={"gpu.bytetrade.io/mode": "nvidia"}))
    assert found == Binding(
        *("b", "GPU-1", "comfyui", "alice", "user-alice", ()), memory_bytes=8 * GIB, accelerator="nvidia"
    )
    assert found.mismatch(ALICE) is None


def test_a_binding_without_owner_or_namespace_is_legacy_unless_it_states_otherwise():
    for left_out in ({"owner": ..., "namespace": ...}, {"namespace": ""}, {"owner": None}):
        assert read_binding(thing(**left_out)).legacy
        assert not read_binding(thing(annotations={"ullage.io/legacy": "false"}, **left_out)).legacy
    old = read_binding(thing(owner=..., namespace=...))
    assert old.mismatch(Tenant("comfyui", "bob", "user-bob")) is None
    assert old.mismatch(Tenant("comfyui", "bob", "user-bob"), strict=True) is BindingMismatch.WILDCARD
    assert not read_binding(thing()).legacy


@pytest.mark.parametrize(("uuid", "app"), [("", "a"), (None, "a"), (..., "a"), ("u", ""), ("u", ...)])
def test_a_binding_without_a_card_or_an_application_is_invalid(uuid, app):
    found = read_binding(thing(uuid=uuid, appName=app))
    assert found.state is BindingState.INVALID
    assert found.reason.startswith("spec.appName" if uuid == "u" else "spec.uuid")
    assert found.mismatch(Tenant(found.app, "alice", "user-alice")) is BindingMismatch.INVALID


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, BindingMismatch.SELECTOR),
        (..., BindingMismatch.SELECTOR),
        ({}, None),
        ({"matchLabels": None, "matchExpressions": None}, None),
        ({"matchLabels": {"tier": "gpu"}}, None),
        ({"matchLabels": {"tier": "cpu"}}, BindingMismatch.SELECTOR),
        ({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gpu", "x"]}]}, None),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gpu"]}]}, BindingMismatch.SELECTOR),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, None),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, BindingMismatch.SELECTOR),
        (
            {"matchLabels": {"tier": "gpu"}, "matchExpressions": [{"key": "x", "operator": "Exists", "values": []}]},
            BindingMismatch.SELECTOR,
        ),
    ],
)
def test_null_selects_nothing_and_empty_everything(selector, expected):
    assert read_binding(thing(podSelector=selector)).mismatch(ALICE) is expected


@pytest.mark.parametrize(
    "selector",
    [
        *([], "x", {"matchLabels": []}, {"matchLabels": {"tier": 1}}, {"matchLabels": {"": "x"}}, {"matchlabels": {}}),
        *({"matchExpressions": {}}, {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
        {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]},
        {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": [3]}]},
        {"matchExpressions": [{"operator": "Exists"}]},
    ],
)
def test_an_invalid_selector_selects_nothing_and_states_the_reason(selector):
    found = read_binding(thing(podSelector=selector))
    assert (found.state, found.mismatch(ALICE)) == (BindingState.INVALID, BindingMismatch.INVALID)
    assert found.reason


def test_an_object_of_another_kind_is_refused():
    for wrong in ({"kind": "Pod"}, {"apiVersion": "v1"}, {"metadata": {}}, {"metadata": {"name": ""}}, {"spec": []}):
        with pytest.raises(InvalidRequest):
            read_binding(thing() | wrong)


def test_an_object_is_written_as_it_is_defined():
    selector = (Expression("tier", Operator.IN, ("gpu",)), Expression("x", Operator.DOES_NOT_EXIST))
    document = write_binding(
        Binding("b", "GPU-1", "comfyui", "alice", "ns", selector, 16_000 * MIB, accelerator="nvidia")
    )
    assert document == {
        "apiVersion": "gpu.bytetrade.io/v1alpha1",
        "kind": "GPUBinding",
        "metadata": {
            "name": "b",
            "labels": {
                "app.bytetrade.io/managed-by": "app-service",
                "gpu.bytetrade.io/mode": "nvidia",
                "applications.app.bytetrade.io/name": "comfyui",
                "applications.app.bytetrade.io/owner": "alice",
            },
            "annotations": {},
        },
        "spec": {
            "uuid": "GPU-1",
            "appName": "comfyui",
            "owner": "alice",
            "namespace": "ns",
            "podSelector": {
                "matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["gpu"]},
                    {"key": "x", "operator": "DoesNotExist"},
                ]
            },
            "memory": "16000",
        },
    }


_TEXTS = st.sampled_from(["a", "b.c", "GPU-1"])
_CONDITIONS = st.builds(Expression, _TEXTS, st.sampled_from([Operator.IN, Operator.NOT_IN]), st.just(("x", "")))


@given(
    st.builds(
        Binding,
        *(_TEXTS, _TEXTS, _TEXTS),
        st.sampled_from(["", "o"]),
        st.sampled_from(["", "n"]),
        st.none()
        | st.lists(_CONDITIONS | st.builds(Expression, _TEXTS, st.just(Operator.EXISTS)), max_size=3).map(tuple),
        st.none() | st.integers(1, 2**30).map(lambda count: count * MIB),
        st.booleans(),
        st.sampled_from(["", "nvidia"]),
        st.sampled_from([BindingState.BOUND, BindingState.DRAINING]),
    )
)
def test_a_binding_is_read_as_it_was_written(binding):
    if binding.owner and binding.namespace and binding.legacy:
        assert read_binding(write_binding(binding)).mismatch(Tenant(binding.app, "x", "y")) is not None
    else:
        assert read_binding(write_binding(binding)) == binding


# --- names ---


@pytest.mark.parametrize("app", ["a..b", "a.-b", "a._b", "a-.b", "a" * 53 + ".-b"])
def test_the_name_is_one_of_an_object_whatever_its_application_is_called(app):
    assert all(re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", label) for label in binding_name(app, "o", "u").split("."))


def test_the_name_is_that_of_app_service():
    uuid = "GPU-1f0c2d3e-aaaa-bbbb-cccc-000000000001"
    expected = "comfyui-alice-gpu-1f0c2d3e-aaaa-bbbb-cccc-000000000001-6512e227"
    assert binding_name("comfyui", "alice", uuid) == expected


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_names_are_short_and_unique_to_an_identity(app, owner, uuid):
    name = binding_name(app, owner, uuid)
    assert len(name) <= 63
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
    assert name != binding_name(app + "x", owner, uuid)
    assert binding_name(app.swapcase() + "Ab", owner, uuid) != binding_name(app.swapcase() + "aB", owner, uuid)


# --- memory ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((8192, 8192 * MIB), ("8192", 8192 * MIB), ("16k", 16_000 * MIB), ("8Ki", 8192 * MIB), ("1.5k", 1500 * MIB)),
        *(("1e3", 1000 * MIB), ("1.5E3", 1500 * MIB), ("1000e-1", 100 * MIB), ("+5", 5 * MIB), ("5.0", 5 * MIB)),
        *(
            ("16M", 16_000_000),
            ("8Gi", 8 * GIB),
            ("24G", 24 * 10**9),
            ("1Ti", 2**40),
            ("1T", 10**12),
            ("0.5Gi", GIB // 2),
        ),
        *(("512Mi", 512 * MIB), (None, None), ("1", MIB)),
    ],
)
def test_bare_numbers_are_mebibytes_and_units_bytes(value, expected):
    assert read_memory(value) == expected
    assert read_binding(thing(memory=value)).memory_bytes == expected


@pytest.mark.parametrize(
    "value",
    [
        *(
            0,
            -1,
            "0",
            "-5",
            "0Gi",
            "500m",
            "1u",
            "1n",
            "1.5",
            "1e-1",
            "1.5e0",
            "0.3M3",
            "",
            " 1",
            "1 Gi",
            "8GB",
            "8g",
            "K",
        ),
        *(True, 1.5, [], {}, "8E", "1e99", "9" * 65, 10**50, "1e", "e3", ".", "0.0000001Mi", "\u0661", "nan", "inf"),
    ],
)
def test_implausible_values_are_invalid(value):
    with pytest.raises(InvalidRequest):
        read_memory(value)
    assert read_binding(thing(memory=value)).state is BindingState.INVALID


@given(st.integers(1, 2**30 - 1))
def test_memory_is_written_as_a_bare_number(count):
    assert read_memory(write_memory(count * MIB)) == count * MIB
    assert write_memory(count * MIB + 1) == write_memory(count * MIB) == str(count)


# --- pods and nodes ---


def test_the_identity_of_a_pod():
    labels = {"applications.app.bytetrade.io/name": "comfyui", "applications.app.bytetrade.io/owner": "alice"}
    found = tenant_of({"metadata": {"namespace": "ns", "labels": labels}})
    assert (found.app, found.owner, found.namespace, consume_of(found)) == ("comfyui", "alice", "ns", Consume.ALL)
    assert tenant_of({}) == Tenant(namespace="default")
    single = tenant_of({"metadata": {"labels": labels | {"hami.io/app-gpu-consume": "single"}}})
    assert consume_of(single) is Consume.SINGLE
    with pytest.raises(InvalidRequest, match="app-gpu-consume"):
        consume_of(tenant_of({"metadata": {"labels": {"hami.io/app-gpu-consume": "some"}}}))
    with pytest.raises(InvalidRequest, match=r"metadata\.labels"):
        tenant_of({"metadata": {"labels": {"a": 3}}})


@pytest.mark.parametrize(
    ("reported", "accelerator", "mode"),
    [
        ("0", "nvidia", ShareMode.EXCLUSIVE),
        ("1", "nvidia", ShareMode.MEMORY_SLICE),
        ("2", "nvidia", ShareMode.TIME_SLICE),
        *(
            ("7", "nvidia", ShareMode.TIME_SLICE),
            (None, "nvidia", ShareMode.TIME_SLICE),
            (1, "nvidia", ShareMode.TIME_SLICE),
        ),
        *((None, "nvidia-gb10", ShareMode.MEMORY_SLICE), ("7", "nvidia-gb10", ShareMode.MEMORY_SLICE)),
        ("2", "nvidia-gb10", ShareMode.MEMORY_SLICE),
        ("0", "cpu", ShareMode.MEMORY_SLICE),
        ("1", "apple-m", ShareMode.EXCLUSIVE),
    ],
)
def test_the_sharing_mode_of_a_card_is_an_annotation_of_its_node(reported, accelerator, mode):
    annotations = {} if reported is None else {"sharemode.gpu.bytetrade.io/GPU-1": reported}
    assert share_mode(annotations, "GPU-1", accelerator) is mode


_ALL = SPEC | {
    "memory": "8Gi",
    "podSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
}


@given(shaped(thing(labels={"a": "b"}, annotations={"ullage.io/binding-state": "Draining"}, **_ALL), ("a", "b", "key")))
def test_any_object_is_read_or_refused(document):
    with suppress(InvalidRequest):
        if isinstance(document, dict):
            write_binding(read_binding(document))
            tenant_of(document)
