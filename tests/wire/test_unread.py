"""What is misspelt is told of; what anybody reads is not."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.wire.dialect import read_pod
from ullage.wire.pod.keys import Keys
from ullage.wire.unread import ASKED, unread


def test_a_key_that_nobody_reads_is_told_with_the_one_that_may_have_been_meant() -> None:
    keys = ["ullage.io/vram-requests", "ullage.io/gpu-cuont", "ullage.io/zzz", "other.io/gpu-cuont", "plain"]
    assert [str(each) for each in unread(keys)] == [
        "metadata.annotations.ullage.io/vram-requests: nobody reads it; did you mean ullage.io/vram-request?",
        "metadata.annotations.ullage.io/gpu-cuont: nobody reads it; did you mean ullage.io/gpu-count?",
        "metadata.annotations.ullage.io/zzz: nobody reads it",
    ]


def test_under_another_domain_others_count() -> None:
    assert list(unread(["ullage.io/zzz", "mine.io/gpu-count"], "mine.io")) == []
    (found,) = unread(["mine.io/zzz"], "mine.io")
    assert str(found) == "metadata.annotations.mine.io/zzz: nobody reads it"


@pytest.mark.parametrize("gang", [{}, {"gang-enabled": "true", "gang-group-key": "default/g", "gang-min-members": "2"}])
def test_whatever_is_read_of_a_pod_is_known(monkeypatch: pytest.MonkeyPatch, gang: dict[str, str]) -> None:
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
    assert ours <= {*ASKED}
