"""Pods that admission refuses."""

import pytest

from tests.wire.pod.pods import containers, pod
from ullage.model.error import InvalidAnnotation
from ullage.wire.pod import check_admission, compose_request


def admit(replicas=None, **keys):
    check_admission(compose_request(pod(**{"gpupool": "p", **keys})), replicas=replicas)


@pytest.mark.parametrize(
    "keys",
    [
        {"tflops_request": "1"},
        {"compute_percent_limit": "1"},
        {"vram_limit": "1Gi"},
        {"isolation": "shared"},
        {"isolation": "partitioned", "partition_id": "1g.10gb"},
        {"tflops_request": "1", "vendor": "NVIDIA,Ascend"},
        {"tflops_request": "1", "vendor": "AMD", "isolation": "hard"},
        {"tflops_request": "1", "compute_percent_limit": "1"},
        {"dedicated_gpu": "true", "gpu_model": "MI300X", "vendor": "AMD"},
        {"spec": containers({"limits": {"amd.com/gpu": "1"}})},
    ],
)
def test_pods_that_can_be_served_are_admitted(keys):
    admit(**keys)


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({"tflops_request": "1", "gpupool": ""}, ["gpupool"]),
        ({"vram_request": "0"}, ["vram-request: '0'", "tflops-request", "compute-percent-request"]),
        ({"compute_percent_request": "0.0"}, ["compute-percent-request: '0.0'", "no compute and no vram"]),
        ({"tflops_request": "0", "isolation": "hard"}, ["tflops-request"]),
        ({"isolation": "partitioned"}, ["isolation: 'partitioned'", "tflops-request", "partition-id"]),
        ({"tflops_request": "1", "vendor": "AMD"}, ["isolation: 'soft'", "vendor", "AMD"]),
        ({"tflops_request": "1", "vendor": "NVIDIA|Intel"}, ["isolation", "Intel"]),
        ({"tflops_request": "2", "tflops_limit": "1"}, ["tflops-limit", "tflops-request"]),
        ({"vram_request": "2Gi", "vram_limit": "1Gi"}, ["vram-limit", "vram-request"]),
        ({"compute_percent_request": "2", "compute_percent_limit": "1"}, ["compute-percent-limit"]),
    ],
)
def test_pods_that_cannot_be_served_are_not_admitted(keys, names):
    with pytest.raises(InvalidAnnotation) as caught:
        admit(**keys)
    assert all(name in caught.value.message for name in names)


def test_a_gang_is_at_most_as_large_as_its_workload():
    admit(3, tflops_request="1", gang_min_members="3")
    with pytest.raises(InvalidAnnotation, match=r"gang-min-members: 3 .* 2 replicas"):
        admit(2, tflops_request="1", gang_min_members="3")
