"""Annotations of a pod that waits for admission, and the patch that opens its gate."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.kube.patches import Unpatchable, apply_operations
from ullage.wire.json_patch import PatchOperation
from ullage.wire.pod.gate import open_gate, place_of, reason_of, set_reason


def a_pod(*gates: str, version: str = "7", **annotations: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "p", "uid": "u", "resourceVersion": version}
    if annotations:
        metadata["annotations"] = {f"ullage.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"metadata": metadata, "spec": {"schedulingGates": [{"name": name} for name in gates]}}


def after(pod: dict[str, Any], operations: list[PatchOperation]) -> Any:
    return apply_operations(pod, msgspec.to_builtins(operations))


def test_opening_a_gate_removes_it_and_writes_the_place_and_nothing_else() -> None:
    pod = a_pod("other", "ullage.io/queue", queue_waits="for ever", kept="1")
    done = after(pod, open_gate(pod, "a"))
    assert done["spec"]["schedulingGates"] == [{"name": "other"}]
    assert done["metadata"]["annotations"] == {"ullage.io/kept": "1", "ullage.io/queue-place": "a"}
    assert open_gate(done, "a") == []
    assert place_of(done["metadata"]["annotations"]) == "a"
    assert after(done, open_gate(done, "b"))["metadata"]["annotations"]["ullage.io/queue-place"] == "b"


def test_a_container_without_cards_has_no_position() -> None:
    pod = a_pod("ullage.io/queue")
    assert after(pod, open_gate(pod)) == {**pod, "spec": {"schedulingGates": []}}


def test_the_reason_of_a_wait_is_written_once() -> None:
    pod = a_pod("ullage.io/queue")
    done = after(pod, set_reason(pod, "no room"))
    assert reason_of(done["metadata"]["annotations"]) == "no room"
    assert set_reason(done, "no room") == []


@pytest.mark.parametrize("change", [{"uid": "another"}, {"resourceVersion": "8"}])
def test_a_patch_applies_only_to_this_version_of_the_pod(change: dict[str, str]) -> None:
    pod = a_pod("ullage.io/queue")
    other = {**pod, "metadata": pod["metadata"] | change}
    for operations in (open_gate(pod, "a"), set_reason(pod, "no room")):
        with pytest.raises(Unpatchable):
            after(other, operations)
