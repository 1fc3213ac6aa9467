"""The number of requested cards, and their conditions."""

import pytest

from tests.wire.pod.pods import GI, asked_by, containers, pod, refusal
from ullage.model.claim import Qos
from ullage.model.error import InvalidRequest
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.wire.pod import WHOLE_CARD, PodDefaults, compose_request


def test_one_card_by_default():
    requirement = asked_by(tflops_request="1")
    assert requirement.gpu_count == 1
    assert requirement.cards == CardSelector(isolation=Isolation.SOFT)


@pytest.mark.parametrize("value", ["0", "129", "-1", "1.5", "two", "99999999999999999999"])
def test_the_count_is_from_1_to_128(value):
    assert f"gpu-count: {value!r}" in refusal(gpu_count=value)


def test_128_cards_can_be_requested():
    assert asked_by(gpu_count="128", tflops_request="1").gpu_count == 128


@pytest.mark.parametrize("value", ["0,", "a", "-1", "0,0", "1 2", ",", "99999999999"])
def test_invalid_indices_are_refused(value):
    assert "ullage.io/gpu-indices" in refusal(gpu_indices=value)


def test_indices_give_the_count_unless_it_is_stated():
    assert asked_by(gpu_indices="3,1,2").gpu_count == 3
    message = refusal(gpu_indices="0,1", gpu_count="1")
    assert "ullage.io/gpu-indices: '0,1'" in message
    assert "ullage.io/gpu-count requests 1" in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("qos", "best"), ("qos", "High"), ("vendor", "acme"), ("isolation", "none"), ("dedicated_gpu", "yes")),
        *(("gpu_model", "A100,"), ("gpu_model", "A100|A100"), ("gpu_model", "A=B"), ("vendor", "AMD,,NVIDIA")),
    ],
)
def test_unknown_values_are_refused(name, value):
    message = refusal(**{name: value})
    assert f"ullage.io/{name.replace('_', '-')}" in message


@pytest.mark.parametrize("name", ["qos", "vendor", "gpu_model", "isolation", "gpupool", "gpu_indices", "gpu_count"])
def test_a_blank_value_is_none(name):
    assert compose_request(pod(**{name: " "})) == compose_request(pod(**{name: ""})) == compose_request(pod())


def test_vendors_are_known_by_any_case_and_models_are_separated_by_commas_or_bars():
    cards = asked_by(vendor="nvidia|Amd", gpu_model="A100 | H100, L40").cards
    assert (cards.vendors, cards.models) == (("NVIDIA", "AMD"), ("A100", "H100", "L40"))


def test_cards_are_of_the_family_whose_plugin_hands_them_out():
    limits = {"limits": {"iluvatar.ai/MR-V100-vgpu": "1"}}
    body = pod(vendor="iluvatar", gpu_count="1")
    body["spec"]["containers"] = [{"name": "c", "resources": limits}]
    assert compose_request(body).requirement.cards.vendors == ("MR-V100",)


def test_a_vendor_can_be_configured():
    defaults = PodDefaults(vendors=("Acme",))
    assert compose_request(pod(vendor="acme"), defaults=defaults).requirement.cards.vendors == ("Acme",)


def test_the_pool_gives_defaults():
    defaults = PodDefaults("warm", Isolation.HARD, Qos.LOW)
    request = compose_request(pod(tflops_request="1"), defaults=defaults)
    assert (request.requirement.cards.pool, request.requirement.cards.isolation) == ("warm", Isolation.HARD)
    assert request.claim.qos is Qos.LOW
    own = compose_request(pod(gpupool="own", isolation="soft", qos="medium"), defaults=defaults)
    assert (own.requirement.cards.pool, own.requirement.cards.isolation) == ("own", Isolation.SOFT)
    assert own.claim.qos is Qos.MEDIUM


def test_shared_isolation_without_amounts_requests_whole_cards():
    requirement = asked_by(isolation="shared", gpu_count="2")
    assert requirement.whole
    assert requirement.part is None
    assert asked_by(isolation="shared", tflops_request="10").part == Part(10_000)


