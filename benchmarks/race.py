"""Pods that a real kube-scheduler binds in a second: alone, and with Ullage, in one run on one machine.

Work: a control plane of real processes (`make control-plane`; without one nothing is measured), 500, 1,000 and 5,000
nodes of 8 cards without kubelets, and 1,000 pods that a client creates 16 at a time: the time from the first creation
to the last bind, and the CPU time of each process between. Six ways to bind them:

- plain: kube-scheduler alone, pods of one whole card, and nobody checks which;
- extender: kube-scheduler asks Ullage to filter, to score and to bind;
- decided: Ullage reserves a place when a pod is admitted to its queue, and kube-scheduler confirms it;
- direct: Ullage binds a pod when it is admitted to its queue, and kube-scheduler does not place it;
- parts: as decided, for pods of a tenth to nine tenths of a card, which kube-scheduler alone cannot place;
- direct parts: as direct, for such pods.

The ways are run in turn, each on a cluster without other pods.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kube.certificates import Certificates
from tests.kube.control_plane import ControlPlane, Process, find
from tests.kube.live_front import LiveFront

_SIZES = 500, 1_000, 5_000
_CARDS, _PODS, _AT_ONCE = 8, 1_000, 16
_GPU = "nvidia.com/gpu"
PODS_PATH = "/api/v1/namespaces/default/pods"
_TICKS = os.sysconf("SC_CLK_TCK")
_DEADLINE_S = 300.0
_PLAIN = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    "percentageOfNodesToScore": 100,
    "profiles": [{"schedulerName": "ullage"}],
}
Document = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """One way to bind pods: lines of `[kube]` for Ullage, "" without it, and what each pod asks for."""

    name: str
    settings: str
    pod: Callable[[int], Document]


def whole(number: int) -> Document:
    """A pod of one card."""
    return _pod(number, {}, {_GPU: "1"})


def part(number: int) -> Document:
    """A pod of a tenth to nine tenths of one card."""
    return _pod(
        number, {"ullage.io/gpu-count": "1", "ullage.io/compute-percent-request": f"{10 * (1 + number % 9)}"}, {}
    )


def _pod(number: int, annotations: Document, limits: Document) -> Document:
    container = {"name": "main", "image": "image", "resources": {"limits": limits, "requests": limits}}
    metadata = {"name": f"p{number:05}", "namespace": "default", "annotations": annotations}
    return {"metadata": metadata, "spec": {"schedulerName": "ullage", "containers": [container]}}


_WAYS = (
    Way("plain", "", whole),
    Way("extender", 'queues = "off"\n', whole),
    Way("decided", 'queues = "all"\n', whole),
    Way("direct", 'queues = "all"\nbinder = "ullage"\n', whole),
    Way("parts", 'queues = "all"\n', part),
    Way("direct parts", 'queues = "all"\nbinder = "ullage"\n', part),
)


class Api:
    """Calls of the API server with the certificate of its administrator, a connection for each thread."""

    def __init__(self, plane: ControlPlane) -> None:
        self._at = plane.url.removeprefix("https://")
        self._trust = ssl.create_default_context(cafile=plane.folder / "ca.pem")
        self._trust.load_cert_chain(plane.folder / "admin.pem", plane.folder / "admin.key")
        self._own = threading.local()

    def connection(self) -> http.client.HTTPSConnection:
        """A new connection."""
        return http.client.HTTPSConnection(self._at, context=self._trust, timeout=600)

    def call(self, method: str, path: str, body: Document | None = None, patch: str = "merge-patch") -> Document:
        """Make one call on the connection of this thread."""
        kept = getattr(self._own, "kept", None)
        if kept is None:
            kept = self._own.kept = self.connection()
        content = f"application/{patch}+json" if method == "PATCH" else "application/json"
        kept.request(method, path, None if body is None else json.dumps(body), {"Content-Type": content})
        answer = kept.getresponse()
        raw = answer.read()
        assert answer.status < 300, (method, path, raw)
        found: Document = json.loads(raw)
        return found

    def each(self, calls: Iterable[tuple[str, str, Document | None]]) -> None:
        """Make many calls, 16 at a time."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda call: self.call(*call), calls):
                pass


@dataclass
class Bound:
    """Counts pods that get a node, by a watch of those without one."""

    api: Api
    wanted: int
    names: set[str] = field(default_factory=set)
    done: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        """Follow the pods until as many as wanted have a node. A watch that ends begins again."""
        while len(self.names) < self.wanted:
            page = self.api.call("GET", f"{PODS_PATH}?fieldSelector=spec.nodeName%21%3D")
            self.names.update(pod["metadata"]["name"] for pod in page["items"])
            self._watch(page["metadata"]["resourceVersion"])
        self.done.set()

    def _watch(self, version: str) -> None:
        connection = self.api.connection()
        query = f"watch=true&timeoutSeconds=3600&resourceVersion={version}&fieldSelector=spec.nodeName%3D"
        connection.request("GET", f"{PODS_PATH}?{query}")
        answer = connection.getresponse()
        while len(self.names) < self.wanted and (line := answer.readline()):
            event = json.loads(line)
            if event["type"] == "DELETED":
                self.names.add(event["object"]["metadata"]["name"])
        connection.close()


