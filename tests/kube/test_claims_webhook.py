"""The gate behind which pods wait for their claims, put there when they are created."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kube.test_webhook import answered, patched
from ullage.kube.claims.asked import claiming_pod
from ullage.kube.client.kinds import PODS
from ullage.kube.webhook.webhook import AdmissionSettings, Webhook
from ullage.model.alignment import LinkDemand

GATE = {"name": "ullage.io/claims"}
GATED = Webhook(AdmissionSettings(claims_gate="ullage.io/claims"))
CLAIMS = [{"name": "c", "resourceClaimName": "one"}]


def claiming(**spec: Any) -> dict[str, Any]:
    asked = {"schedulerName": "ullage", "containers": [{"name": "c"}], "resourceClaims": CLAIMS}
    return {"metadata": {"generateName": "p-"}, "spec": asked | spec}


def gates(pod: dict[str, Any], webhook: Webhook = GATED) -> Any:
    return patched(pod, answered(pod, webhook))["spec"].get("schedulingGates")


def test_a_pod_of_ours_with_claims_waits_behind_the_gate():
    assert gates(claiming()) == [GATE]
    other = {"name": "ullage.io/queue"}
    assert gates(claiming(schedulingGates=[other])) == [other, GATE]


def test_a_second_call_changes_nothing():
    pod = claiming(schedulingGates=[GATE])
    answer = answered(pod, GATED)
    assert "patch" not in answer
    assert gates(patched(claiming(), answered(claiming(), GATED))) == [GATE]


@pytest.mark.parametrize(
    "pod",
    [
        claiming(resourceClaims=None),
        claiming(resourceClaims=[]),
        claiming(schedulerName="default-scheduler"),
        claiming(schedulerName="another"),
        claiming(nodeName="a"),
    ],
    ids=["no claims", "empty", "default", "another", "placed"],
)
def test_others_do_not(pod: dict[str, Any]):
    assert gates(pod) is None


def test_without_claims_in_force_nobody_does():
    assert gates(claiming(), Webhook()) is None


def test_a_pod_with_cards_by_resources_and_claims_waits_too():
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    assert gates(claiming(containers=[container])) == [GATE]


def test_what_a_pod_asks_of_links_counts_for_the_cards_of_its_claims():
    pod = claiming()
    pod["metadata"] = {"name": "p", "namespace": "n", "uid": "u", "annotations": {"ullage.io/gpu-links": "island"}}
    assert "warnings" not in answered(pod, GATED)
    read = PODS.read(json.dumps(pod).encode())
    assert claiming_pod(read, read.document, "ullage.io", None).links is LinkDemand.ISLAND
    del pod["spec"]["resourceClaims"]
    assert "gpu-links has no effect" in answered(pod, GATED)["warnings"][0]
