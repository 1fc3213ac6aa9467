"""etcd, kube-apiserver and kube-scheduler as real processes, found as envtest does: KUBEBUILDER_ASSETS, else PATH."""

import json
import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.ports import free_port
from tests.system.live_server import wait_until

REQUIRED = "ULLAGE_REQUIRE_KUBE"


def find(name: str) -> str | None:
    """Return the path of a binary, None without it."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    return shutil.which(name, path=folder) if folder else shutil.which(name)


def binary(name: str) -> str:
    """Return the path of a binary; without it the test is skipped, or fails where the environment says so."""
    found = find(name)
    if found is None:
        reason = f"no {name} in $KUBEBUILDER_ASSETS or on PATH; `make control-plane` builds it"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{reason}, and {REQUIRED}=1")
        pytest.skip(reason)
    return found


class Process:
    """A process with its log; stopped by its id."""

    def __init__(self, name: str, folder: Path, *options: str) -> None:
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([binary(name), *options], stdout=log, stderr=log, cwd=folder)

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ControlPlane:
    """A cluster without kubelets: nothing runs, and nobody but its clients changes anything."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`options` are more of the API server's."""
        for name in ("etcd", "kube-apiserver"):
            binary(name)  # before anything is started
        self.folder, self._options = folder, options
        self._processes: list[Process] = []
        self._ca = trustme.CA()
        self._ca.cert_pem.write_to_path(folder / "ca.pem")
        stages = {
            "level": "Metadata",
            "verbs": ["create", "update", "patch", "delete"],
            "omitStages": ["RequestReceived"],
        }
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [stages, {"level": "None"}]}
        (folder / "audit-policy.json").write_text(json.dumps(policy))
        self._write("server", self._ca.issue_cert("localhost", "127.0.0.1"))
        self._write("accounts", self._ca.issue_cert("accounts.local"))
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        try:
            self._clients = self._start_etcd()
            self._start_api()
        except BaseException:
            self.close()
            raise
        self.kubeconfig = self.user("admin", "system:masters")

    def user(self, name: str, group: str) -> Path:
        """The kubeconfig of a user, who is known by a certificate."""
        mail = f"{name}@users.local"  # with no name of its own a certificate is refused
        self._write(name, self._ca.issue_cert(mail, common_name=name, organization_name=group))
        files = {"client-certificate": f"{name}.pem", "client-key": f"{name}.key"}
        place = self.folder / f"{name}.kubeconfig"
        place.write_text(json.dumps(kubeconfig(self.url, {"certificate-authority": "ca.pem"}, files)))
        return place

    def start_scheduler(self, configuration: dict[str, Any]) -> Process:
        """A kube-scheduler with a KubeSchedulerConfiguration, which is given the kubeconfig."""
        connection = {"kubeconfig": str(self.kubeconfig), "qps": 1000, "burst": 1000}
        place, port = self.folder / "scheduler.json", free_port()
        place.write_text(json.dumps({"clientConnection": connection} | configuration))
        return self._start(
            "kube-scheduler",
            f"https://127.0.0.1:{port}/readyz",
            f"--config={place}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / 'scheduler'}",
        )

    def start_asking_scheduler(self, port: int, extender: Mapping[str, Any] = {}, **more: Any) -> Process:
        """A kube-scheduler of the name of ours, that asks an extender on this port; `extender` says more of that."""
        asked = {
            "urlPrefix": f"http://127.0.0.1:{port}",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "bindVerb": "bind",
            "weight": 5,
            "httpTimeout": "5s",
            "nodeCacheCapable": True,
            "ignorable": False,
        }
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "percentageOfNodesToScore": 100,
            "profiles": [{"schedulerName": "ullage"}],
            "extenders": [asked | extender],
        }
        return self.start_scheduler(configuration | more)

    def stop(self, process: Process) -> None:
        """Stop one of its processes."""
        self._processes.remove(process)
        process.stop()

    def close(self) -> None:
        for process in reversed(self._processes):
            process.stop()

    def _start_etcd(self) -> str:
        peers, clients = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.etcd = self._start(
            "etcd",
            f"{clients}/health",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-peer-urls={peers}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            "--unsafe-no-fsync",
        )
        return clients

    def forget(self) -> None:
        """Start a new API server on the same state, which knows no version before its start."""
        self.stop(self.api)
        self._start_api()

    def _start_api(self) -> None:
        at = self.folder
        self.api = self._start(
            "kube-apiserver",
            f"{self.url}/readyz",
            f"--etcd-servers={self._clients}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
            f"--service-account-issuer={self.url}/",
            f"--service-account-key-file={at / 'accounts.key'}",
            f"--service-account-signing-key-file={at / 'accounts.key'}",
            f"--client-ca-file={at / 'ca.pem'}",
            f"--tls-cert-file={at / 'server.pem'}",
            f"--tls-private-key-file={at / 'server.key'}",
            f"--cert-dir={at / 'generated'}",
            f"--audit-policy-file={at / 'audit-policy.json'}",
            f"--audit-log-path={at / 'audit.log'}",
            "--audit-log-mode=blocking",
            *self._options,
        )

    def writes(self) -> list[tuple[str, str]]:
        """Who wrote, and the path, of all writes that were carried out so far."""
        lines = (json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines())
        done = (line for line in lines if line["responseStatus"]["code"] < HTTPStatus.BAD_REQUEST)
        return [(line["user"]["username"], line["requestURI"].partition("?")[0]) for line in done]

    def _start(self, name: str, ready: str, *options: str) -> Process:
        process = Process(name, self.folder, *options)
        self._processes.append(process)

        def answers() -> bool:
            assert process.alive(), process.log.read_text()[-4000:]
            return _answers(ready)

        wait_until(answers, f"{name} is ready", 120)
        return process

    def _write(self, name: str, pair: trustme.LeafCert) -> None:
        pair.private_key_pem.write_to_path(self.folder / f"{name}.key")
        for number, blob in enumerate(pair.cert_chain_pems):
            blob.write_to_path(self.folder / f"{name}.pem", append=number > 0)


def kubeconfig(url: str, cluster: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    """A kubeconfig of one cluster and one user."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url} | cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60, context=ssl._create_unverified_context()) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
