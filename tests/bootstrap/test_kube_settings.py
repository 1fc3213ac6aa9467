"""What of `[kube]` cannot be is refused at the start, with the field and what to write."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.bootstrap.kube_settings import KubeSection
from ullage.model.error import InvalidRequest


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("domain", ""),
        ("domain", "A B"),
        ("domain", "a/b"),
        ("lease", ""),
        ("lease_namespace", "../x"),
        ("scheduler_name", "A B"),
        ("runtime_class", "n_v"),
        ("node_label_selector", "!!"),
        ("node_label_selector", "a=b,"),
        ("node_label_selector", "a in b"),
        ("timeout_s", float("inf")),
        ("node_lock_retry_s", float("inf")),
        ("http_bind", "\0:80"),
        ("http_bind", ":" + "1" * 5000),
    ],
)
def test_what_cannot_be_is_refused(field: str, value: Any):
    with pytest.raises(InvalidRequest) as refused:
        KubeSection(**{field: value})
    assert refused.value.field == f"kube.{field}"


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "a",
        "!a",
        "a=b",
        "a==b",
        "a != b",
        "a=",
        "x.io/a in (b, c),!d",
        "a notin (b)",
        "n>1",
        "nvidia.com/gpu.present=true",
    ],
)
def test_selectors_as_kubernetes_has_them(selector: str):
    assert (
        KubeSection(node_label_selector=selector, scheduler_name="", runtime_class="").node_label_selector == selector
    )
