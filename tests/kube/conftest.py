"""Clusters for the tests of this folder: one in this process, and a real one where its programs are found."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from tests.kube.api_server import TOKEN, ApiServer
from tests.kube.bodies import definition
from tests.kube.control_plane import ControlPlane, kubeconfig
from ullage.kube.changes import Create
from ullage.kube.connection import connect
from ullage.kube.http import HttpKubeApi, Patience
from ullage.kube.kinds import GPU_BINDINGS, NAMESPACES, Kind
from ullage.kube.objects import Object
from ullage.model.error import NotFound

SHORT = Patience(answer_s=10.0, throttled_s=5.0, watch_s=(1.0, 2.0), silence_s=20.0)
DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", Object, namespaced=False
)
_NUMBERS = itertools.count(1)


async def until(condition: Callable[[], bool], what: str, deadline_s: float = 30.0) -> None:
    """Wait for something that other tasks or threads bring about."""
    clock = asyncio.get_running_loop().time
    end = clock() + deadline_s
    while not condition():
        assert clock() < end, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(0.005)


def write_kubeconfig(folder: Path, url: str) -> Path:
    place = folder / "kubeconfig"
    place.write_text(json.dumps(kubeconfig(url, {}, {"token": TOKEN})))
    return place


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of real processes; skips where they are not installed."""
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        asyncio.run(_define(plane, GPU_BINDINGS))
        yield plane
    finally:
        plane.close()


async def _define(plane: ControlPlane, kind: Kind[Object]) -> None:
    async with connect(plane.kubeconfig) as client:
        api = HttpKubeApi(client, SHORT)
        await api.write(Create(DEFINITIONS, definition(kind)))
        clock = asyncio.get_running_loop().time
        end = clock() + 60
        while clock() < end:
            try:
                assert [page async for page in api.pages(kind)]
            except NotFound:
                await asyncio.sleep(0.1)
            else:
                return
    raise AssertionError(f"{kind.plural} are not served within a minute")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """The API server in this process."""
    server = ApiServer()
    yield server
    server.close()


@pytest.fixture
async def client(server: ApiServer, tmp_path: Path, anyio_backend: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with connect(write_kubeconfig(tmp_path, server.url)) as client:
        yield client


@pytest.fixture
async def api(client: httpx2.AsyncClient) -> HttpKubeApi:
    """The adapter on the server in this process."""
    return HttpKubeApi(client, SHORT)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the contract is tested on: the adapter, and a namespace of the test's own.

    After `forget` the server knows no version before the present one.
    """

    api: HttpKubeApi
    namespace: str
    forget: Callable[[], None]


@pytest.fixture(params=["in-process", "real"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Callable[[], None]]:
    """Each kind of API server in turn: its kubeconfig, and how to make it forget."""
    if request.param == "real":
        plane: ControlPlane = request.getfixturevalue("real")
        return plane.kubeconfig, plane.restart_api
    server: ApiServer = request.getfixturevalue("server")
    return write_kubeconfig(tmp_path, server.url), server.forget


@pytest.fixture
async def cluster(backend: tuple[Path, Callable[[], None]], anyio_backend: str) -> AsyncIterator[Cluster]:
    place, forget = backend
    async with connect(place) as client:
        api = HttpKubeApi(client, SHORT)
        namespace = f"contract-{next(_NUMBERS)}"
        await api.write(Create(NAMESPACES, {"metadata": {"name": namespace}}))
        yield Cluster(api, namespace, forget)