def test_a_pinned_template_needs_partitions():
    requirement = asked_by(isolation="partitioned", partition_id="mig-4g-94gb")
    assert requirement.cards.template == "mig-4g-94gb"
    for keys in ({}, {"isolation": "hard"}):
        message = refusal(partition_id="1g.10gb", **keys)
        assert "ullage.io/partition-id: '1g.10gb'" in message
        assert "ullage.io/isolation" in message


def test_a_dedicated_card_is_all_of_one_model():
    request = compose_request(pod(dedicated_gpu="true", gpu_model="A100", tflops_request="5"))
    assert request.requirement.part == WHOLE_CARD
    assert request.claim.limit is None
    assert request.claim.qos is Qos.HIGH
    assert compose_request(pod(dedicated_gpu="false", tflops_request="5")).requirement.part == Part(5000)
    assert asked_by(dedicated_gpu="true", gpu_model="A100", isolation="shared").whole
    message = refusal(dedicated_gpu="true")
    assert "ullage.io/dedicated-gpu" in message
    assert "ullage.io/gpu-model" in message
    assert "ullage.io/isolation" in refusal(dedicated_gpu="true", gpu_model="A", isolation="partitioned")


def test_native_limits_give_count_vendor_and_whole_cards():
    spec = containers({"limits": {"nvidia.com/gpu": "2"}}, {"limits": {"nvidia.com/gpu": 1}})
    requirement = compose_request(pod(spec=spec)).requirement
    assert (requirement.gpu_count, requirement.cards.vendors) == (3, ("NVIDIA",))
    assert requirement.part == WHOLE_CARD
    assert compose_request(pod(spec=spec, isolation="shared")).requirement.part is None
    with_vram = compose_request(pod(spec=spec, vram_request="8Gi", vram_limit="9Gi"))
    assert with_vram.requirement.part == Part(vram_bytes=8 * GI, compute_ppm=PPM)
    assert with_vram.claim.limit == Part(0, 9 * GI, PPM)
    assert compose_request(pod(spec=spec, tflops_request="5")).requirement.part == Part(5000)
    amd = compose_request(pod(spec=containers({"limits": {"amd.com/gpu": "1"}}))).requirement
    assert amd.cards.vendors == ("AMD",)


def test_a_count_equals_that_of_native_limits():
    spec = containers({"limits": {"nvidia.com/gpu": "2"}})
    requirement = compose_request(pod(spec=spec, gpu_count="2", tflops_request="5")).requirement
    assert (requirement.gpu_count, requirement.part, requirement.cards.vendors) == (2, Part(5000), ("NVIDIA",))
    assert "request 2 of nvidia.com/gpu" in refusal(spec=spec, gpu_count="1", tflops_request="5")


def test_cards_without_requested_amounts_are_whole():
    assert asked_by(gpu_count="2").part == WHOLE_CARD
    assert asked_by(gpu_model="A100").part == WHOLE_CARD
    assert asked_by(gpu_count="1", isolation="hard").part == WHOLE_CARD
    assert asked_by(gpu_count="1", isolation="shared").part is None
    assert asked_by(gpu_count="1", vram_request="0").part == Part()


def test_native_limits_that_contradict_are_refused():
    nvidia = containers({"limits": {"nvidia.com/gpu": "2"}})
    message = refusal(spec=nvidia, gpu_indices="0")
    assert "ullage.io/gpu-indices" in message
    assert "nvidia.com/gpu requests 2" in message
    assert "NVIDIA" in refusal(spec=nvidia, vendor="AMD")
    for limits in ({"nvidia.com/gpu": "1", "amd.com/gpu": "1"}, {"nvidia.com/gpu": "129"}, {"nvidia.com/gpu": "x"}):
        with pytest.raises(InvalidRequest, match=r"nvidia\.com/gpu"):
            compose_request(pod(spec=containers({"limits": limits})))
