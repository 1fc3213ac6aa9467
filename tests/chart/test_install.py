"""From an empty cluster to the first shared card, and back: Helm installs the chart, its containers run as processes.

What a cluster has beside a control plane is played here: a kubelet that mounts what the chart says, the endpoints of
the Service, a node with cards, and the end of a namespace.
"""

import asyncio
import base64
import json
import shutil
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from cryptography.x509 import Certificate, load_pem_x509_certificate, load_pem_x509_certificates

from tests.chart import test_chart
from tests.docs.test_examples import blocks
from tests.kube.conftest import DEFINITIONS, SHORT
from tests.kube.control_plane import ControlPlane, kubeconfig
from tests.kube.live_front import LiveFront
from tests.kube.test_front import a_node
from tests.kube.test_topologies import reported
from ullage.kube.client.changes import Call, Create, Delete, Patch
from ullage.kube.client.connection import ApiConnection, HttpAnswer, connect
from ullage.kube.client.errors import AlreadyExists
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NAMESPACES, NODES, NUMATOPOLOGIES, PODS, Kind
from ullage.kube.client.objects import Object

helm = pytest.importorskip("helm_python", reason="helm-python-sdk is in the lock, and not installed here")

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

CHART = Path(__file__).parents[2] / "charts/ullage"
PAGE = "docs/how-to/kubernetes.md"
NAMESPACE = "gpus"
VALUES = {
    "image": {"repository": "example.com/ullage"},
    "scheduler": {"image": {"repository": "example.com/kube-scheduler", "tag": "v1.34.0"}},
}
EVENTS_PATH = "/apis/events.k8s.io/v1/namespaces/default/events"
CHANGING = {"events", "events.events.k8s.io", "apiservices.apiregistration.k8s.io", "leases.coordination.k8s.io"}
"""Objects that an API server creates and deletes by itself."""
DEFINED = f"{DEFINITIONS.plural}.{DEFINITIONS.group}"
Document = dict[str, Any]


