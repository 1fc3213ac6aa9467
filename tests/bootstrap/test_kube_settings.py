"""Invalid values of `[kube]` are refused at the start, with the field and a fix."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from ullage.bootstrap.kube_binding_settings import BindingsSection
from ullage.bootstrap.kube_settings import KubeSection
from ullage.model.alignment import LinkDemand
from ullage.model.error import InvalidRequest
from ullage.wire.dialect import PodReader


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


@pytest.mark.parametrize("bind", [":8080", "0.0.0.0:8080", "[::]:8080", "10.0.0.1:8080", "machine:8080"])
def test_an_extender_on_an_open_address_needs_client_certificates(bind: str) -> None:
    with pytest.raises(InvalidRequest, match=r"kube\.client_ca_file") as caught:
        KubeSection(http_bind=bind).check_callers()
    assert caught.value.field == "kube.http_bind"
    KubeSection(http_bind=bind, cert_file="c", key_file="k", client_ca_file="a").check_callers()


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0", "localhost:0"])
def test_an_extender_of_this_machine_alone_needs_no_certificates(bind: str) -> None:
    KubeSection(http_bind=bind).check_callers()


def test_a_prefix_means_nothing_where_a_proxy_names_users() -> None:
    section = KubeSection(
        bindings=BindingsSection(scope="on", proxy_ca_file="ca", user_prefix="x:"), cert_file="c", key_file="k"
    )
    with pytest.raises(InvalidRequest, match="user_prefix"):
        section.check_bindings()


def test_hamis_device_configuration_names_the_resources(tmp_path):
    file = tmp_path / "device-config.yaml"
    file.write_text("nvidia: {resourceCountName: acme.com/gpu, enableNvlink: true}")
    section = KubeSection(device_config_file=str(file), default_memory=4000)
    (nvidia,) = (family for family in section.pods.families if family.name == "NVIDIA")
    assert (nvidia.resources.count, nvidia.memory.default_mib) == ("acme.com/gpu", 4000)
    assert section.device_config.ignored == ("nvidia.enableNvlink: it is not followed",)


def links_of(section: KubeSection, limits: dict[str, str], policy: str = "") -> tuple[LinkDemand | None, str | None]:
    container = {"name": "c", "resources": {"limits": limits}}
    annotations = {"hami.io/gpu-scheduler-policy": policy} if policy else {}
    pod = {"metadata": {"name": "p", "uid": "u", "annotations": annotations}, "spec": {"containers": [container]}}
    found = PodReader(section.pods)(pod)
    assert found is not None
    return found.requirement.alignment.links, found.strategy


def test_a_policy_for_links_is_that_of_pods_without_their_own():
    section = KubeSection(gpu_scheduler_policy="topology-aware", node_scheduler_policy="spread")
    part = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    for limits in (part, {"nvidia.com/gpu": "2"}):
        assert links_of(section, limits) == (LinkDemand.BEST, None)
        assert links_of(section, limits, "binpack") == (None, "node-low-load-gpu-compact")
        assert links_of(section, limits, "binpack,topology-aware") == (LinkDemand.BEST, "node-low-load-gpu-compact")
        assert links_of(KubeSection(), limits, "topology-aware") == (LinkDemand.BEST, None)
        assert links_of(KubeSection(gpu_scheduler_policy="spread"), limits) == (None, None)
    assert section.strategy == "low-load-first"
    assert KubeSection(gpu_scheduler_policy="topology-aware").strategy is None


@pytest.mark.parametrize("text", [None, "nvidia: [", "nvidia: 3"])
def test_a_device_configuration_that_cannot_be_read_is_named(tmp_path, text):
    file = tmp_path / "device-config.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidRequest, match=r"device-config\.yaml"):
        KubeSection(device_config_file=str(file)).pods  # noqa: B018 - it reads the file


def test_a_process_in_front_of_a_cluster_loads_no_database():
    code = "import sys; import ullage.bootstrap.kube; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
