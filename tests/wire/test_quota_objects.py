"""Quotas as the Kubernetes objects they are imported from."""

from __future__ import annotations

import copy

import pytest

from ullage.model.error import InvalidRequest
from ullage.model.part import Part
from ullage.model.quota import Caps, Quota
from ullage.wire.quota import parse_gpu_resource_quota, quota_namespace

MIB = 2**20
GIB = 2**30

DOCUMENT = {
    "apiVersion": "tensor-fusion.ai/v1",
    "kind": "GPUResourceQuota",
    "metadata": {"name": "quota", "namespace": "team"},
    "spec": {
        "total": {
            "requests": {"tflops": "100", "vram": "1000Mi"},
            "limits": {"tflops": "1k", "vram": "8G"},
            "maxWorkers": 10,
            "alertThresholdPercent": 90,
        },
        "single": {
            "maxRequests": {"tflops": "500m", "vram": "8Gi"},
            "maxLimits": {"tflops": 0.5, "vram": 8589934592},
            "maxGPUCount": 2,
            "defaultRequests": {"tflops": "0", "compute": "12.5", "vram": "1Gi"},
            "defaultLimits": {"tflops": "1", "vram": "2Gi"},
        },
    },
    "status": {"used": {"workers": 7}},
}


def with_value(path: str, value: object) -> dict[str, object]:
    document = copy.deepcopy(DOCUMENT)
    *way, last = path.split(".")
    section: object = document
    for name in way:
        section = section[name]
    section[last] = value
    return document


def test_a_whole_object():
    assert quota_namespace(DOCUMENT) == "team"
    assert parse_gpu_resource_quota(DOCUMENT) == Quota(
        total_requests=Caps(100_000, 1000 * MIB),
        total_limits=Caps(1_000_000, 8 * 10**9),
        max_workers=10,
        max_requests=Caps(500, 8 * GIB),
        max_limits=Caps(500, 8 * GIB),
        max_gpu_count=2,
        default_requests=Part(0, GIB, 125_000),
        default_limits=Part(1000, 2 * GIB),
        alert_threshold_percent=90,
    )


@pytest.mark.parametrize("spec", [None, {}, {"total": None, "single": {}}, {"total": {"maxWorkers": None}}])
def test_what_is_not_said_is_unlimited_but_for_workers(spec):
    quota = parse_gpu_resource_quota({"kind": "GPUResourceQuota", "spec": spec})
    assert quota == Quota()
    assert (quota.max_workers, quota.alert_threshold_percent) == (32768, 95)
    assert quota.single == (None,) * 5
    assert quota.total == (None, None, None, None, 32768, None)


def test_zero_is_unset_for_one_request_and_nothing_for_the_total():
    zero = {"tflops": "0", "vram": "0"}
    spec = {
        "total": {"requests": zero, "limits": zero, "maxWorkers": 0, "alertThresholdPercent": 0},
        "single": {"maxRequests": zero, "maxLimits": zero, "maxGPUCount": 0, "defaultRequests": zero},
    }
    quota = parse_gpu_resource_quota({"spec": spec})
    assert quota == Quota(Caps(0, 0), Caps(0, 0), 0, alert_threshold_percent=0)
    assert quota.single == (None,) * 5


def test_what_is_finer_than_a_unit_rounds_up():
    quota = parse_gpu_resource_quota({"spec": {"total": {"requests": {"tflops": "1500u", "vram": "500m"}}}})
    assert quota.total_requests == Caps(2, 1)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        pytest.param("kind", "ResourceQuota", "kind", id="another kind"),
        pytest.param("spec", [], "spec", id="no object"),
        pytest.param("spec.total.requests", "100", "spec.total.requests", id="no amounts"),
        pytest.param("spec.total.requests.tflops", "-1", "spec.total.requests.tflops", id="negative compute"),
        pytest.param("spec.single.maxLimits.vram", "-1Gi", "spec.single.maxLimits.vram", id="negative vram"),
        pytest.param("spec.total.requests.vram", "8 Gi", "spec.total.requests.vram", id="no quantity"),
        pytest.param("spec.total.requests.vram", True, "spec.total.requests.vram", id="no number"),
        pytest.param("spec.total.requests.compute", "50", "spec.total.requests.compute", id="a cap in percent"),
        pytest.param("spec.single.defaultRequests.tflops", "1", "spec.single.defaultRequests.compute", id="both units"),
        pytest.param("spec.single.defaultRequests.compute", "101", "spec.single.defaultRequests.compute", id="percent"),
        pytest.param("spec.total.maxWorkers", -1, "spec.total.maxWorkers", id="negative workers"),
        pytest.param("spec.single.maxGPUCount", 1.5, "spec.single.maxGPUCount", id="half a card"),
        pytest.param("spec.total.alertThresholdPercent", 150, "alert_threshold_percent", id="threshold"),
        pytest.param("spec.total.limits.tflops", "50", "total_limits.compute_gflops", id="limit below request"),
    ],
)
def test_an_invalid_object_names_the_field(path, value, field):
    with pytest.raises(InvalidRequest) as refusal:
        parse_gpu_resource_quota(with_value(path, value))
    assert refusal.value.field == field


@pytest.mark.parametrize("metadata", [{}, {"namespace": ""}, {"namespace": 3}])
def test_an_object_without_namespace(metadata):
    with pytest.raises(InvalidRequest, match=r"metadata\.namespace"):
        quota_namespace({"metadata": metadata})