@contextmanager
def started(folder: Path) -> Iterator[ControlPlane]:
    """No proxy leads from a Service to its pods, so the API server looks for these itself."""
    plane = ControlPlane(folder, "--enable-aggregator-routing=true")
    try:
        yield plane
    finally:
        plane.close()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster that has seen nothing."""
    with started(tmp_path) as plane:
        yield plane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster for several tests."""
    with started(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Installed(LiveFront):
    """The container of a Deployment of the chart: its command, with what is mounted into it, and its account."""

    def __init__(self, folder: Path, args: list[str], account: Path) -> None:
        self.log = folder / "container.log"
        self._config = folder / "config/ullage.toml"
        own = f'[kube]\nlease_namespace = "{NAMESPACE}"'  # a file that each pod has says where it is
        self._config.write_text(self._config.read_text().replace("[kube]", own))
        self._begin, self.process = 0, None
        here = [
            each.replace("=/", f"={folder}/").replace("=:", "=0.0.0.0:")
            for each in args
            if not each.startswith("--config=")
        ]
        ports = [each.rpartition(":")[0] + ":0" if "-bind" in each else each for each in here]
        self._options = f"--kubeconfig={account}", *ports[1:]


async def read(client: ApiConnection, path: str) -> Document:
    answer = await get(client, path)
    assert answer.status == 200, answer.content
    found: Document = json.loads(answer.content)
    return found


async def get(client: ApiConnection, path: str) -> HttpAnswer:
    return await client.request(Call("GET", path, {}, b""), 60)


async def listed(client: ApiConnection, path: str, key: str) -> list[Document]:
    """Return the objects there; none of a kind whose definition is being deleted.

    The API server answers 429 while the storage of a new definition starts.
    """
    while (answer := await get(client, path)).status == 429:  # noqa: ASYNC110 - the server says when to ask
        await asyncio.sleep(float(answer.headers.get("Retry-After", "1")))
    assert answer.status in (200, 404), answer.content
    found: list[Document] = json.loads(answer.content)[key] if answer.status == 200 else []
    return found


async def everything(client: ApiConnection) -> set[tuple[str, str, str]]:
    """All objects of the cluster."""
    groups = (await read(client, "/apis"))["groups"]
    roots = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    found = set()
    for root in roots:
        group = root.removeprefix("/api/v1").removeprefix("/apis/").rpartition("/")[0]
        for resource in await listed(client, root, "resources"):
            plural = ".".join(filter(None, (resource["name"], group)))
            if "/" in plural or "list" not in resource["verbs"] or plural in CHANGING:
                continue
            for item in await listed(client, f"{root}/{resource['name']}", "items"):
                found.add((plural, item["metadata"].get("namespace", ""), item["metadata"]["name"]))
    return {each for each in found if each[1:] != ("default", "kubernetes")}  # the API server's own address


async def mounted(client: ApiConnection, workload: Document, folder: Path) -> Document:
    """Its only container, with the files that are mounted into it under a folder."""
    template = workload["spec"]["template"]["spec"]
    (container,) = template["containers"]
    volumes = {each["name"]: each for each in template["volumes"]}
    for mount in container["volumeMounts"]:
        volume, at = volumes[mount["name"]], folder / mount["mountPath"].lstrip("/")
        at.mkdir(parents=True)
        files: dict[str, bytes] = {}
        if "configMap" in volume:
            body = await read(client, f"/api/v1/namespaces/{NAMESPACE}/configmaps/{volume['configMap']['name']}")
            files = {name: text.encode() for name, text in body["data"].items()}
        elif "secret" in volume:
            body = await read(client, f"/api/v1/namespaces/{NAMESPACE}/secrets/{volume['secret']['secretName']}")
            files = {name: base64.b64decode(text) for name, text in body["data"].items()}
        for name, content in files.items():
            (at / name).write_bytes(content)
    found: Document = container
    return found


async def account(client: ApiConnection, plane: ControlPlane, name: str) -> Path:
    """The kubeconfig of a ServiceAccount of the release."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token"
    answer = await client.request(Call("POST", path, {}, b'{"spec": {"expirationSeconds": 3600}}'), 60)
    assert answer.status == 201, answer.content
    token = json.loads(answer.content)["status"]["token"]
    place = plane.folder / f"{name}.account"
    place.write_text(json.dumps(kubeconfig(plane.url, {"certificate-authority": "ca.pem"}, {"token": token})))
    return place


def own_address() -> str:
    """An address of this machine; endpoints are never those of its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but its loopback")
        return str(probe.getsockname()[0])


def start_scheduler(plane: ControlPlane, folder: Path, port: int, kubeconfig: Path) -> None:
    """The container of kube-scheduler, by its account; no name server leads it to the Service."""
    found = yaml.safe_load((folder / "config/config.yaml").read_text())
    (extender,) = found["extenders"]
    host = extender["urlPrefix"].removeprefix("https://").partition(":")[0]
    files = {key: str(folder / path.lstrip("/")) for key, path in extender["tlsConfig"].items()}
    extender |= {"urlPrefix": f"https://127.0.0.1:{port}", "tlsConfig": files | {"serverName": host}}
    plane.start_scheduler(found | {"clientConnection": found["clientConnection"] | {"kubeconfig": str(kubeconfig)}})


async def lead(api: HttpKubeApi, front: LiveFront) -> None:
    """Act as the controllers of endpoints: each Service leads to the pods that it selects."""
    address = own_address()
    slices = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", Object)
    endpoints = Kind("", "v1", "Endpoints", "endpoints", Object)
    for service, name in (("ullage", "extender"), ("ullage-webhook", "webhook")):
        port = {"name": name, "port": int(front.url(name).rpartition(":")[2]), "protocol": "TCP"}
        labels = {"kubernetes.io/service-name": service}
        endpoint = {"addresses": [address], "conditions": {"ready": True}}
        body = {"addressType": "IPv4", "endpoints": [endpoint], "ports": [port]}
        await api.write(Create(slices, {"metadata": {"name": f"{service}-1", "labels": labels}, **body}, NAMESPACE))
        subsets = [{"addresses": [{"ip": address}], "ports": [port]}]
        await api.write(Create(endpoints, {"metadata": {"name": service}, "subsets": subsets}, NAMESPACE))


async def eventually(look: Callable[[], Awaitable[bool]], what: Callable[[], str], deadline_s: float = 60.0) -> None:
    clock = asyncio.get_running_loop().time
    end = clock() + deadline_s
    while not await look():
        assert clock() < end, f"not within {deadline_s} s: {what()}"
        await asyncio.sleep(0.1)


async def test_from_an_empty_cluster_to_the_first_shared_card_and_back(empty: ControlPlane, tmp_path: Path) -> None:
    async with connect(empty.kubeconfig) as client:
        await there_and_back(empty, client, tmp_path)


async def there_and_back(plane: ControlPlane, client: ApiConnection, folder: Path) -> None:
    before, api = await everything(client), HttpKubeApi(client, SHORT)
    cluster = helm.Config(kubeconfig_path=plane.kubeconfig, namespace=NAMESPACE)
    cluster.install(CHART, "ullage", VALUES, namespace=NAMESPACE, create_namespace=True)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    extender, scheduler = [await read(client, f"{path}/{name}") for name in ("ullage", "ullage-scheduler")]

    container = await mounted(client, extender, folder / "extender")
    front = Installed(folder / "extender", container["args"], await account(client, plane, "ullage"))
    try:
        front.start().wait_ready()
        await lead(api, front)
        node = a_node("a", 4)
        node["status"]["allocatable"] |= {"cpu": "64", "memory": "256Gi", "pods": "110"}
        await api.write(Create(NODES, node))
        await api.write(Patch(NODES, "a", {"spec": {"taints": None}}))  # its kubelet is well
        async with connect(await account(client, plane, "ullage-exporter")) as exporter:
            await HttpKubeApi(exporter, SHORT).write(Create(NUMATOPOLOGIES, reported()))
        await mounted(client, scheduler, folder / "scheduler")
        port = int(front.url("extender").rpartition(":")[2])
        start_scheduler(plane, folder / "scheduler", port, await account(client, plane, "ullage-scheduler"))

        (half,) = (each for text in blocks(PAGE, "yaml") for each in yaml.safe_load_all(text) if "half" in str(each))
        halves = [half, half | {"metadata": half["metadata"] | {"name": "half-2"}}]
        for pod in halves:
            await api.write(Create(PODS, pod, "default"))
        cards, notes = dict[str, str](), list[str]()

        async def look() -> bool:
            for pod in halves:
                name = pod["metadata"]["name"]
                annotations = (await api.get(PODS, name, "default")).metadata.annotations or {}
                cards[name] = annotations.get("ullage.io/gpu-ids", "")
            notes[:] = [item.get("note") for item in (await read(client, EVENTS_PATH))["items"]]
            return all(cards.values())

        await eventually(look, lambda: f"both have a card: {cards} {notes} {front.log_text()}")
        assert len(set(cards.values())) == 1, "they share one"
        assert "kube.unreadable" not in front.log_text()
        forged = half | {"metadata": half["metadata"] | {"name": "forged"}}
        forged["metadata"]["annotations"] |= {"ullage.io/gpu-ids": "GPU-0"}
        made = await api.write(Create(PODS, forged, "default"))
        assert "ullage.io/gpu-ids" not in json.loads(made)["metadata"]["annotations"], "the webhook is asked"
    finally:
        front.close()

    for name in ("half-1", "half-2", "forged"):
        await api.write(Delete(PODS, name, "default", grace_s=0))
    await api.write(Delete(NODES, "a"))
    cluster.uninstall("ullage")
    left = await everything(client) - before
    assert {each for each in left if not each[1]} == {
        ("namespaces", "", NAMESPACE),
        (DEFINED, "", "gpubindings.gpu.bytetrade.io"),
        (DEFINED, "", "numatopologies.nodeinfo.volcano.sh"),
        ("numatopologies.nodeinfo.volcano.sh", "", "a"),
    }
    removal = next(line for text in blocks(PAGE, "bash") for line in text.splitlines() if "delete crd" in line)
    for name in removal.split()[3:]:
        await api.write(Delete(DEFINITIONS, name))

    async def gone() -> bool:
        left.clear()
        left.update(await everything(client) - before)
        return {each[1] or each[2] for each in left} == {NAMESPACE}  # what is in the namespace goes with it

    await eventually(gone, lambda: f"nothing is left: {left}")


# Their definitions come with Prometheus' operator.
NO_MONITOR = {"serviceMonitor": {"enabled": False}, "prometheusRule": {"enabled": False}}
CASES = test_chart.CASES | {"everything": test_chart.CASES["everything"] | NO_MONITOR}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
async def test_the_chart_can_be_installed_and_removed(plane: ControlPlane, values: dict[str, Any]) -> None:
    async with connect(plane.kubeconfig) as client:
        await installed_and_removed(plane, client, values)


async def installed_and_removed(plane: ControlPlane, client: ApiConnection, values: dict[str, Any]) -> None:
    authority = base64.b64encode((plane.folder / "ca.pem").read_bytes()).decode()
    given = VALUES | values | ({"tls": values["tls"] | {"caBundle": authority}} if "tls" in values else {})
    cluster = helm.Config(kubeconfig_path=plane.kubeconfig, namespace=NAMESPACE)
    with suppress(AlreadyExists):  # whoever has the other ConfigMap of bindings is there first
        await HttpKubeApi(client, SHORT).write(Create(NAMESPACES, {"metadata": {"name": "os-framework"}}))
    before = await everything(client)
    cluster.install(CHART, "ullage", given, namespace=NAMESPACE, create_namespace=True)
    keys = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    first = [each["data"] for each in (await read(client, keys))["items"] if each["type"] == "kubernetes.io/tls"]
    assert bool(first) == ("tls" not in values)
    cluster.upgrade(CHART, "ullage", {"hamiDevicePlugin": True}, namespace=NAMESPACE, reuse_values=True)
    again = [each["data"] for each in (await read(client, keys))["items"] if each["type"] == "kubernetes.io/tls"]
    assert again == first, "who trusts the certificates still does"
    cluster.uninstall("ullage")
    made_by_the_server = DEFINED, "namespaces", "ipaddresses.networking.k8s.io"
    assert {each for each in await everything(client) - before if each[0] not in made_by_the_server} == set()


NAMES, UNTIL = "ullage.io/certificate-names", "ullage.io/certificates-until"


@dataclass(frozen=True)
class Keys:
    """The certificates of the release: both Secrets, the CAs of webhooks, the checksums that restart its pods."""

    server: Document
    client: Document
    bundles: frozenset[str]
    checksums: tuple[str, str]

    @classmethod
    async def read(cls, client: ApiConnection) -> Self:
        space = f"namespaces/{NAMESPACE}"
        secrets = [
            await read(client, f"/api/v1/{space}/secrets/{name}") for name in ("ullage-tls", "ullage-scheduler-tls")
        ]
        workloads = [
            await read(client, f"/apis/apps/v1/{space}/deployments/{n}") for n in ("ullage", "ullage-scheduler")
        ]
        kinds = [f"{each}webhookconfigurations" for each in ("mutating", "validating")]
        hooks = [await read(client, f"/apis/admissionregistration.k8s.io/v1/{kind}/ullage") for kind in kinds]
        bundles = {hook["clientConfig"]["caBundle"] for each in hooks for hook in each["webhooks"]}
        notes = [each["spec"]["template"]["metadata"]["annotations"] for each in workloads]
        first, second = (each["checksum/certificates"] for each in notes)
        return cls(secrets[0], secrets[1], frozenset(bundles), (first, second))

    @property
    def data(self) -> tuple[Document, Document]:
        return self.server["data"], self.client["data"]

    @property
    def authorities(self) -> list[Certificate]:
        return load_pem_x509_certificates(base64.b64decode(self.server["data"]["ca.crt"]))

    def check(self) -> None:
        """Check that every client trusts every certificate."""
        first = self.authorities[0]
        assert self.bundles == {self.server["data"]["ca.crt"]}
        assert self.client["data"]["ca.crt"] == self.server["data"]["ca.crt"]
        for each in self.data:
            load_pem_x509_certificate(base64.b64decode(each["tls.crt"])).verify_directly_issued_by(first)
        until = date.fromisoformat(self.server["metadata"]["annotations"][UNTIL])
        assert abs(until - first.not_valid_after_utc.date()) <= timedelta(days=1)


def an_earlier_chart(folder: Path, *, day: bool) -> Path:
    """The chart as it was when fewer names were known, and perhaps before it wrote until when certificates are good."""
    chart = folder / "ullage"
    shutil.copytree(CHART, chart)
    helpers, secrets = (chart / "templates" / name for name in ("_helpers.tpl", "tls.yaml"))
    more = ' (printf "%s.%s.svc.cluster.local" $service $.Release.Namespace)'
    text = helpers.read_text()
    assert more in text
    helpers.write_text(text if not day else text.replace(more, ""))
    noted = ", ullage.io/certificates-until: {{ $wanted.until | quote }}"
    text = secrets.read_text()
    assert noted in text
    secrets.write_text(text if day else text.replace(noted, ""))
    return chart


async def test_an_upgrade_makes_certificates_again_in_time_and_where_names_change(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Helm looks the Secrets up on a real API server."""
    earlier = an_earlier_chart(tmp_path, day=True)
    cluster = helm.Config(kubeconfig_path=plane.kubeconfig, namespace=NAMESPACE)

    def upgrade(chart: Path, days: int) -> None:
        cluster.upgrade(chart, "ullage", {"tls": {"validDays": days}}, namespace=NAMESPACE, reuse_values=True)

    async with connect(plane.kubeconfig) as client:
        cluster.install(
            earlier, "ullage", VALUES | {"tls": {"validDays": 300}}, namespace=NAMESPACE, create_namespace=True
        )
        try:
            first = await Keys.read(client)
            first.check()
            upgrade(earlier, 300)
            kept = await Keys.read(client)
            assert (kept.data, kept.checksums) == (first.data, first.checksums), "more than a third of 300 days is left"

            upgrade(earlier, 3650)
            renewed = await Keys.read(client)
            renewed.check()
            assert [new != old for new, old in zip(renewed.data, first.data, strict=True)] == [True, True]
            assert renewed.authorities[1:] == first.authorities, "less than a year is left; what runs is still trusted"
            assert all(new != old for new, old in zip(renewed.checksums, first.checksums, strict=True))

            upgrade(CHART, 3650)
            named = await Keys.read(client)
            named.check()
            assert named.authorities[1:] == renewed.authorities[:1], "of older ones nobody has a certificate any more"
            assert NAMES in named.server["metadata"]["annotations"]
            upgrade(CHART, 3650)
            kept = await Keys.read(client)
            assert (kept.data, kept.checksums) == (named.data, named.checksums)
        finally:
            cluster.uninstall("ullage")


async def test_certificates_of_a_chart_that_wrote_no_day_are_kept(plane: ControlPlane, tmp_path: Path) -> None:
    earlier = an_earlier_chart(tmp_path, day=False)
    cluster = helm.Config(kubeconfig_path=plane.kubeconfig, namespace=NAMESPACE)
    async with connect(plane.kubeconfig) as client:
        cluster.install(earlier, "ullage", VALUES, namespace=NAMESPACE, create_namespace=True)
        try:
            path = f"/api/v1/namespaces/{NAMESPACE}/secrets/ullage-tls"
            before = await read(client, path)
            assert UNTIL not in before["metadata"]["annotations"]
            cluster.upgrade(CHART, "ullage", {"hamiDevicePlugin": True}, namespace=NAMESPACE, reuse_values=True)
            keys = await Keys.read(client)
            assert keys.server["data"] == before["data"]
            keys.check()
        finally:
            cluster.uninstall("ullage")
