"""Every word of a pod is honoured, refused by its name, or a warning names it as unread."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.test_webhook import a_pod, answered, asking, refused

NOBODY = {"name": "c"}
AMD = {"name": "c", "resources": {"limits": {"amd.com/gpu": "1"}}}


def reported(annotations: dict[str, str], container: dict[str, Any], labels: dict[str, str] | None = None) -> list[str]:
    answer = answered(a_pod(annotations, labels, containers=[container]))
    assert answer["allowed"], answer
    return list(answer.get("warnings", []))


@pytest.mark.parametrize(
    ("key", "text", "container", "why"),
    [
        ("nvidia.com/use-gpuuuid", "GPU-1", AMD, "it is for cards of NVIDIA, the pod requests those of AMD"),
        ("nvidia.com/use-gpuuuid", "GPU-1", NOBODY, "the pod requests no cards"),
        ("nvidia.com/use-gpuuuid", "GPU-1", asking(gpu="0"), "the pod requests no cards"),
        ("ullage.io/gang-min-members", "3", NOBODY, "the pod requests no cards"),
        ("tensor-fusion.ai/eviction-protection", "3m", NOBODY, "the pod requests no cards"),
        ("ullage.io/partition-id", "1g", asking(gpumem="5"), "the pod requests HAMi's resources"),
        ("tensor-fusion.ai/qos", "high", asking(gpumem="5"), "write ullage.io/qos"),
        ("tensor-fusion.ai/gang-min-members", "2", asking(gpu="1"), "write ullage.io/gang-min-members"),
    ],
)
def test_a_word_that_this_pod_does_not_use_is_a_warning(
    key: str, text: str, container: dict[str, Any], why: str
) -> None:
    (warning,) = reported({key: text}, container)
    assert warning.startswith(f"metadata.annotations.{key} has no effect: ")
    assert why in warning


@pytest.mark.parametrize("name", ["gpupool", "qos", "gang-min-members", "numa-policy"])
def test_a_pod_of_tensor_fusion_is_warned_which_of_our_words_it_must_write_in_its_own(name: str) -> None:
    text = {"gpupool": "training", "qos": "high", "gang-min-members": "2", "numa-policy": "restricted"}[name]
    (warning,) = reported({"tensor-fusion.ai/vram-request": "1Gi", f"ullage.io/{name}": text}, NOBODY)
    assert warning.startswith(f"metadata.annotations.ullage.io/{name} has no effect: ")
    assert f"write tensor-fusion.ai/{name}" in warning


def test_words_that_are_read_are_no_warnings() -> None:
    words = {
        "nvidia.com/use-gpuuuid": "GPU-1",
        "hami.io/node-scheduler-policy": "spread",
        "ullage.io/qos": "high",
        "ullage.io/gpupool": "training",
    }
    assert reported(words, asking(gpumem="5"), {"ullage.io/queue": "a", "ullage.io/workload": "b"}) == []
    assert reported({"ullage.io/qos": "high", "ullage.io/workload": "w"}, NOBODY) == []


def test_a_request_among_the_labels_is_a_warning() -> None:
    assert reported({}, asking(gpu="1"), {"ullage.io/qos": "high", "ullage.io/queues": "a"}) == [
        "metadata.labels.ullage.io/qos: it is not read; did you mean ullage.io/qos under annotations?",
        "metadata.labels.ullage.io/queues: it is not read; did you mean ullage.io/queue?",
    ]


def test_a_request_in_other_letters_is_refused_by_its_name() -> None:
    message = refused(a_pod({"ullage.io/GPU-count": "2"}, containers=[NOBODY]))
    assert "did you mean ullage.io/gpu-count?" in message


@pytest.mark.parametrize("amount", ["10m", "5u", "1n", "0.5"])
def test_parts_of_a_mib_are_no_amount_of_bytes(amount: str) -> None:
    message = refused(a_pod(containers=[asking(gpu="1", gpumem=amount)]))
    assert f"'{amount}' is not valid: a whole number is needed (it counts MiB)" in message


@pytest.mark.parametrize("none", ["0", "0m", "0.0", "0e3", "0Ki"])
def test_no_card_is_none_however_it_is_written(none: str) -> None:
    assert "patch" not in answered(a_pod(containers=[asking(gpu=none)]))
    (warning,) = reported({}, asking(gpu=none, gpumem="500"))
    assert "0 nvidia.com/gpu" in warning
