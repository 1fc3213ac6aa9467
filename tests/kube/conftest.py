"""Clusters for the tests of this folder: one in this process, and a real one where its programs are found."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kube import bodies
from tests.kube.admission import Hook
from tests.kube.api_server import TOKEN, ApiServer
from tests.kube.control_plane import ControlPlane, kubeconfig
from ullage.kube.client.changes import Create, Delete
from ullage.kube.client.connection import ApiConnection, connect
from ullage.kube.client.http import HttpKubeApi, KubeTimeouts
from ullage.kube.client.kinds import GPU_BINDINGS, NAMESPACES, PODS, Kind
from ullage.kube.client.objects import Object
from ullage.model.error import AlreadyExists, NotFound, UllageError

SHORT = KubeTimeouts(answer_s=60.0, throttled_s=5.0, watch_s=(1.0, 2.0), silence_s=20.0)
DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", Object, namespaced=False
)
WEBHOOKS = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    Object,
    namespaced=False,
)
_NUMBERS = itertools.count(1)


async def until(condition: Callable[[], bool], what: str | Callable[[], str], deadline_s: float = 60.0) -> None:
    """Wait for something that other tasks or threads bring about; `what` is said of it where it does not happen."""
    clock = asyncio.get_running_loop().time
    end = clock() + deadline_s
    while not condition():
        assert clock() < end, f"not within {deadline_s} s: {what if isinstance(what, str) else what()}"
        await asyncio.sleep(0.005)


def write_kubeconfig(folder: Path, url: str, who: str = "") -> Path:
    place = folder / "kubeconfig"
    place.write_text(json.dumps(kubeconfig(url, {}, {"token": f"{TOKEN}/{who}" if who else TOKEN})))
    return place


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of real processes; skips where they are not installed."""
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        asyncio.run(_with_bindings(plane))
        yield plane
    finally:
        plane.close()


async def _with_bindings(plane: ControlPlane) -> None:
    async with connect(plane.kubeconfig) as client:
        await define(HttpKubeApi(client, SHORT), GPU_BINDINGS)


async def define(api: HttpKubeApi, kind: Kind[Any], definition: dict[str, Any] | None = None) -> None:
    """Have a kind served, by its definition where it has one; it may be defined already."""
    with suppress(AlreadyExists):
        await api.write(Create(DEFINITIONS, definition or bodies.definition(kind)))
    async with asyncio.timeout(60):
        while True:
            try:
                assert [page async for page in api.pages(kind)]
            except NotFound:
                await asyncio.sleep(0.1)
            else:
                return


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """The API server in this process."""
    server = ApiServer()
    yield server
    server.close()


@pytest.fixture
async def client(server: ApiServer, tmp_path: Path, anyio_backend: str) -> AsyncIterator[ApiConnection]:
    async with connect(write_kubeconfig(tmp_path, server.url)) as client:
        yield client


@pytest.fixture
async def api(client: ApiConnection) -> HttpKubeApi:
    """The adapter on the server in this process."""
    return HttpKubeApi(client, SHORT)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the contract is tested on: the adapter, and a namespace of the test's own."""

    api: HttpKubeApi
    namespace: str
    _server: ApiServer | ControlPlane

    def forget(self) -> None:
        """From now on the server knows no version before the present one."""
        self._server.forget()

    @asynccontextmanager
    async def asks(self, hook: Hook) -> AsyncIterator[None]:
        """While entered, the server asks that webhook about pods of its namespace."""
        if isinstance(self._server, ApiServer):
            self._server.hook = hook
            yield
            self._server.hook = None
            return
        await self.api.write(Create(WEBHOOKS, hook.configuration()))
        while not hook.asked:  # it takes a moment until the server knows
            with suppress(UllageError):
                await self.api.write(Create(PODS, bodies.pod(generate="probe-"), self.namespace))
        hook.asked.clear()
        yield
        await self.api.write(Delete(WEBHOOKS, hook.namespace))


@pytest.fixture(params=["in-process", "real"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, ApiServer | ControlPlane]:
    """Each kind of API server in turn, and its kubeconfig."""
    if request.param == "real":
        plane: ControlPlane = request.getfixturevalue("real")
        return plane.kubeconfig, plane
    server: ApiServer = request.getfixturevalue("server")
    return write_kubeconfig(tmp_path, server.url), server


@pytest.fixture
async def cluster(backend: tuple[Path, ApiServer | ControlPlane], anyio_backend: str) -> AsyncIterator[Cluster]:
    place, server = backend
    async with connect(place) as client:
        api = HttpKubeApi(client, SHORT)
        namespace = f"contract-{next(_NUMBERS)}"
        await api.write(Create(NAMESPACES, {"metadata": {"name": namespace}}))
        yield Cluster(api, namespace, server)
