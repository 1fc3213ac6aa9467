"""Objects as the client keeps them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.kube.client.kinds import PODS
from ullage.kube.client.objects import Pod
from ullage.wire.scheduler_fields import fields_for_scheduler

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3) | st.just("managedFields"), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["generateName", "managedFields", "ownerReferences"]), _JSON), _JSON)
def test_the_record_of_writers_is_not_kept_and_everything_else_is(metadata, other):
    pod = {"other": other, "metadata": {"name": "p", **metadata}, "spec": {"nodeName": "n"}}
    kept = PODS.read(json.dumps(pod).encode()).document
    left = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    assert kept == {**pod, "metadata": left}
    assert list(kept) == list(pod)


NAMES = st.text("ab/.", min_size=1, max_size=4)


@given(
    st.fixed_dictionaries(
        {"name": NAMES},
        optional={
            "namespace": NAMES,
            "uid": NAMES,
            "resourceVersion": NAMES,
            "labels": st.dictionaries(NAMES, NAMES, max_size=3),
            "annotations": st.dictionaries(NAMES, st.text(max_size=40), max_size=3),
            "creationTimestamp": NAMES,
            "deletionTimestamp": NAMES,
            "finalizers": st.lists(NAMES, max_size=2),
        },
    )
)
def test_what_is_parsed_is_kept_once_and_the_document_has_it_all_the_same(metadata):
    pod = PODS.read(json.dumps({"metadata": metadata, "spec": {}}).encode())
    assert pod.document["metadata"] == metadata
    assert json.loads(pod.raw)["metadata"].keys() <= {"finalizers"}
    pod.document["metadata"].get("labels", {})["added"] = pod.document["metadata"].get("annotations", {})["added"] = "x"
    assert pod.document["metadata"] == metadata


def test_pods_of_one_workload_on_one_node_have_their_labels_and_their_spec_together():
    def read(name: str, **labels: str) -> Pod:
        metadata = {"name": name, "namespace": "team", "labels": labels, "annotations": {"at": "1767225600"}}
        return PODS.read(json.dumps({"metadata": metadata, "spec": {"nodeName": "n"}, "status": {}}).encode())

    one, other, another = read("one", app="train"), read("other", app="train"), read("another", app="serve")
    assert one.metadata.labels is other.metadata.labels
    assert another.metadata.labels == {"app": "serve"}
    assert one.spec is other.spec
    assert one.status is other.status
    assert one.metadata.namespace is other.metadata.namespace
    assert one.metadata.annotations["at"] is other.metadata.annotations["at"]
    assert one.metadata.annotations is not other.metadata.annotations


def test_of_a_pod_nothing_is_kept_that_nobody_reads():
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    long = {"image": "i", "env": [{"name": "A", "value": "x" * 999}], "volumeMounts": [{"name": "v"}], "command": ["c"]}
    kept = {"name": "c", "resources": resources, "restartPolicy": "Always"}
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "n",
            "volumes": [{"name": "v"}],
            "containers": [kept | long | {"ports": [{"hostPort": 80}]}],
            "initContainers": [kept | long],
        },
    }
    assert PODS.read(json.dumps(pod).encode()).document == {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [kept], "initContainers": [kept]},
    }


@pytest.mark.parametrize("node", [{}, {"nodeName": ""}])
def test_of_a_pod_without_a_node_the_volumes_and_ports_are_kept_too(node):
    kept = {"name": "c", "ports": [{"hostPort": 80}]}
    spec = {**node, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    pod = {"metadata": {"name": "p"}, "spec": {**spec, "containers": [kept | {"image": "i"}]}}
    found = PODS.read(json.dumps(pod).encode())
    assert found.document == {"metadata": {"name": "p"}, "spec": {**spec, "containers": [kept]}}
    assert fields_for_scheduler(found.document) == (
        "spec.volumes[0].persistentVolumeClaim",
        "spec.containers[0].ports[0].hostPort",
    )


def test_a_pod_of_another_form_is_kept_as_it_is():
    pod = {"metadata": {"name": "p"}, "spec": {"containers": 5, "volumes": 1}}
    assert PODS.read(json.dumps(pod).encode()).document == pod
