"""Which fields of a pod leave its place to kube-scheduler: its filters as of Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.pod.pods import containers
from ullage.model.error import InvalidRequest
from ullage.wire.dialect import PodSettings
from ullage.wire.scheduler_fields import fields_for_scheduler
from ullage.wire.vendors.shipped import FAMILIES, NATIVE_RESOURCES

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}

UNRESTRICTED = ("configMap", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "projected", "secret")
RESTRICTED = (
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "ephemeral", "fc", "flexVolume"),
    *("flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "iscsi", "persistentVolumeClaim"),
    *("photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume"),
)
"""All types of volumes of the API, with those above."""


def fields(**spec: Any) -> tuple[str, ...]:
    return fields_for_scheduler({"metadata": {"name": "p"}, "spec": spec})


def affinity(kind: str, **terms: Any) -> dict[str, Any]:
    return {"affinity": {kind: terms}}


def ports(*found: dict[str, Any], kind: str = "containers", **more: Any) -> dict[str, Any]:
    return {kind: [{"name": "c", "ports": list(found), **more}]}


def test_a_plain_pod_has_none() -> None:
    assert fields_for_scheduler({}) == fields() == ()
    plain = containers({"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}, "requests": {"cpu": "500m"}})
    node = {"required": {"nodeSelectorTerms": [{}]}}
    assert fields(**plain, nodeSelector={"a": "b"}, affinity={"nodeAffinity": node}, tolerations=[{}]) == ()
    assert fields(schedulingGates=[{"name": "g"}], priority=5, runtimeClassName="nvidia", hostNetwork=True) == ()


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("terms", [REQUIRED, PREFERRED])
def test_affinities_to_other_pods_are_left_to_it(kind: str, terms: str) -> None:
    assert fields(**affinity(kind, **{terms: [TERM]})) == (f"spec.affinity.{kind}",)
    assert fields(**affinity(kind, **{REQUIRED: [TERM], PREFERRED: [TERM]})) == (f"spec.affinity.{kind}",)
    for empty in ([], None):
        assert fields(**affinity(kind, **{terms: empty})) == ()
    assert fields(affinity={kind: None}) == fields(affinity=None) == ()


@pytest.mark.parametrize("name", ["topologySpreadConstraints", "resourceClaims"])
def test_a_list_with_an_entry_is_left_to_it(name: str) -> None:
    assert fields(**{name: [{"name": "x"}]}) == (f"spec.{name}",)
    assert fields(**{name: []}) == fields(**{name: None}) == ()


def test_of_volumes_all_types_but_those_that_every_node_mounts() -> None:
    assert len({*UNRESTRICTED, *RESTRICTED}) == 30
    for source in UNRESTRICTED:
        assert fields(volumes=[{"name": "v", source: {}}]) == ()
    for source in RESTRICTED:
        volumes = [{"name": "a", "secret": {}}, {"name": "v", source: {}}]
        assert fields(volumes=volumes) == (f"spec.volumes[1].{source}",)
    assert fields(volumes=[{"name": "v"}, {"name": "w", "persistentVolumeClaim": None}]) == ()
    assert fields(volumes=[{"name": "v", "ofTomorrow": {}}]) == ("spec.volumes[0].ofTomorrow",)


def test_ports_of_the_host_count_where_the_container_stays() -> None:
    taken = {"containerPort": 80, "hostPort": 8080}
    assert fields(**ports({"containerPort": 80}, taken)) == ("spec.containers[0].ports[1].hostPort",)
    sidecar = ports(taken, kind="initContainers", restartPolicy="Always")
    assert fields(**sidecar) == ("spec.initContainers[0].ports[0].hostPort",)
    assert fields(**ports(taken, kind="initContainers")) == ()
    assert fields(**ports({"containerPort": 80, "hostPort": 0}), hostNetwork=False) == ()


def test_on_the_network_of_the_host_a_port_of_a_container_is_one_of_the_host() -> None:
    assert fields(hostNetwork=True, **ports({"containerPort": 80})) == ("spec.containers[0].ports[0].containerPort",)
    assert fields(hostNetwork=True, **ports({"containerPort": 80, "hostPort": 80})) == (
        "spec.containers[0].ports[0].hostPort",
    )


@pytest.mark.parametrize("name", ["ephemeral-storage", "hugepages-2Mi", "rdma/hca", "nvidia.com/mig-1g.10gb.shared"])
@pytest.mark.parametrize("kind", ["limits", "requests"])
@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_other_resources_are_left_to_it(name: str, kind: str, where: str) -> None:
    for policy in (None, "Always"):
        asked = containers({}, {kind: {"cpu": "1", name: "1"}}, kind=where, policy=policy)
        assert fields(**asked) == (f"spec.{where}[1].resources.{kind}.{name}",)
    for nothing in ("0", 0, "0Gi", "0.0", None):
        assert fields(**containers({kind: {name: nothing}}, kind=where)) == ()


CARDS = sorted({*NATIVE_RESOURCES, *(name for each in FAMILIES for name in (each.resources.count, *each.amounts))})


@given(st.sampled_from([*CARDS, "nvidia.com/mig-1g.10gb"]), st.sampled_from(["limits", "requests"]))
def test_cards_are_ours_in_containers_and_nowhere_else(name: str, kind: str) -> None:
    assert fields(**containers({kind: {name: "1"}})) == ()
    assert fields(resources={kind: {name: "1"}}) == (f"spec.resources.{kind}.{name}",)
    assert fields(overhead={name: "1"}) == (f"spec.overhead.{name}",)


def test_the_resources_of_families_that_are_not_configured_are_left_to_it() -> None:
    pod = {"spec": containers({"limits": {"nvidia.com/gpumem": "1000", "nvidia.com/gpu": "1"}})}
    assert fields_for_scheduler(pod, PodSettings()) == ()
    assert fields_for_scheduler(pod, PodSettings(families=())) == (
        "spec.containers[0].resources.limits.nvidia.com/gpumem",
    )


def test_of_the_pod_as_a_whole_cpu_and_memory_are_ours() -> None:
    assert fields(resources={"requests": {"cpu": "1", "memory": "1Gi"}}, overhead={"cpu": "100m"}) == ()
    assert fields(resources={"limits": {"hugepages-2Mi": "2Mi"}}) == ("spec.resources.limits.hugepages-2Mi",)
    assert fields(overhead={"memory": "1Mi", "ephemeral-storage": "1Mi"}) == ("spec.overhead.ephemeral-storage",)


def test_features_that_a_node_has_to_declare_are_left_to_it() -> None:
    assert fields(hostNetwork=True, hostUsers=False) == ("spec.hostUsers",)
    assert fields(hostNetwork=True, hostUsers=True) == fields(hostUsers=False) == ()
    rules = [{"action": "Restart"}, {"action": "RestartAllContainers"}]
    for where in ("containers", "initContainers"):
        assert fields(**{where: [{"name": "c", "restartPolicyRules": rules}]}) == (
            f"spec.{where}[0].restartPolicyRules[1].action",
        )


def test_all_of_them_are_named() -> None:
    found = fields(
        **affinity("podAntiAffinity", **{REQUIRED: [TERM]}),
        topologySpreadConstraints=[{}],
        resourceClaims=[{}],
        volumes=[{"csi": {}}, {"persistentVolumeClaim": {}}],
        containers=[{"ports": [{"hostPort": 1}], "resources": {"limits": {"a/b": 1, "c/d": 1}}}],
    )
    assert found == (
        *("spec.affinity.podAntiAffinity", "spec.topologySpreadConstraints", "spec.resourceClaims"),
        *("spec.volumes[0].csi", "spec.volumes[1].persistentVolumeClaim", "spec.containers[0].ports[0].hostPort"),
        *("spec.containers[0].resources.limits.a/b", "spec.containers[0].resources.limits.c/d"),
    )


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (5, "spec"),
        ({"affinity": []}, "spec.affinity"),
        ({"affinity": {"podAffinity": 1}}, "spec.affinity.podAffinity"),
        ({"affinity": {"podAffinity": {REQUIRED: {}}}}, f"spec.affinity.podAffinity.{REQUIRED}"),
        ({"volumes": ["v"]}, "spec.volumes[0]"),
        ({"containers": [{"ports": [1]}]}, "spec.containers[0].ports[0]"),
        ({"containers": [{"resources": {"limits": []}}]}, "spec.containers[0].resources.limits"),
        ({"overhead": "1"}, "spec.overhead"),
        ({"topologySpreadConstraints": "x"}, "spec.topologySpreadConstraints"),
    ],
)
def test_a_field_that_cannot_be_read_is_refused_by_its_path(spec: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        fields_for_scheduler({"spec": spec})
    assert caught.value.field == path
