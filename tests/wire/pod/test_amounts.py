"""Amounts in annotations: exact, and never 0 by mistake."""

import pytest

from tests.wire.pod.pods import DOMAINS, GI, asked_by, pod, refusal
from ullage.model.claim import Claim, Qos
from ullage.model.part import WHOLE_CARD, CardSelector, Isolation, Part
from ullage.model.request import ResourceRequirement
from ullage.wire.pod import compose_request


@DOMAINS
def test_a_full_pod_is_read_under_any_domain(domain):
    document = pod(
        domain,
        gpupool="pool-a",
        tflops_request="50",
        tflops_limit="100",
        vram_request="8Gi",
        vram_limit="16Gi",
        gpu_count="2",
        gpu_indices="0, 3",
        gpu_model="A100,NVIDIA H100",
        vendor="nvidia",
        isolation="hard",
        qos="critical",
        metadata={"creationTimestamp": "1970-01-01T01:00:00Z"},
        labels={"app": "x"},
    )
    request = compose_request(document, domain)
    assert request.uid == "u-1"
    assert request.requirement == ResourceRequirement(
        gpu_count=2,
        part=Part(compute_gflops=50_000, vram_bytes=8 * GI),
        cards=CardSelector(("A100", "NVIDIA H100"), ("NVIDIA",), (0, 3), "pool-a", Isolation.HARD),
    )
    assert request.claim == Claim(
        namespace="team",
        workload="serve",
        pod="serve-0",
        pod_uid="u-1",
        limit=Part(100_000, 16 * GI),
        qos=Qos.CRITICAL,
        priority=100_000,
        created_at=3600.0,
        labels={f"{domain}/workload": "serve", "app": "x"},
    )
    assert request.warnings == ()


def test_keys_of_another_domain_are_not_read():
    assert compose_request(pod("other.io", tflops_request="50", gpu_count="zero")).requirement.part == WHOLE_CARD


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({"tflops_request": "500m", "vram_request": "1Gi"}, Part(500, GI)),
        ({"tflops_request": "1.5"}, Part(1500)),
        ({"tflops_request": "2k"}, Part(2_000_000)),
        ({"tflops_request": "0.1m"}, Part(1)),
        ({"vram_request": "500M"}, Part(0, 500_000_000)),
        ({"vram_request": "1e9"}, Part(0, 10**9)),
        ({"compute_percent_request": "15"}, Part(compute_ppm=150_000)),
        ({"compute_percent_request": "14.28571"}, Part(compute_ppm=142_858)),
        ({"tflops_request": "0", "compute_percent_request": "10"}, Part(compute_ppm=100_000)),
        ({"tflops_limit": "20", "vram_limit": "4Gi"}, Part(20_000, 4 * GI)),
        ({"compute_percent_limit": "30"}, Part(compute_ppm=300_000)),
        ({"tflops_request": "5", "compute_percent_limit": "30"}, Part(5000)),
        ({"tflops_request": "0", "tflops_limit": "9"}, Part()),
    ],
)
def test_amounts_are_exact_and_a_request_defaults_to_its_limit(keys, part):
    assert asked_by(**keys).part == part


@pytest.mark.parametrize(
    ("keys", "limit"),
    [
        ({}, None),
        ({"tflops_request": "5"}, None),
        ({"tflops_request": "5", "tflops_limit": "0"}, None),
        ({"tflops_request": "5", "vram_request": "1Gi", "tflops_limit": "6"}, Part(6000, GI)),
        ({"compute_percent_request": "5", "vram_limit": "1Gi"}, Part(0, GI, 50_000)),
        ({"tflops_request": "5", "compute_percent_limit": "30"}, Part(0, 0, 300_000)),
    ],
)
def test_a_limit_that_is_not_stated_is_the_request(keys, limit):
    assert compose_request(pod(**keys)).claim.limit == limit


def test_two_cards_with_amounts_per_card():
    requirement = asked_by(tflops_request="250m", vram_request="1Gi", gpu_count="2")
    assert (requirement.gpu_count, requirement.part) == (2, Part(250, GI))


@pytest.mark.parametrize("name", ["tflops_request", "tflops_limit", "vram_request", "vram_limit"])
@pytest.mark.parametrize("value", ["", "lots", "8 Gi", "-1", "1e99", "8GB"])
def test_an_amount_that_cannot_be_read_is_never_zero(name, value):
    message = refusal(**{name: value})
    assert f"ullage.io/{name.replace('_', '-')}" in message
    assert repr(value) in message


@pytest.mark.parametrize("value", ["101", "-5", "15%", "half"])
def test_a_percentage_is_from_0_to_100(value):
    assert "compute-percent-request" in refusal(compute_percent_request=value)


@pytest.mark.parametrize("kind", ["request", "limit"])
def test_compute_is_given_in_one_unit(kind):
    message = refusal(**{f"tflops_{kind}": "10", f"compute_percent_{kind}": "20"})
    assert f"ullage.io/tflops-{kind}: '10'" in message
    assert f"ullage.io/compute-percent-{kind} is '20'" in message


def test_an_annotation_is_a_text():
    assert "quotes" in refusal(gpu_count=2)
    assert "quotes" in refusal(vram_request=8)


def test_milli_bytes_are_read_with_a_warning():
    request = compose_request(pod(vram_request="500m", tflops_request="500m"))
    assert request.requirement.part == Part(500, 1)
    assert len(request.warnings) == 1
    assert "ullage.io/vram-request: '500m'" in request.warnings[0]
