"""Suggested requests in the dialect of a pod: read again, they are the same request."""

from dataclasses import replace

import pytest

from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.request import ResourceRequirement
from ullage.wire.dialect import read_pod
from ullage.wire.pod import Dialect, PodRequest
from ullage.wire.pod_advice import request_text

OURS, THEIRS = {"ullage.io/gpu-count": "1"}, {"tensor-fusion.ai/gpu-count": "1"}
GPU, HAMI, AMD = {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"}, {"amd.com/gpu": "1"}


def a_pod(annotations: dict[str, str], **limits: str) -> PodRequest:
    containers = [{"name": "c", "resources": {"limits": limits}}]
    found = read_pod({"metadata": {"uid": "u", "annotations": annotations}, "spec": {"containers": containers}})
    assert found is not None
    return found


def typed(words: str) -> PodRequest:
    """The request of a pod in whose manifest these words stand."""
    entries = dict(entry.split(": ") for entry in words.split(", "))
    written = {key: value.strip('"') for key, value in entries.items()}
    amounts = {
        "cpu",
        "memory",
        *(key for key in written if key.endswith(("/gpu", "/gpumem", "-percentage", "/gpucores"))),
    }
    notes = {key: value for key, value in written.items() if key not in amounts}
    return a_pod(notes, **{key: value for key, value in written.items() if key in amounts})


PARTS = {
    "memory": Part(vram_bytes=40 << 30),
    "memory and compute": Part(vram_bytes=100 << 20, compute_ppm=250_000),
    "a fraction": Part(vram_ppm=870_000, compute_ppm=870_000),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize(
    "asker", [a_pod(OURS), a_pod(THEIRS), a_pod({}, **GPU), a_pod({}, **HAMI)], ids=lambda a: a.dialect
)
def test_a_part_that_would_fit_is_shown_in_the_dialect_of_the_pod(asker: PodRequest, part: Part) -> None:
    fits = ResourceRequirement(2000, 1 << 30, 2, part, CardSelector(isolation=Isolation.SOFT, pool="p"))
    words = request_text(fits, asker)
    if asker.dialect is Dialect.TENSOR_FUSION and part.vram_ppm:
        assert not words, "it has no word for it"
        return
    found = typed(words)
    assert (found.requirement.gpu_count, found.requirement.part) == (2, part)
    assert (found.requirement.cpu_milli, found.requirement.memory_bytes) == (2000, 1 << 30)
    assert found.requirement.cards.pool == "p"
    assert part.vram_ppm or found.dialect in (asker.dialect, "hami")


@pytest.mark.parametrize("asker", [a_pod(OURS), a_pod({}, **GPU), a_pod({}, **AMD)], ids=["ours", "plain", "amd"])
def test_whole_cards_are_written_as_a_number(asker: PodRequest) -> None:
    found = typed(request_text(replace(asker.requirement, gpu_count=3), asker))
    assert found.requirement == replace(asker.requirement, gpu_count=3, alignment=found.requirement.alignment)


def test_a_request_without_words_in_a_dialect_has_no_text() -> None:
    intel = a_pod({}, **{"gpu.intel.com/xe": "1"})
    assert not request_text(replace(intel.requirement, part=PARTS["memory"]), intel)
    tflops = Part(compute_gflops=60_500, vram_bytes=1 << 30)
    assert 'ullage.io/tflops-request: "60.5"' in request_text(replace(intel.requirement, part=tflops), a_pod(OURS))
