"""Misspelt keys are named; known keys are not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ullage.model.nearest import nearest
from ullage.wire import unknown_keys as module
from ullage.wire.dialect import REQUEST_ANNOTATIONS, read_pod
from ullage.wire.pod.keys import Keys
from ullage.wire.unknown_keys import unknown_annotations, unknown_labels, unknown_resources


def test_an_unknown_key_is_named_with_the_one_that_was_probably_meant() -> None:
    keys = ["ullage.io/vram-requests", "ullage.io/gpu-cuont", "ullage.io/zzz", "other.io/gpu-cuont", "plain"]
    assert [str(each) for each in unknown_annotations(keys)] == [
        "metadata.annotations.ullage.io/vram-requests: it is not read; did you mean ullage.io/vram-request?",
        "metadata.annotations.ullage.io/gpu-cuont: it is not read; did you mean ullage.io/gpu-count?",
        "metadata.annotations.ullage.io/zzz: it is not read",
    ]


def test_another_domain_has_its_own_annotations() -> None:
    assert list(unknown_annotations(["ullage.io/zzz", "mine.io/gpu-count"], "mine.io")) == []
    (found,) = unknown_annotations(["mine.io/zzz"], "mine.io")
    assert str(found) == "metadata.annotations.mine.io/zzz: it is not read"


def test_a_key_under_another_domain_or_in_another_case_is_named_with_the_right_one() -> None:
    keys = [
        "hami.io/use-gpuuuid",
        "ullage.io/use-gputype",
        "nvidia.com/gpu-count",
        "ullage.io/GPU-Count",
        "ulage.io/qos",
    ]
    assert [(each.key, each.similar) for each in unknown_annotations(keys)] == [
        ("hami.io/use-gpuuuid", "nvidia.com/use-gpuuuid"),
        ("ullage.io/use-gputype", "nvidia.com/use-gputype"),
        ("nvidia.com/gpu-count", "ullage.io/gpu-count"),
        ("ullage.io/GPU-Count", "ullage.io/gpu-count"),
        ("ulage.io/qos", "ullage.io/qos"),
    ]


def test_unread_keys_of_other_schedulers_are_named_without_a_suggestion() -> None:
    keys = [f"tensor-fusion.ai/{name}" for name in ("enabled", "workload-profile", "inject-container", "is-local-gpu")]
    assert [(each.key, each.similar) for each in unknown_annotations([*keys, "hami.io/other", "nvidia.com/other"])] == [
        (key, "") for key in (*keys, "hami.io/other")
    ]


def test_a_label_in_place_of_an_annotation_is_named() -> None:
    assert [str(each) for each in unknown_annotations(["ullage.io/queue"])] == [
        "metadata.annotations.ullage.io/queue: it is not read; did you mean ullage.io/queue under labels?"
    ]
    labels = ["ullage.io/queue", "ullage.io/workload", "tensor-fusion.ai/workload", "app", "ullage.io/leader"]
    assert list(unknown_labels(labels)) == []
    assert [str(each) for each in unknown_labels(["ullage.io/queues", "ullage.io/qos", "nvidia.com/numa-bind"])] == [
        "metadata.labels.ullage.io/queues: it is not read; did you mean ullage.io/queue?",
        "metadata.labels.ullage.io/qos: it is not read; did you mean ullage.io/qos under annotations?",
        "metadata.labels.nvidia.com/numa-bind: it is not read; did you mean nvidia.com/numa-bind under annotations?",
    ]


@pytest.mark.parametrize("domain", ["ullage.io", "tensor-fusion.ai", "x.y"])
def test_thousands_of_keys_cost_no_more_searches_than_some(monkeypatch: pytest.MonkeyPatch, domain: str) -> None:
    """A pod may have 256 KiB of annotations, and the process that reads them answers nobody else meanwhile."""
    asked: list[str] = []

    def noted(word: str, known: Iterable[str], cutoff: float) -> str | None:
        asked.append(word)
        return nearest(word, known, cutoff)

    monkeypatch.setattr(module, "nearest", noted)
    keys = [f"{domain}/gpu-cuont{number:05}" for number in range(10_000)]
    assert len(list(unknown_annotations(keys))) == (0 if domain == "x.y" else 10_000)
    list(unknown_labels(keys))
    assert 0 < len(asked) <= 4 * 64


@pytest.mark.parametrize("gang", [{}, {"gang-enabled": "true", "gang-group-key": "default/g", "gang-min-members": "2"}])
def test_every_annotation_that_is_read_is_known(monkeypatch: pytest.MonkeyPatch, gang: dict[str, str]) -> None:
    read: set[str] = set()
    plain = Keys.key

    def noted(self: Keys, name: str) -> str:
        key = plain(self, name)
        read.add(key)
        return key

    monkeypatch.setattr(Keys, "key", noted)
    words = {"gpu-count": "1", "tflops-request": "1", "vram-request": "1Gi", "isolation": "soft", **gang}
    container: dict[str, Any] = {"name": "c", "image": "x", "resources": {}}
    metadata = {"name": "p", "uid": "p", "annotations": {f"ullage.io/{name}": text for name, text in words.items()}}
    assert read_pod({"metadata": metadata, "spec": {"containers": [container]}}) is not None
    ours = {key.removeprefix("ullage.io/") for key in read if key.startswith("ullage.io/")}
    assert "gpu-count" in ours
    assert ours <= {*REQUEST_ANNOTATIONS}


def test_a_misspelt_resource_is_named_with_the_one_that_was_probably_meant() -> None:
    limits = {
        "nvidia.com/gpu": "1",
        "nvidia.com/gpumemory": "1000",
        "nvidia.com/gpumem-percent": "10",
        "nvidia.com/mig-1g.10gb": "1",
        "nvidia.com/hostdev": "1",
        "amd.com/gpus": "1",
        "example.com/gpumem": "1",
        "cpu": "1",
    }
    containers = [{"resources": {"limits": limits, "requests": limits}}, {"resources": {"limits": limits}}]
    field = "spec.containers[0].resources.limits"
    assert list(unknown_resources({"spec": {"containers": containers}})) == [
        f"{field}.nvidia.com/gpumemory: it is not read as a request for cards; did you mean nvidia.com/gpumem?",
        (
            f"{field}.nvidia.com/gpumem-percent: it is not read as a request for cards; "
            "did you mean nvidia.com/gpumem-percentage?"
        ),
        f"{field}.nvidia.com/hostdev: it is not read as a request for cards",
        f"{field}.amd.com/gpus: it is not read as a request for cards; did you mean amd.com/gpu?",
    ]
