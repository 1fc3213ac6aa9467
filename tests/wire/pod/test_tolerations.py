"""The tolerations of a pod are part of its conditions on nodes, in whatever words it requests cards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.hami import pods as hami_pods
from tests.wire.pod.pods import pod
from ullage.model.affinity import ANY_NODE
from ullage.model.error import InvalidRequest
from ullage.model.taint import Taint, Toleration
from ullage.wire.hami.request import read_hami
from ullage.wire.pod import compose_request
from ullage.wire.pod.aligned import read_aligned
from ullage.wire.pod.tolerations import tolerations_of

WRITTEN: list[dict[str, Any]] = [
    {"key": "dedicated", "operator": "Equal", "value": "team-a", "effect": "NoSchedule"},
    {"key": "gpu", "operator": "Exists"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    {"key": "size", "operator": "Gt", "value": "3"},
]
READ = (
    Toleration("dedicated", "Equal", "team-a", "NoSchedule"),
    Toleration("gpu", "Exists"),
    Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute"),
    Toleration("size", "Gt", "3"),
)


def test_tolerations_are_read_in_every_dialect() -> None:
    spec = {"tolerations": WRITTEN}
    assert compose_request(pod(spec=spec)).requirement.nodes.tolerations == READ
    in_hami = read_hami(hami_pods.pod(hami_pods.limits(gpu="1"), spec=spec))
    assert in_hami is not None
    assert in_hami.requirement.nodes.tolerations == READ
    amounts = {"cpu": "2", "memory": "1Gi"}
    guaranteed = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    both = {"containers": [guaranteed], **spec, "nodeSelector": {"zone": "a"}}
    aligned = read_aligned(pod(spec=both), align_all=True)
    assert aligned is not None
    assert aligned.requirement.nodes.tolerations == READ
    assert not aligned.requirement.nodes.allows("n", {})


def test_an_absent_operator_compares_values_and_an_unknown_one_tolerates_nothing() -> None:
    (plain,) = tolerations_of({"tolerations": [{"key": "gpu", "value": "a"}]})
    assert plain.tolerates(Taint("gpu", "a", "NoSchedule"))
    assert not plain.tolerates(Taint("gpu", "b", "NoSchedule"))
    assert not READ[-1].tolerates(Taint("size", "4", "NoSchedule"))


def test_equal_tolerations_are_kept_once_and_none_are_no_condition() -> None:
    assert tolerations_of({"tolerations": WRITTEN}) is tolerations_of({"tolerations": list(map(dict, WRITTEN))})
    assert compose_request(pod(spec={"tolerations": []})).requirement.nodes is ANY_NODE
    one, other = (compose_request(pod(spec={"tolerations": WRITTEN})).requirement for _ in range(2))
    assert one is other


@pytest.mark.parametrize(("written", "path"), [("all", r"spec\.tolerations"), (["all"], r"spec\.tolerations\[0\]")])
def test_what_is_no_list_of_tolerations_is_refused_by_its_path(written: object, path: str) -> None:
    with pytest.raises(InvalidRequest, match=path):
        compose_request(pod(spec={"tolerations": written}))
