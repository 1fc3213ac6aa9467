"""A pod is read once for the questions that come about it, and again when it is another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.kube.pod_cache import CachedReader, cached
from ullage.model.error import InvalidRequest
from ullage.wire.dialect import PLAIN_SETTINGS, PodReader
from ullage.wire.document import Document
from ullage.wire.pod import PodRequest


class Reader:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self, pod: Document) -> PodRequest | None:
        self.times += 1
        if "bad" in pod:
            raise InvalidRequest("bad")
        return None


def pod(uid: object = "u", **more: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid}, **more}


def test_a_pod_is_parsed_once_and_again_when_it_changed() -> None:
    reader = Reader()
    read = cached(reader)
    for _ in range(3):
        read(pod())
    assert reader.times == 1
    read(pod(spec={}))
    read(pod())
    assert reader.times == 2


def test_an_unreadable_pod_is_not_cached() -> None:
    reader = Reader()
    read = cached(reader)
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            read(pod(bad=1))
    read(pod())
    assert reader.times == 3


def test_pods_that_differ_in_their_identity_alone_are_parsed_once() -> None:
    reader = Reader()
    read = cached(reader)
    for number in range(3):
        read({"metadata": {"uid": str(number), "name": f"p-{number}", "creationTimestamp": f"2026-01-0{number + 1}"}})
    assert reader.times == 1


def test_metadata_of_another_form_are_not_cached() -> None:
    reader = Reader()
    read = cached(reader)
    for document in ({"metadata": 3}, {}) * 2:
        read(document)
    assert reader.times == 4


def test_only_the_last_templates_are_cached() -> None:
    reader = Reader()
    read = cached(reader)
    for number in range(5000):
        read(pod(spec={"priority": number}))
    read(pod(spec={"priority": 4999}))
    assert reader.times == 5000
    read(pod(spec={"priority": 0}))
    assert reader.times == 5001


_ASKING: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    ({}, {"nvidia.com/gpu": "2", "cpu": "4", "memory": "8Gi"}),
    ({}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "30"}),
    ({"nvidia.com/use-gpuuuid": "GPU-1"}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}),
    ({"ullage.io/gpu-count": "1", "ullage.io/compute-percent-request": "40"}, {}),
    ({"ullage.io/gpu-count": "4", "ullage.io/numa-policy": "single-numa-node"}, {"cpu": "8", "memory": "8Gi"}),
    ({}, {"nvidia.com/mig-1g.10gb": "1"}),
    ({}, {"huawei.com/Ascend910B4": "1", "huawei.com/Ascend910B4-memory": "8000"}),
    ({}, {"huawei.com/Ascend910B4": "1", "nvidia.com/gpu": "1", "cambricon.com/vmlu": "1"}),
    ({"ullage.io/gpu-count": "1", "ullage.io/eviction-protection": "30m"}, {}),
    ({"ullage.io/gpu-count": "1", "ullage.io/gang-min-members": "2", "ullage.io/gang-group-key": "team/g"}, {}),
    ({}, {"cpu": "1"}),
)
_IDENTITY = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(("p", "q-1")),
        "generateName": st.just("q-"),
        "uid": st.sampled_from(("u", "v")),
        "creationTimestamp": st.sampled_from(("2026-01-31T12:00:00Z", "2026-02-01T00:00:00+01:00", None)),
        "ownerReferences": st.just([{"kind": "Job", "name": "q", "uid": "o"}]),
    },
)
_LIFE = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.just("Pod"),
        "apiVersion": st.just("v1"),
        "resourceVersion": st.sampled_from(("1", "77")),
        "managedFields": st.just([{"manager": "kubelet"}]),
        "generation": st.integers(1, 3),
        "place": st.sampled_from(("n1", "n2")),
        "waits": st.just("busy: no card is free"),
        "nodeName": st.sampled_from(("n1", "n2")),
        "schedulingGates": st.just([{"name": "ullage.io/queue"}]),
        "status": st.just({"phase": "Pending", "nominatedNodeName": "n1", "qosClass": "Burstable"}),
    },
)


def lived(asking: tuple[dict[str, str], dict[str, str]], life: dict[str, Any]) -> dict[str, Any]:
    """A pod that asks for cards, at one moment of its life."""
    annotations, limits = asking
    written: dict[str, str] = {f"ullage.io/queue-{key}": life[key] for key in ("place", "waits") if key in life}
    kept: dict[str, Any] = {key: life[key] for key in ("resourceVersion", "managedFields", "generation") if key in life}
    metadata = {"name": "p", "namespace": "team", "uid": "u", "annotations": annotations | written, **kept}
    spec: dict[str, Any] = {key: life[key] for key in ("nodeName", "schedulingGates") if key in life}
    container = {"name": "main", "resources": {"limits": limits, "requests": limits}}
    status = life.get("status", {"qosClass": "Burstable"})
    typed: dict[str, Any] = {key: life[key] for key in ("kind", "apiVersion") if key in life}
    return {**typed, "metadata": metadata, "spec": {"containers": [container], **spec}, "status": status}


@given(st.sampled_from(_ASKING), st.lists(_LIFE, min_size=2, max_size=4))
def test_a_pod_is_parsed_once_in_its_life_because_its_request_never_depends_on_what_is_decided(
    asking: tuple[dict[str, str], dict[str, str]], lives: list[dict[str, Any]]
) -> None:
    reader, count = PodReader(), 0

    def counting(pod: Document) -> PodRequest | None:
        nonlocal count
        count += 1
        return reader(pod)

    read = cached(counting)
    for life in lives:
        pod = lived(asking, life)
        assert read(pod) == reader(pod)
    assert count == 1


@given(st.sampled_from(_ASKING), st.lists(_IDENTITY, min_size=2, max_size=4))
def test_the_request_of_a_pod_from_its_template_is_that_of_the_pod(
    asking: tuple[dict[str, str], dict[str, str]], identities: list[dict[str, Any]]
) -> None:
    reader, read = PodReader(), CachedReader(PLAIN_SETTINGS)
    for identity in identities:
        pod = lived(asking, {})
        pod["metadata"] = {key: pod["metadata"][key] for key in ("namespace", "annotations")} | identity
        assert read(pod) == reader(pod)


def test_a_time_of_creation_that_cannot_be_read_is_refused_by_its_name() -> None:
    pod = lived(_ASKING[0], {})
    pod["metadata"]["creationTimestamp"] = "soon"
    for read in (PodReader(), CachedReader(PLAIN_SETTINGS)):
        with pytest.raises(InvalidRequest, match="creationTimestamp"):
            read(pod)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"uid": "u", "annotations": {"ullage.io/gpu-count": "2"}}},
        {"metadata": {"uid": "u", "labels": {"ullage.io/queue": "q"}}},
        {"spec": {"priority": 5}},
        {"status": {"qosClass": "Guaranteed"}},
    ],
)
def test_a_pod_is_parsed_again_after_a_change_that_its_request_may_depend_on(change: dict[str, Any]) -> None:
    reader = Reader()
    read = cached(reader)
    read(pod())
    read({**pod(), **change})
    assert reader.times == 2