def nodes(api: Api, count: int) -> None:
    """Create nodes that are ready, each with 8 cards."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", _GPU: str(_CARDS)}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    names = [f"n{number:05}" for number in range(count)]
    api.each(("POST", "/api/v1/nodes", {"metadata": {"name": name}}) for name in names)
    api.each(("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}) for name in names)
    api.each(("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": []}}) for name in names)


def _delete_pods(api: Api) -> None:
    names = [pod["metadata"]["name"] for pod in api.call("GET", PODS_PATH)["items"]]
    api.each(("DELETE", f"{PODS_PATH}/{name}", {"gracePeriodSeconds": 0}) for name in names)


def _webhook(url: str, certificates: Certificates) -> Document:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    client = {"url": f"{url}/webhook", "caBundle": base64.b64encode(certificates.ca.cert_pem.bytes()).decode()}
    hook = {
        "name": "pods.ullage.dev",
        "clientConfig": client,
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 10,
    }
    return {"metadata": {"name": "ullage"}, "webhooks": [hook]}


@contextmanager
def _ullage(plane: ControlPlane, settings: str) -> Iterator[LiveFront]:
    """Run `ullage kube` with its webhook registered."""
    hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        hook = 'webhook_bind = "127.0.0.1:0"\n' + certificates.settings("webhook_")
        front = LiveFront(Path(folder), plane.kubeconfig, settings + hook)
        try:
            front.start().wait_ready()
            api = Api(plane)  # the connections of the other one may have been idle for too long
            api.call("POST", hooks, _webhook(front.url("webhook"), certificates))
            yield front
            api.call("DELETE", f"{hooks}/ullage")
        finally:
            front.kill()


@contextmanager
def _stopped(plane: ControlPlane, scheduler: Process) -> Iterator[Process]:
    """Stop the scheduler at the end."""
    try:
        yield scheduler
    finally:
        plane.stop(scheduler)


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS


def _memory_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def race(api: Api, pods: list[Document], processes: dict[str, int]) -> str:
    """Create the pods and wait until all are bound; return the rate and the CPU time of each process for a pod."""
    bound = Bound(api, len(pods))
    threading.Thread(target=bound.follow, daemon=True).start()
    before = {name: _cpu_s(pid) for name, pid in processes.items()}
    began = time.perf_counter()
    api.each(("POST", PODS_PATH, pod) for pod in pods)
    created = time.perf_counter() - began
    assert bound.done.wait(_DEADLINE_S), f"{len(bound.names)} of {len(pods)} pods are bound after {_DEADLINE_S:g} s"
    took = time.perf_counter() - began
    spent = "  ".join(
        f"{name} {(_cpu_s(pid) - before[name]) / len(pods) * 1e3:5.1f} ms" for name, pid in processes.items()
    )
    memory = f"  memory {_memory_mib(processes['ullage']):4.0f} MiB" if "ullage" in processes else ""
    return f"{len(pods) / took:6.1f} pods/s  created in {created:4.1f} s  CPU a pod: {spent}{memory}"


def _run(plane: ControlPlane, api: Api, way: Way) -> str:
    pods = [way.pod(number) for number in range(_PODS)]
    processes = {"api": plane.api.pid, "etcd": plane.etcd.pid}
    if not way.settings:
        with _stopped(plane, plane.start_scheduler(_PLAIN)) as scheduler:
            return race(api, pods, {"scheduler": scheduler.pid, **processes})
    with _ullage(plane, way.settings) as front:
        port = int(front.url("extender").rpartition(":")[2])
        managed = {"managedResources": [{"name": _GPU, "ignoredByScheduler": True}]}
        with _stopped(plane, plane.start_asking_scheduler(port, managed if way.pod is whole else {})) as scheduler:
            assert front.process is not None
            return race(api, pods, {"ullage": front.process.pid, "scheduler": scheduler.pid, **processes})


def main() -> None:
    """Run every way at every size."""
    print("Race: pods bound by a real kube-scheduler, alone and with Ullage")
    if not all(map(find, ("etcd", "kube-apiserver", "kube-scheduler"))):
        print("  not measured: no kube-scheduler in $KUBEBUILDER_ASSETS or on PATH; `make control-plane` builds it")
        return
    for size in _SIZES:
        with tempfile.TemporaryDirectory() as folder:
            plane = ControlPlane(Path(folder))
            try:
                api = Api(plane)
                nodes(api, size)
                for way in _WAYS:
                    print(f"  {size:5,} nodes  {way.name:12} {_run(plane, api, way)}", flush=True)
                    _delete_pods(api)
            finally:
                plane.close()
