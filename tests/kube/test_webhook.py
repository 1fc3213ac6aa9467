"""What becomes of pods when they are created, over HTTP as an API server asks it."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.kube.patches import apply_operations
from tests.wire.kubernetes.samples import sample
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.kube.webhook.admission import nowhere, over_quota
from ullage.kube.webhook.app import make_webhook_app
from ullage.kube.webhook.webhook import AdmissionSettings, Queueing, Webhook
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Isolation
from ullage.model.queue import Queue
from ullage.model.quota import Caps, Quota
from ullage.service.cluster import Cluster
from ullage.wire.dialect import PodReader, PodSettings
from ullage.wire.hami.results import result_keys
from ullage.wire.pod.bind import OUTPUT
from ullage.wire.vendors.device_config import read_device_config
from ullage.wire.vendors.shipped import FAMILIES

GATE = "ullage.io/queue"
THEIRS = "metadata.annotations.tensor-fusion.ai"
GPU, MEMORY, PERCENT = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"


def a_pod(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Any:
    metadata: dict[str, Any] = {"generateName": "p-"}
    if annotations is not None:
        metadata["annotations"] = annotations
    if labels is not None:
        metadata["labels"] = labels
    return {"metadata": metadata, "spec": {"schedulerName": "default-scheduler", "containers": [asking()]} | spec}


def asking(security: Any = None, **limits: str) -> dict[str, Any]:
    amounts = {f"nvidia.com/{name.replace('_', '-')}": value for name, value in (limits or {"gpu": "1"}).items()}
    return {"name": "c", "resources": {"limits": amounts}, "securityContext": security}


def review(pod: Any, **more: Any) -> Any:
    request = {"uid": "u-1", "operation": "CREATE", "kind": {"kind": "Pod", "version": "v1"}, "namespace": "team"}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request | {"object": pod} | more}


def http(webhook: Webhook | None = None, **options: Any) -> TestClient:
    return TestClient(make_webhook_app(webhook or Webhook(), **options))


def answered(pod: Any, webhook: Webhook | None = None, path: str = "/webhook", **more: Any) -> Any:
    reported = http(webhook).post(path, content=json.dumps(review(pod, **more)))
    assert reported.status_code == 200, reported.text
    body = reported.json()
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert body["response"]["uid"] == "u-1"
    return body["response"]


def patched(pod: Any, answer: Any) -> Any:
    if "patch" not in answer:
        return pod
    assert answer["patchType"] == "JSONPatch"
    return apply_operations(copy.deepcopy(pod), json.loads(base64.b64decode(answer["patch"])))


def admitted(pod: Any, webhook: Webhook | None = None) -> Any:
    answer = answered(pod, webhook)
    assert answer["allowed"], answer
    return patched(pod, answer)


def refused(pod: Any, webhook: Webhook | None = None) -> str:
    answer = answered(pod, webhook)
    assert not answer["allowed"]
    assert "patch" not in answer
    return str(answer["status"]["message"])


def test_a_pod_with_cards_gets_our_scheduler_and_one_without_is_unchanged() -> None:
    assert admitted(a_pod())["spec"]["schedulerName"] == "ullage"
    plain = a_pod(containers=[{"name": "c"}])
    assert "patch" not in answered(plain)
    assert "patch" not in answered(a_pod(schedulerName="volcano"))


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        (a_pod(nodeName="n"), "spec.nodeName"),
        (a_pod(containers=[]), "spec.containers"),
        (a_pod(containers=[asking({"privileged": True})]), "privileged"),
        (a_pod(containers=[asking(gpu="1", gpumem_percentage="101")]), f"limits.{PERCENT}"),
        (a_pod(containers=[asking(gpu="1", gpumem="1.5")]), f"limits.{MEMORY}"),
        (a_pod({"ullage.io/gpu-count": "many"}, containers=[{"name": "c"}]), "ullage.io/gpu-count"),
        ({"metadata": {"labels": "x"}, "spec": {"containers": [asking()]}}, "metadata.labels"),
        ({"metadata": [], "spec": {"containers": [asking()]}}, "metadata"),
    ],
)
def test_what_could_not_be_served_is_denied_by_the_name_of_its_field(pod: Any, field: str) -> None:
    assert field in refused(pod)


def test_a_second_call_changes_nothing_and_a_dry_run_is_like_any_other() -> None:
    pod = a_pod(
        {"ullage.io/gang-min-members": "2", "ullage.io/workload": "train", "ullage.io/gpu-ids": "GPU-1"},
        containers=[asking(gpumem="1000", priority="1"), asking(gpu="2")],
    )
    webhook = Webhook(AdmissionSettings(runtime_class="nvidia"))
    once = admitted(pod, webhook)
    assert admitted(once, webhook) == once
    assert "patch" not in answered(once, webhook)
    assert answered(pod, webhook, dryRun=True) == answered(pod, webhook)


def test_open_fields_of_a_pod_are_set() -> None:
    pod = a_pod(
        {"ullage.io/gang-min-members": "2", "ullage.io/workload": "train"},
        containers=[asking(gpumem="1000", priority="1"), {"name": "d"}],
    )
    done = admitted(pod, Webhook(AdmissionSettings(runtime_class="nvidia")))
    first, second = done["spec"]["containers"]
    assert first["resources"]["limits"] == {MEMORY: "1000", "nvidia.com/priority": "1", GPU: "1"}
    assert first["env"] == [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]
    assert second == {"name": "d"}
    assert done["spec"]["runtimeClassName"] == "nvidia"
    assert done["metadata"]["annotations"] == pod["metadata"]["annotations"] | {
        "ullage.io/gang-desired-members": "2",
        "ullage.io/gang-required-members": "2",
        "ullage.io/gang-group-key": "team/train",
    }


@pytest.mark.parametrize("spec", [{}, {"schedulerName": "other"}, {"containers": [{"name": "c"}]}])
def test_annotations_of_schedulers_are_removed_whichever_scheduler_places_the_pod(spec: Any) -> None:
    names = ("gpu-ids", "allocation", "index", "effective-hard-sm-percent", "container-gpus", "numa-placement")
    forged = {f"ullage.io/{name}": "x" for name in names}
    forged |= {"hami.io/vgpu-devices-allocated": "x", "hami.io/vgpu-node": "n", "hami.io/bind-phase": "success"}
    forged |= {"ullage.io/gang-group-key": "others/train"}
    forged |= {"volcano.sh/topology-decision": '{"numa": {"0": {"cpu": "4"}}}'}
    answer = answered(pod := a_pod(forged | {"kept": "1"}, **spec))
    done = patched(pod, answer)
    removed = done["metadata"]["annotations"].pop("ullage.io/removed-annotations")
    assert set(removed.split(",")) == set(forged)
    assert done["metadata"]["annotations"] == {"kept": "1"}
    assert len(answer["warnings"]) == len(forged)


def test_what_was_removed_is_kept_when_the_webhook_is_asked_again_and_nobody_changes_it_later() -> None:
    note = "ullage.io/removed-annotations"
    once = patched(pod := a_pod({"ullage.io/gpu-ids": "x"}), answered(pod))
    assert patched(once, answered(once))["metadata"]["annotations"][note] == "ullage.io/gpu-ids"
    once["metadata"]["annotations"]["hami.io/bind-phase"] = "success"
    twice = patched(once, answered(once))
    assert twice["metadata"]["annotations"] == {note: "ullage.io/gpu-ids,hami.io/bind-phase"}
    assert answered(twice, path="/validate")["allowed"]
    named = Webhook(AdmissionSettings(own_user="ullage"))
    change = {"operation": "UPDATE", "oldObject": twice, "userInfo": {"username": "alice"}}
    assert not answered(a_pod(), named, **change)["allowed"]


@pytest.mark.parametrize(
    ("wrong", "meant"), [("gpu-cuont", "gpu-count"), ("vram-reqest", "vram-request"), ("numa-polcy", "numa-policy")]
)
@pytest.mark.parametrize("more", [{}, {"ullage.io/gpu-count": "1"}], ids=["alone", "with a request"])
def test_a_request_that_is_misspelt_is_refused_by_its_name(wrong: str, meant: str, more: dict[str, str]) -> None:
    for containers in ([asking()], [{"name": "c"}]):
        message = refused(a_pod({f"ullage.io/{wrong}": "1", **more}, containers=containers))
        assert message.startswith(f"invalid-annotation: ullage.io/{wrong}: '1' is not valid: ")
        assert f"did you mean ullage.io/{meant}?" in message
    assert answered(a_pod({f"ullage.io/{wrong}": "1"}, schedulerName="volcano"))["allowed"]


def test_a_misspelt_resource_is_a_warning() -> None:
    (warning,) = answered(a_pod(containers=[asking(gpu="1", gpumemory="1000")]))["warnings"]
    assert warning.startswith("spec.containers[0].resources.limits.nvidia.com/gpumemory: ")
    assert warning.endswith("did you mean nvidia.com/gpumem?")


def test_an_unknown_annotation_is_a_warning() -> None:
    words = {"ullage.io/colour": "red", "tensor-fusion.ai/vram-reqest": "1Gi", "nvidia.com/use-gpuuid": "a", "x/y": "z"}
    assert answered(a_pod(words))["warnings"] == [
        "metadata.annotations.ullage.io/colour: it is not read",
        f"{THEIRS}/vram-reqest: it is not read; did you mean tensor-fusion.ai/vram-request?",
        "metadata.annotations.nvidia.com/use-gpuuid: it is not read; did you mean nvidia.com/use-gpuuuid?",
    ]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"numa-policy": "strict"}, "ullage.io/numa-policy: 'strict'"),
        ({"gpu-indices": "x"}, "ullage.io/gpu-indices"),
        ({"vendor": "Nvidea"}, "ullage.io/vendor: 'Nvidea'"),
        ({"vram-request": "0"}, "ullage.io/vram-request: '0' is not valid: no compute and no vram is requested"),
        ({"isolation": "none"}, "ullage.io/isolation: 'none'"),
        ({"vram-request": "8"}, "ullage.io/vram-request: 8 is not valid: it counts bytes"),
    ],
)
def test_a_refusal_names_the_wrong_key(words: dict[str, str], named: str) -> None:
    annotations = {f"ullage.io/{name}": text for name, text in {"gpu-count": "1", **words}.items()}
    message = refused(a_pod(annotations, containers=[{"name": "c"}]))
    assert named in message
    assert "None" not in message


def test_a_request_that_no_card_meets_is_a_warning_at_creation() -> None:
    cluster = Cluster(Rules(), lambda: 0.0)
    cluster.recover(())
    soft = frozenset({Isolation.SHARED, Isolation.SOFT})
    cards = (Gpu("A0", 0, "A100", "NVIDIA", isolations=soft), Gpu("A1", 1, "H100", "NVIDIA", isolations=soft))
    cluster.set_nodes([Node("a", 8000, 2**30, cards)])
    webhook = Webhook(nowhere=nowhere(cluster))

    def reported(**words: str) -> list[str]:
        annotations = {f"ullage.io/{name.replace('_', '-')}": text for name, text in words.items()}
        found = answered(a_pod(annotations, containers=[{"name": "c"}]), webhook)
        assert found["allowed"]
        return list(found.get("warnings", []))

    assert reported(gpu_model="A100|B200") == []
    assert reported(gpu_model="B200") == ["ullage.io/gpu-model: no card here is B200; there are: A100, H100"]
    assert reported(gpu_indices="1,7") == ["ullage.io/gpu-indices: no card here is 7; there are: 0, 1"]
    assert "kube.card_model" in reported(tflops_request="5")[0]
    assert "no card here takes slices of hardware (MIG)" in reported(isolation="partitioned", vram_request="1Gi")[0]
    (hard,) = reported(isolation="hard", vram_request="1Gi")
    assert hard.startswith("ullage.io/isolation: of no card here it is known")
    assert reported(isolation="soft", vram_request="1Gi") == []
    theirs = {"tensor-fusion.ai/gpu-model": "B200", "tensor-fusion.ai/vram-request": "1Gi"}
    (said,) = answered(a_pod(theirs, containers=[{"name": "c"}]), webhook)["warnings"]
    assert said.startswith("tensor-fusion.ai/gpu-model: no card here is B200")


def test_a_pool_without_cards_is_named_in_a_warning_with_the_pools_that_exist() -> None:
    cluster = Cluster(Rules(), lambda: 0.0)
    cluster.recover(())
    webhook = Webhook(nowhere=nowhere(cluster, declared={"training"}))
    for pod in (
        a_pod({"ullage.io/gpupool": "training1"}, containers=[asking(gpu="1", gpumem="2000")]),
        a_pod({"ullage.io/gpupool": "training1", "ullage.io/vram-request": "1Gi"}, containers=[{"name": "c"}]),
    ):

        def reported(pool: str | None, pod: dict[str, Any] = pod, uuid: str = "A0") -> list[str]:
            cluster.set_nodes([Node("a", 8000, 2**30, (Gpu(uuid, 0, "A100", "NVIDIA", pool=pool),))])
            return list(answered(pod, webhook).get("warnings", []))

        cluster.set_nodes([])
        assert answered(pod, webhook)["allowed"], "no card is known yet"
        (warning,) = reported(None)
        assert warning == (
            "ullage.io/gpupool: no card is in pool training1 now, and the pod waits; cards of this cluster are in no "
            "pool; did you mean training?"
        )
        (warning,) = reported("serve")
        assert "there are: serve; did you mean training?" in warning
        assert reported("training1") == []
    waits = a_pod({"ullage.io/gpupool": "training", "ullage.io/vram-request": "1Gi"}, containers=[{"name": "c"}])
    (warning,) = answered(waits, webhook)["warnings"]
    assert "no card is in pool training now, and the pod waits" in warning
    assert "did you mean" not in warning, "the settings know it"


def test_cards_and_models_that_no_node_has_are_named_in_a_warning() -> None:
    cluster = Cluster(Rules(), lambda: 0.0)
    cluster.recover(())
    cluster.set_nodes([Node("a", 8000, 2**30, (Gpu("GPU-1", 0, "NVIDIA A100", "NVIDIA"),))])
    webhook = Webhook(nowhere=nowhere(cluster))

    def reported(**words: str) -> list[str]:
        annotations = {f"nvidia.com/{name.replace('_', '-')}": text for name, text in words.items()}
        found = answered(a_pod(annotations, containers=[asking(gpu="1", gpumem="100")]), webhook)
        assert found["allowed"]
        return list(found.get("warnings", []))

    assert reported(use_gpuuuid="GPU-1", nouse_gputype="H100") == []
    assert reported(use_gpuuuid=" GPU-1 ,,GPU-1, GPU-2") == ["nvidia.com/use-gpuuuid: no card here is GPU-2"]
    assert reported(nouse_gpuuuid="GPU-7,GPU-8") == ["nvidia.com/nouse-gpuuuid: no card here is GPU-7, GPU-8"]
    assert reported(use_gputype="a100,H100") == []
    assert reported(use_gputype="H100") == ["nvidia.com/use-gputype: no card here is H100; there are: NVIDIA A100"]


def test_a_word_that_another_word_of_the_pod_cancels_is_a_warning_by_name() -> None:
    def warnings(pod: Any) -> list[str]:
        answer = answered(pod)
        assert answer["allowed"]
        return list(answer.get("warnings", []))

    (no_card,) = warnings(a_pod(containers=[asking(gpu="0", gpumem="500")]))
    assert no_card.startswith("spec.containers[0].resources: nvidia.com/gpumem has no effect")
    assert "0 nvidia.com/gpu" in no_card
    (twice,) = warnings(a_pod(containers=[asking(gpu="1", gpumem="500", gpumem_percentage="50")]))
    assert f"{PERCENT} has no effect where {MEMORY} states the memory" in twice
    split = {"ullage.io/gpu-count": "2", "ullage.io/vram-request": "1Gi"}
    (nobody,) = warnings(
        a_pod({**split, "ullage.io/container-gpu-count": '{"c": 1, "nope": 1}'}, containers=[{"name": "c"}])
    )
    assert "no container of the pod is called nope" in nobody
    assert warnings(a_pod(containers=[asking(gpu="0"), asking(gpu="1", gpumem="500")])) == []


def test_the_best_connected_cards_may_be_asked_for() -> None:
    assert "warnings" not in answered(a_pod({"hami.io/gpu-scheduler-policy": "topology-aware"}))
    answer = answered(a_pod({"hami.io/gpu-scheduler-policy": "topology-aware,best"}))
    assert "topology-aware" in answer["status"]["message"]


def test_a_pod_without_cards_that_asks_for_zones_is_warned_by_name() -> None:
    plain = [{"name": "c", "resources": {"limits": {"cpu": "4", "memory": "1Gi"}}}]
    words = {"ullage.io/numa-policy": "restricted", "volcano.sh/numa-topology-policy": "restricted"}
    found = answered(a_pod(words, containers=plain))
    fix = "spec.schedulerName is not ullage, so only the kubelet of its node aligns it"
    assert found["allowed"]
    assert "patch" not in found
    assert found["warnings"] == [f"metadata.annotations.{key}: {fix}" for key in words]
    assert "warnings" not in answered(a_pod({"ullage.io/numa-policy": "none"}, containers=plain))
    assert "warnings" not in answered(a_pod({"ullage.io/numa-policy": "restricted"}))


def test_a_pod_may_have_cards_of_two_vendors() -> None:
    other = {"name": "d", "resources": {"limits": {"amd.com/gpu": "1"}}}
    for first in (asking(gpu="1"), asking(gpu="1", gpumem="1000")):
        answer = answered(a_pod(containers=[first, other]))
        assert answer["allowed"]
        assert "warnings" not in answer


def test_as_many_cards_are_asked_as_the_kubelet_is_asked_for() -> None:
    message = refused(a_pod({"ullage.io/gpu-count": "2", "ullage.io/vram-request": "1Gi"}))
    assert "ullage.io/gpu-count: '2'" in message
    assert "1 of nvidia.com/gpu" in message
    assert answered(a_pod({"ullage.io/gpu-count": "1", "ullage.io/vram-request": "1Gi"}))["allowed"]


@pytest.mark.parametrize(
    ("amount", "said"),
    [("8Gi", "write 8192 for 8Gi"), ("1Gi", "write 1024 for 1Gi"), ("8G", "write 7630 for 8G"), ("8589934592", "MiB")],
)
def test_memory_that_is_said_in_bytes_is_refused_with_what_it_comes_to(amount: str, said: str) -> None:
    message = refused(a_pod(containers=[asking(gpu="1", gpumem=amount)]))
    assert "it counts MiB" in message
    assert said in message


def test_pods_and_namespaces_that_are_to_be_ignored_are() -> None:
    wrong = {"containers": [asking({"privileged": True})]}
    assert "patch" not in answered(a_pod(labels={"hami.io/webhook": "ignore"}, **wrong))
    webhook = Webhook(skips=lambda namespace: namespace == "team")
    assert "patch" not in answered(a_pod(**wrong), webhook)
    assert "privileged" in refused(a_pod(**wrong), Webhook(skips=lambda namespace: namespace == "other"))


def test_a_scheduler_may_leave_the_default_one_its_pods() -> None:
    webhook = Webhook(AdmissionSettings(overwrite_default=False))
    assert "patch" not in answered(a_pod(), webhook)
    assert admitted(a_pod(schedulerName=""), webhook)["spec"]["schedulerName"] == "ullage"
    unnamed = Webhook(AdmissionSettings(scheduler=""))
    assert admitted(a_pod(nodeName="n"), unnamed)["spec"]["schedulerName"] == "default-scheduler"


def test_quotas_are_judged_when_a_pod_is_created() -> None:
    rules = Rules(quotas=Quotas({"team": Quota(max_gpu_count=2, total_requests=Caps(vram_bytes=4000 << 20))}))
    webhook = Webhook(over_quota=over_quota(Cluster(rules, lambda: 0.0)))
    fits = a_pod(containers=[asking(gpu="2", gpumem="2000")])
    assert admitted(fits, webhook)
    more = answered(a_pod(containers=[asking(gpu="2", gpumem="2001")]), webhook)
    assert (more["allowed"], more["status"]["code"]) == (False, 403)
    assert "total.max.vram.request" in more["status"]["message"]
    assert "single.max.gpuCount.limit" in refused(a_pod(containers=[asking(gpu="3")]), webhook)
    three = [{**asking(gpu="1", gpumem="1000", gpucores="10"), "name": f"c{at}"} for at in range(3)]
    assert admitted(a_pod(containers=three), webhook), "its containers may share a card"
    assert answered(a_pod(containers=[asking(gpu="3")]), webhook, namespace="other")["allowed"]


@pytest.mark.parametrize("name", OUTPUT)
@pytest.mark.parametrize(("before", "after"), [("1", "2"), (None, "2"), ("1", None)])
@pytest.mark.parametrize("path", ["/validate", "/webhook"])
def test_what_bind_wrote_is_not_changed_afterwards(name: str, before: str | None, after: str | None, path: str) -> None:
    def pod(value: str | None) -> Any:
        return a_pod({"kept": "1"} | ({} if value is None else {f"ullage.io/{name}": value}))

    for sub_resource in ("", "status"):
        changed = {"operation": "UPDATE", "oldObject": pod(before), "subResource": sub_resource}
        refusal = answered(pod(after), path=path, **changed)
        assert (refusal["allowed"], refusal["status"]["code"]) == (False, 403)
        assert f"ullage.io/{name}" in refusal["status"]["message"]
        assert answered(pod(before), path=path, **changed)["allowed"]


def test_its_own_process_may_change_what_it_wrote() -> None:
    own = Webhook(AdmissionSettings(own_user="me"))
    changed = {"operation": "UPDATE", "oldObject": a_pod()}
    new = a_pod({"ullage.io/queue-place": "n"})
    assert answered(new, own, userInfo={"username": "me"}, **changed)["allowed"]
    assert not answered(new, own, userInfo={"username": "you"}, **changed)["allowed"]
    assert answered(new, userInfo={"username": ""}, **changed)["allowed"]  # it may be itself: nobody said who it is
    assert not answered(a_pod({"ullage.io/gpu-ids": "x"}), userInfo={"username": ""}, **changed)["allowed"]


def test_what_hamis_plugin_reads_is_changed_by_those_who_are_named_alone() -> None:
    named = Webhook(AdmissionSettings(own_user="me", hami_users=("plugin", "other-scheduler")))
    for name in result_keys(FAMILIES):
        changed = {"operation": "UPDATE", "oldObject": a_pod({name: "GPU-1"})}
        for user, allowed in (("me", True), ("plugin", True), ("other-scheduler", True), ("you", False)):
            answer = answered(a_pod({name: "GPU-2"}), named, userInfo={"username": user}, **changed)
            assert answer["allowed"] is allowed
        assert answered(a_pod({name: "GPU-2"}), userInfo={"username": "you"}, **changed)["allowed"]
    forged = {"operation": "UPDATE", "oldObject": a_pod(), "userInfo": {"username": "plugin"}}
    assert not answered(a_pod({"ullage.io/gpu-ids": "x"}), named, **forged)["allowed"]


@pytest.mark.parametrize("spec", [{"nodeName": "n"}, {"schedulerName": "ullage"}], ids=["on a node", "admitted"])
@pytest.mark.parametrize("key", sorted(PodSettings().annotations))
def test_a_pod_that_was_placed_or_admitted_asks_for_nothing_else(key: str, spec: dict[str, str]) -> None:
    old, new = (a_pod(words, containers=[{"name": "c"}], **spec) for words in ({"kept": "1"}, {key: "1"}))
    for before, after in ((old, new), (a_pod({key: "true"}, containers=[], **spec), old)):
        for sub_resource in ("", "status"):
            changed = {"operation": "UPDATE", "oldObject": before, "subResource": sub_resource}
            answer = answered(after, readable(), **changed)
            assert (answer["allowed"], answer["status"]["code"]) == (False, 422)
            assert answer["status"]["message"].startswith(f"request-changed: metadata.annotations.{key}: it ")
            assert "create another one with the new value" in answer["status"]["message"]


def readable() -> Webhook:
    """A webhook that can read every pod."""

    class Reader:
        settings = PodSettings()

        def __call__(self, _pod: Any) -> None:
            return None

    return Webhook(reader=cast("Any", Reader()))


def test_a_pod_that_waits_may_ask_for_something_else_until_it_is_admitted() -> None:
    for gates, allowed in (([{"name": GATE}], True), ([], False)):
        old, new = (
            a_pod(
                {"ullage.io/gpu-count": count},
                {"ullage.io/queue": count},
                schedulerName="ullage",
                schedulingGates=gates,
            )
            for count in ("1", "2")
        )
        assert answered(new, operation="UPDATE", oldObject=old)["allowed"] is allowed
        labels = copy.deepcopy(old)
        labels["metadata"]["labels"]["ullage.io/queue"] = "2"
        answer = answered(labels, operation="UPDATE", oldObject=old)
        assert answer["allowed"] is allowed
        assert allowed or "metadata.labels.ullage.io/queue" in answer["status"]["message"]
    assert answered(a_pod({"ullage.io/qos": "low"}), operation="UPDATE", oldObject=a_pod(schedulerName="other"))[
        "allowed"
    ]


def test_the_zones_of_a_placed_pod_cannot_be_changed() -> None:
    written = {"volcano.sh/topology-decision": '{"numa": {"0": {"cpu": "4"}}}'}
    for scheduler, allowed in (("ullage", False), ("volcano", True)):
        old, new = (a_pod(notes, schedulerName=scheduler, nodeName="n") for notes in ({}, written))
        answer = answered(new, operation="UPDATE", oldObject=old)
        assert answer["allowed"] is allowed
        assert allowed or "volcano.sh/topology-decision" in answer["status"]["message"]


def test_a_request_that_could_not_be_read_may_be_corrected_where_the_pod_is() -> None:
    old = a_pod({"ullage.io/gpu-count": "x"}, nodeName="n")
    for count, allowed in (("1", True), ("y", False)):
        new = a_pod({"ullage.io/gpu-count": count}, nodeName="n")
        assert answered(new, operation="UPDATE", oldObject=old)["allowed"] is allowed


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ({"vgpu-devices-allocated": "A,NVIDIA,9,5:;"}, {"vgpu-devices-allocated": "A,NVIDIA,1,1:;"}, False),
        ({"vgpu-devices-allocated": "A,NVIDIA,9,5:;"}, {"vgpu-devices-allocated": "B,NVIDIA,9,5:;"}, False),
        ({"vgpu-devices-allocated": "A,NVIDIA,9,5:;"}, {}, False),
        ({"vgpu-devices-allocated": "A,NVIDIA,0,5:;"}, {"vgpu-devices-allocated": "A,NVIDIA,9,5:;"}, False),
        ({"vgpu-devices-allocated": "A,NVIDIA,9,5:;"}, {"vgpu-devices-allocated": "A,NVIDIA,9,5:B,NVIDIA,1,1:;"}, True),
        ({"vgpu-devices-allocated": "A,NVIDIA,9,5:;"}, {"vgpu-devices-allocated": "A,NVIDIA,0,6:;"}, True),
        ({"vgpu-devices-allocated": "x"}, {"vgpu-devices-allocated": "A,NVIDIA,9,5:;"}, True),
        ({"vgpu-node": "n"}, {"vgpu-node": "m"}, False),
        ({}, {"vgpu-devices-allocated": "garbage"}, False),
        ({}, {"vgpu-devices-to-allocate": "A,NVIDIA,1,1:;"}, False),
        ({"bind-phase": "allocating"}, {"bind-phase": "success", "bind-time": "2"}, True),
        (
            {"vgpu-devices-allocated": "A,NVIDIA,9,5:;", "vgpu-devices-to-allocate": "A,NVIDIA,9,5:;"},
            {"vgpu-devices-allocated": "A,NVIDIA,9,5:;", "vgpu-devices-to-allocate": ";"},
            True,
        ),
    ],
)
def test_a_pod_on_a_node_keeps_its_cards_where_it_is_not_known_who_hami_is(
    before: dict[str, str], after: dict[str, str], allowed: bool
) -> None:
    old, new = (
        a_pod({f"hami.io/{key}": value for key, value in each.items()}, nodeName="n") for each in (before, after)
    )
    answer = answered(new, operation="UPDATE", oldObject=old)
    assert answer["allowed"] is allowed
    assert allowed or answer["status"]["message"].startswith("result-changed: metadata.annotations.hami.io/vgpu-")
    old["spec"].pop("nodeName")
    assert answered(new, operation="UPDATE", oldObject=old)["allowed"], "its scheduler has not placed it yet"


def test_no_other_user_removes_the_gate_of_a_waiting_pod() -> None:
    own = Webhook(AdmissionSettings(own_user="me"))
    both = [{"name": "example.com/quota"}, {"name": GATE}]
    for left, allowed in ((both[1:], True), (both[:1], False), ([], False)):
        changed = {"operation": "UPDATE", "oldObject": a_pod(schedulingGates=both)}
        answer = answered(a_pod(schedulingGates=left), own, userInfo={"username": "you"}, **changed)
        assert answer["allowed"] is allowed
        assert answered(a_pod(schedulingGates=left), own, userInfo={"username": "me"}, **changed)["allowed"]


@pytest.mark.parametrize("old", [None, {}, {"metadata": None}, a_pod(), a_pod({"ullage.io/fence": "1"})])
def test_all_else_of_a_pod_may_be_changed(old: Any) -> None:
    new = a_pod({"ullage.io/fence": "2", "hami.io/bind-phase": "success", "mine": "x"}, nodeName="n")
    assert "patch" not in answered(new, operation="UPDATE", oldObject=old)
    assert answered(new, operation="UPDATE", oldObject=old)["allowed"]
    assert not answered(new, operation="UPDATE", oldObject={"metadata": []})["allowed"]


def test_other_operations_and_kinds_pass() -> None:
    wrong = a_pod(nodeName="n")
    for more in ({"operation": "UPDATE"}, {"kind": {"kind": "Node"}}, {"subResource": "binding"}, {"object": None}):
        answer = answered(wrong, **more)
        assert answer["allowed"] is (more != {"object": None})


def test_validate_changes_nothing() -> None:
    assert "patch" not in answered(a_pod(), path="/validate")
    assert not answered(a_pod(nodeName="n"), path="/validate")["allowed"]
    assert "patch" in answered(a_pod(), path="/mutate")


@pytest.mark.parametrize("name", ["ullage.io/gpu-ids", "ullage.io/gpu-bindings", "hami.io/vgpu-devices-allocated"])
@pytest.mark.parametrize("more", [{}, {"schedulerName": "other"}, {"containers": [{"name": "c"}]}])
def test_an_annotation_that_is_added_again_after_its_removal_is_refused(name: str, more: Any) -> None:
    pod = a_pod({name: "forged"}, **more)
    refusal = answered(pod, path="/validate")
    assert (refusal["allowed"], refusal["status"]["code"]) == (False, 403)
    assert name in refusal["status"]["message"]
    assert answered(patched(pod, answered(pod, path="/mutate")), path="/validate")["allowed"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"kind": "AdmissionReview"}', b"[" * 100_000, b"\xff", b'{"request": {"uid": ""}}'],
)
def test_what_cannot_be_answered_is_a_bad_request(body: bytes) -> None:
    assert http().post("/webhook", content=body).status_code == 400


def test_a_body_that_is_too_long_is_refused() -> None:
    whole = json.dumps(review(a_pod())).encode()
    assert http(most=len(whole)).post("/webhook", content=whole).status_code == 200
    assert http(most=len(whole) - 1).post("/webhook", content=whole).status_code == 400


@pytest.mark.parametrize("depth", [100, 300, 400, 600, 900])
def test_deep_pods_are_answered(depth: int) -> None:
    deep: Any = "x"
    for _ in range(depth):
        deep = [deep]
    reported = http().post("/webhook", content=json.dumps(review(a_pod(volumes=deep))))
    assert reported.status_code in (200, 400)


def test_readiness_is_reported() -> None:
    assert http(unready=lambda: "not yet").get("/readyz").status_code == 503
    assert http().get("/readyz").status_code == http().get("/healthz").status_code == 200


WORDS = st.sampled_from(
    [GPU, MEMORY, PERCENT, "nvidia.com/gpucores", "nvidia.com/priority", "limits", "requests", "resources", "name",
     "env",
     "containers", "initContainers", "metadata", "annotations", "labels", "spec", "securityContext", "privileged",
     "ullage.io/gpu-count", "ullage.io/gpu-ids", "ullage.io/gang-enabled", "ullage.io/gang-group-key",
     "tensor-fusion.ai/vram-request", "nodeName", "schedulerName", "hami.io/gpu-scheduler-policy",
     "nvidia.com/numa-bind"]
)  # fmt: skip
LEAVES = (
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.sampled_from(["", "1", "x", "true", "101", "1Gi", "-1"])
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4))


@settings(max_examples=300)
@given(
    st.dictionaries(WORDS, VALUES, max_size=4),
    st.dictionaries(WORDS, VALUES, max_size=4),
    st.dictionaries(WORDS, VALUES, max_size=4),
    st.sampled_from(["gpu", "gpumem", "gpucores", "other"]),
)
def test_whatever_is_sent_is_answered_and_again_the_same(meta: Any, spec: Any, container: Any, asked: str) -> None:
    pod = {"metadata": meta, "spec": {"containers": [asking(**{asked: "1"}) | container, container, None]} | spec}
    answer = answered(pod)
    if answer["allowed"]:
        once = patched(pod, answer)
        assert "patch" not in answered(once)


def test_the_review_of_a_real_api_server_is_allowed() -> None:
    asked = json.loads(sample("review"))
    reported = http().post("/webhook?timeout=5s", content=json.dumps(asked)).json()["response"]
    assert (reported["uid"], reported["allowed"]) == (asked["request"]["uid"], True)


# --- turns ---

TREE = (Queue("lab"), Queue("vision", parent="lab"), Queue("text", parent="lab"), Queue("shop"))


def queueing(queues: Queueing, named: str = "") -> Webhook:
    return Webhook(AdmissionSettings(queues=queues, tree=TREE), named_queue=lambda _namespace: named)


def gates(pod: Any) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


@pytest.mark.parametrize(
    ("queues", "label", "of_namespace", "gated"),
    [
        ("off", "vision", "", False),
        ("off", None, "lab", False),
        ("named", None, "", False),
        ("named", "vision", "", True),
        ("named", None, "shop", True),
        ("all", None, "", True),
        ("all", "new", "", True),
        ("all", "vision", "lab", True),
    ],
)
def test_which_pods_wait_in_a_queue(queues: Queueing, label: str | None, of_namespace: str, gated: bool) -> None:
    pod = a_pod(labels=None if label is None else {GATE: label})
    done = admitted(pod, queueing(queues, of_namespace))
    assert gates(done) == ([GATE] if gated else [])
    wanted = label or (of_namespace if gated else None)
    assert done["metadata"].get("labels", {}).get(GATE) == (wanted or None)
    assert admitted(done, queueing(queues, of_namespace)) == done


def test_pods_without_cards_and_those_of_others_never_wait() -> None:
    plain = a_pod(labels={GATE: "vision"}, containers=[{"name": "c"}])
    assert gates(admitted(plain, queueing("all"))) == []
    assert gates(admitted(a_pod(schedulerName="volcano"), queueing("all"))) == []


def test_other_gates_stay() -> None:
    done = admitted(a_pod(schedulingGates=[{"name": "example.com/quota"}]), queueing("all"))
    assert gates(done) == ["example.com/quota", GATE]


@pytest.mark.parametrize(
    ("label", "of_namespace"),
    [("shop", "vision"), ("lab", ""), ("root", ""), ("a..b", ""), ("new", "lab"), ("lab", "vision")],
)
def test_queues_that_a_pod_may_not_name_are_refused_by_the_label(label: str, of_namespace: str) -> None:
    assert f"metadata.labels.{GATE}" in refused(a_pod(labels={GATE: label}), queueing("all", of_namespace))


def test_the_reason_of_a_waiting_pod_may_change() -> None:
    reported = a_pod({"ullage.io/queue-place": "a"})
    assert answered(reported, operation="UPDATE", oldObject=a_pod({"ullage.io/queue-waits": "x"}))["allowed"]


def test_no_pod_can_claim_that_it_was_admitted() -> None:
    done = admitted(a_pod({"ullage.io/queue-place": "a", "ullage.io/queue-waits": "x", "kept": "1"}), queueing("all"))
    assert set(done["metadata"]["annotations"]) == {"kept", "ullage.io/removed-annotations"}


# --- the environment by HAMi's device configuration ---


def configured(**nvidia: Any) -> Webhook:
    config = read_device_config({"nvidia": nvidia, "vnpus": {"configs": [ASCEND]}}, FAMILIES)
    return Webhook(reader=PodReader(PodSettings(families=config.families)))


ASCEND = {"commonWord": "Ascend910B3", "overwriteEnv": True}


def environment(pod: Any, webhook: Webhook) -> list[dict[str, str]]:
    done = patched(pod, answered(pod, webhook))["spec"]
    containers = [*done.get("initContainers", ()), *done["containers"]]
    return [{each["name"]: each["value"] for each in container.get("env", ())} for container in containers]


def test_containers_without_cards_see_none_where_the_configuration_says_so() -> None:
    hidden = {"NVIDIA_VISIBLE_DEVICES": "none", "ASCEND_VISIBLE_DEVICES": ""}
    own = {"name": "own", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    npu = {"name": "n", "resources": {"limits": {"huawei.com/Ascend910B3": "1"}}}
    claims = {"name": "k", "resources": {"claims": [{"name": "x"}]}}
    hook = configured(overwriteEnv=True)
    first = {"initContainers": [{"name": "i"}]}
    assert environment(a_pod(**first, containers=[asking(gpumem="1000"), own]), hook) == [
        hidden,
        {"ASCEND_VISIBLE_DEVICES": ""},
        {"NVIDIA_VISIBLE_DEVICES": "all", "ASCEND_VISIBLE_DEVICES": ""},
    ]
    assert environment(a_pod(containers=[npu, claims]), hook) == [{"NVIDIA_VISIBLE_DEVICES": "none"}, {}]
    assert environment(a_pod(containers=[{"name": "c"}]), hook) == [hidden]  # a pod without cards
    assert environment(a_pod(containers=[{"name": "c"}], schedulerName="volcano"), hook) == [{}]
    by_annotation = a_pod({"ullage.io/gpu-count": "1"}, containers=[{"name": "c"}])
    assert environment(by_annotation, hook) == [{}]
    plain = Webhook()
    assert environment(a_pod(containers=[asking(gpu="1"), {"name": "c"}]), plain) == [{}, {}]


@pytest.mark.parametrize(("policy", "written"), [("force", "force"), ("disable", "disable"), ("default", None)])
def test_containers_with_cards_have_the_policy_of_the_configuration_for_cores(policy: str, written: str | None) -> None:
    hook = configured(gpuCorePolicy=policy)
    (first, second) = environment(a_pod(containers=[asking(gpu="1", priority="0"), {"name": "c"}]), hook)
    assert first.get("GPU_CORE_UTILIZATION_POLICY") == written
    assert first["CUDA_TASK_PRIORITY"] == "0"
    assert "GPU_CORE_UTILIZATION_POLICY" not in second
