"""`ullage kube` as a process: before an API server, over HTTP and TLS, ended, killed and started again."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.kube.api_server import ApiServer, Canned
from tests.kube.certificates import Certificates
from tests.kube.conftest import write_kubeconfig
from tests.kube.live_front import BriefFront, LiveFront
from tests.kube.test_front import a_node, a_pod, binding, cards_of, put
from tests.kube.test_webhook import a_pod as new_pod
from tests.kube.test_webhook import review
from tests.strangers import ENDLESS, MIB, PLENTY, Address, pour, resident_bytes
from tests.system.live_server import wait_until
from ullage.cli.main import main

pytestmark = pytest.mark.timeout(900)

Start = Callable[..., LiveFront]


@pytest.fixture
def front(server: ApiServer, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as started:

        def start(settings: str = "", *options: str, kind: type[LiveFront] = LiveFront) -> LiveFront:
            return started.enter_context(closing(kind(tmp_path, server.url, settings, *options))).start()

        yield start


def lease(server: ApiServer) -> dict[str, Any]:
    return server.do(lambda: server.rules.get(("leases", "default", "ullage")))["spec"]


def ask(front: LiveFront, verb: str, **body: Any) -> Any:
    answer = httpx2.post(f"{front.url('extender')}/{verb}", content=json.dumps(body), timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_what_is_bound_is_known_after_the_end_and_after_a_kill(server: ApiServer, front: Start) -> None:
    put(server, "nodes", a_node("a", 3))
    first, second, third = put(server, "pods", a_pod("first"), a_pod("second"), a_pod("third", 2))
    up = front(kind=BriefFront).wait_ready()
    assert ask(up, "filter", Pod=first, NodeNames=["a"])["NodeNames"] == ["a"]
    assert ask(up, "bind", **binding(first, "a"))["Error"] == ""
    assert lease(server)["holderIdentity"]
    assert up.end() == 0
    assert not lease(server).get("holderIdentity")

    up.start().wait_ready()
    assert ask(up, "bind", **binding(second, "a"))["Error"] == ""
    assert not set(cards_of(server, "first")) & set(cards_of(server, "second"))
    up.kill()
    lease_spec = lease(server)
    assert lease_spec["holderIdentity"]  # nobody let go of it: it runs out

    up.start().wait_ready()
    assert lease(server)["leaseTransitions"] > lease_spec["leaseTransitions"]
    assert "ExclusiveDeviceAllocateConflict" in str(ask(up, "filter", Pod=third, NodeNames=["a"])["FailedNodes"])
    assert up.end() == 0


def test_a_second_replica_answers_the_webhook_and_leads_when_the_first_is_killed(
    server: ApiServer, front: Start, tmp_path: Path
) -> None:
    put(server, "nodes", a_node("a", 1))
    (pod,) = put(server, "pods", a_pod("p"))
    first = front(kind=BriefFront).wait_ready()
    (tmp_path / "second").mkdir()
    files = Certificates(tmp_path)
    webhook = f'webhook_bind = "127.0.0.1:0"\n{files.settings("webhook_")}'
    with closing(BriefFront(tmp_path / "second", server.url, webhook)) as second:
        follows = f"{second.start().url('metrics')}/followz"
        wait_until(lambda: httpx2.get(follows, timeout=60).status_code == 200, "it follows", 500)
        assert not second.is_ready()
        url = f"{second.url('webhook')}/webhook"
        question = json.dumps(review(new_pod()))
        answer = httpx2.post(url, content=question, verify=files.trusting(), timeout=60).json()
        assert answer["response"]["allowed"], "it needs no leader"
        first.kill()
        second.wait_ready()
        assert ask(second, "bind", **binding(pod, "a"))["Error"] == ""
        assert lease(server)["leaseTransitions"] == 2
        assert second.end() == 0


def test_a_running_bind_is_finished_before_the_process_releases_the_lease_and_ends(
    server: ApiServer, front: Start
) -> None:
    put(server, "nodes", a_node("a", 1))
    (pod,) = put(server, "pods", a_pod("p"))
    up = front().wait_ready()
    port = int(up.url("extender").rsplit(":", 1)[1])

    def takes_no_more() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
        except ConnectionRefusedError:
            return True
        return False

    def told_to_end() -> None:
        assert up.process is not None
        up.process.send_signal(signal.SIGTERM)
        wait_until(takes_no_more, "it takes no new question", 60)

    server.canned.append(Canned("POST", "/binding", 201, carried_out=True, then=told_to_end))
    assert ask(up, "bind", **binding(pod, "a"))["Error"] == ""
    assert up.process is not None
    assert up.process.wait(60) == 0
    assert cards_of(server, "p")
    assert not lease(server).get("holderIdentity"), "nobody has to wait for the lease to run out"


def test_it_is_not_ready_before_it_has_read_the_cluster(server: ApiServer, front: Start) -> None:
    server.stop()
    up = front()
    metrics = up.url("metrics")
    assert httpx2.get(f"{metrics}/healthz", timeout=60).status_code == 200
    assert httpx2.get(f"{metrics}/readyz", timeout=60).status_code == 503
    assert "not-ready" in ask(up, "filter", Pod=a_pod("p"), NodeNames=["a"])["Error"]
    up.wait_for("kube.not-ready")
    wait_until(lambda: bool(re.search("kube.not-ready.*GET /api/v1/nodes", up.log_text())), "the failure is logged")
    server.start()
    up.wait_ready()
    up.wait_for("kube.ready")
    page = httpx2.get(f"{metrics}/metrics", timeout=60).text
    assert re.search(r"^ullage_kube_leader 1\.0$", page, re.MULTILINE)
    assert 'ullage_kube_calls_total{code="not-ready",verb="filter"} 1.0' in page
    assert up.end() == 0


def test_metrics_of_cards_are_as_dashboards_of_hami_expect_them(server: ApiServer, front: Start) -> None:
    node = a_node("a", 10)
    card = {"id": "GPU-1", "count": 10, "devmem": 16000, "devcore": 100, "type": "NVIDIA-A100", "health": True}
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps([card])}
    put(server, "nodes", node)
    part = a_pod("part")
    part["spec"]["containers"][0]["resources"]["limits"] |= {"nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "25"}
    (pod,) = put(server, "pods", part)
    up = front().wait_ready()
    assert ask(up, "bind", **binding(pod, "a"))["Error"] == ""
    page = httpx2.get(f"{up.url('metrics')}/metrics", timeout=60).text
    card_labels = 'device_index="0",device_type="NVIDIA-A100",device_uuid="GPU-1",node="a"'
    for line in (
        f"hami_gpu_memory_limit_bytes{{{card_labels}}} {float(16000 << 20)}",
        f'hami_gpu_memory_allocated_bytes{{device_cores="100",{card_labels}}} {float(4000 << 20)}',
        f"hami_gpu_core_allocated_ratio{{{card_labels}}} 25.0",
        f"hami_gpu_shared_count{{{card_labels}}} 1.0",
        f"hami_node_gpu_memory_allocated_ratio{{{card_labels}}} 0.25",
        'hami_vgpu_core_allocated_ratio{device_uuid="GPU-1",namespace="default",node="a",pod="part"} 25.0',
    ):
        name, value = line.rsplit(" ", 1)
        found = [each.rsplit(" ", 1) for each in page.splitlines() if each.startswith(name)]
        assert [float(number) for _, number in found] == [float(value)], line
    assert up.end() == 0


def test_clients_that_bind_need_a_certificate_and_those_of_the_webhook_do_not(
    server: ApiServer, front: Start, tmp_path: Path
) -> None:
    files = Certificates(tmp_path)
    hook = f'webhook_bind = "127.0.0.1:0"\n{files.settings("webhook_")}'
    up = front(f'{files.settings()}client_ca_file = "{files.ca_file}"\n{hook}').wait_ready()
    extender, webhook = up.url("extender"), up.url("webhook")
    assert extender.startswith("https://")
    assert httpx2.get(f"{extender}/readyz", verify=files.trusting(known=True), timeout=60).status_code == 200
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"{extender}/readyz", verify=files.trusting(), timeout=60)
    question = json.dumps(review(new_pod()))
    reported = httpx2.post(f"{webhook}/webhook", content=question, verify=files.trusting(), timeout=60)
    assert reported.json()["response"]["allowed"]
    assert httpx2.get(f"{webhook}/readyz", verify=files.trusting(), timeout=60).status_code == 200
    assert up.end() == 0


def test_renewed_certificates_are_loaded(server: ApiServer, front: Start, tmp_path: Path) -> None:
    old = Certificates(tmp_path)
    up = front(old.settings()).wait_ready()
    url = f"{up.url('extender')}/healthz"
    (tmp_path / "tls.key").write_text("half written")
    up.wait_for("kube.certificate-unusable")
    assert httpx2.get(url, verify=old.trusting(), timeout=60).status_code == 200
    new = Certificates(tmp_path)
    up.wait_for("kube.certificate-renewed")
    assert httpx2.get(url, verify=new.trusting(), timeout=60).status_code == 200
    assert up.end() == 0


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ('http_bind = "8080"', "kube.http_bind"),
        ('cert_file = "tls.pem"', "kube.key_file"),
        ('webhook_bind = ":8443"', "kube.webhook_cert_file"),
        ('client_ca_file = "ca.pem"', "kube.cert_file"),
        ("timeout_s = 0", "kube.timeout_s"),
        ("node_lock_timeout_s = 0", "kube.node_lock_timeout_s"),
        ("node_lock_retry_s = -1", "kube.node_lock_retry_s"),
        ("default_cores = -1", "kube.default_cores"),
        ('cert_file = "no.pem"\nkey_file = "no.key"', "no.pem"),
        ('node_scheduler_policy = "pack"', "node_scheduler_policy"),
        ("unknown = 1", "unknown"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str, field: str
) -> None:
    config = tmp_path / "ullage.toml"
    config.write_text(f'[kube]\nkubeconfig = "{write_kubeconfig(tmp_path, "http://127.0.0.1:9")}"\n{settings}\n')
    assert main(["kube", f"--config={config}"]) == 2
    complaint = capsys.readouterr().err
    assert field in complaint
    assert "Traceback" not in complaint


def test_options_of_hami_are_taken(server: ApiServer, front: Start) -> None:
    up = front(
        'scheduler_name = "from-the-file"\n',
        "--scheduler-name=from-the-option",
        "--node-scheduler-policy=spread",
        "--metrics-bind-address=127.0.0.1:0",
        "--node-lock-timeout=5m",
        "--node-lock-retry-timeout=0",
        "--kube-qps=5",
        "--leader-elect",
        "--topologies",
        "--noderesourcetopologies=second",
        "--force-overwrite-default-scheduler=false",
    ).wait_ready()
    assert "--kube-qps is ignored" in up.log_text()
    assert "node-lock" not in up.log_text()
    assert up.end() == 0


def test_an_address_that_is_taken_is_reported(server: ApiServer, front: Start, tmp_path: Path) -> None:
    up = front()
    port = up.url("extender").rsplit(":", 1)[1]
    command = [sys.executable, "-m", "ullage.cli.main", "kube", f"--config={tmp_path}/ullage.toml"]
    done = subprocess.run([*command, f"--http_bind=127.0.0.1:{port}"], capture_output=True, text=True, check=False)
    assert done.returncode == 69
    assert f"127.0.0.1:{port}" in done.stderr
    wait_until(up.is_ready, "the first one is ready", 500)
    assert up.end() == 0


def test_requests_without_an_end_are_ended_on_every_port_and_others_are_answered(
    server: ApiServer, front: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # nothing but its callers changes what memory it has
    files = Certificates(tmp_path)
    up = front(f'webhook_bind = "127.0.0.1:0"\n{files.settings("webhook_")}').wait_ready()
    assert up.process is not None
    ports = {name: int(up.url(name).rsplit(":", 1)[1]) for name in ("extender", "metrics", "webhook")}
    addresses = [
        Address("127.0.0.1", port, files.trusting() if name == "webhook" else None) for name, port in ports.items()
    ]
    assert [address.ask() for address in addresses] == [200] * 3
    before = resident_bytes(up.process.pid)
    for address in addresses:
        for begin, pieces in ENDLESS.values():
            with address.connect() as caller:
                assert pour(caller, begin, pieces()) < PLENTY
            assert address.ask() == 200
    assert resident_bytes(up.process.pid) - before < 64 * MIB
    assert up.end() == 0
