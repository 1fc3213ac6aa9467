"""A pod is read once for the questions that come about it, and again when it is another."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.kube.pod_cache import cached
from ullage.model.error import InvalidRequest
from ullage.wire.document import Document
from ullage.wire.pod import PodRequest


class Reader:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self, pod: Document) -> PodRequest | None:
        self.times += 1
        if "bad" in pod:
            raise InvalidRequest("bad")
        return None


def pod(uid: object = "u", **more: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid}, **more}


def test_a_pod_is_parsed_once_and_again_when_it_changed() -> None:
    reader = Reader()
    read = cached(reader)
    for _ in range(3):
        read(pod())
    assert reader.times == 1
    read(pod(spec={}))
    read(pod())
    assert reader.times == 3


def test_an_unreadable_pod_is_not_cached() -> None:
    reader = Reader()
    read = cached(reader)
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            read(pod(bad=1))
    read(pod())
    assert reader.times == 3


def test_a_pod_without_a_uid_is_parsed_each_time() -> None:
    reader = Reader()
    read = cached(reader)
    for document in (pod(None), pod([1]), {"metadata": 3}, {}) * 2:
        read(document)
    assert reader.times == 8


def test_only_the_last_pods_are_cached() -> None:
    reader = Reader()
    read = cached(reader)
    for number in range(1000):
        read(pod(str(number)))
    read(pod("999"))
    assert reader.times == 1000
    read(pod("0"))
    assert reader.times == 1001
