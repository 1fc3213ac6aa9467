"""Servers for the tests of several folders: a fake one, and a real one with declared cards."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.fake_api import TOKEN, FakeApi
from tests.system.live_server import LiveServer

# How long an example takes says how busy the machine is. One commit has one verdict; `make search` tries others.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("search"), derandomize=True)
settings.register_profile("quick", settings.get_profile("same"), max_examples=20)
settings.load_profile("same")

# Hypothesis also draws constants of the modules that are loaded, which are others in each worker of pytest.
of_loaded_modules = providers._get_local_constants
no_constants = providers.Constants()
providers._get_local_constants = lambda: (
    of_loaded_modules() if settings.get_current_profile_name() == "search" else no_constants
)


def pytest_collection() -> None:
    """Import the modules of tests without collecting garbage, which takes a third of the time: they live to the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect the garbage of tests, and not their modules again and again."""
    gc.freeze()
    gc.enable()


MOST = {"same": (100, 40), "quick": (20, 5)}
"""By profile, the most examples of a property, and of a history, whose examples have many steps."""


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run properties with few examples. With the profile `quick`, those are not long that are so because of many."""
    profile = settings.get_current_profile_name()
    if profile not in MOST:
        return
    for item in items:
        if not (isinstance(item, pytest.Function) and _has_few_examples(item, MOST[profile])):
            continue
        if profile == "quick" and item.get_closest_marker("long"):
            for node in (item, item.parent):
                if node is not None:
                    node.own_markers = [mark for mark in node.own_markers if mark.name != "long"]


def _has_few_examples(item: pytest.Function, most: tuple[int, int]) -> bool:
    """Have a property run with few examples; return whether it is one."""
    test = getattr(item.obj, "__func__", item.obj)
    places = ((test, "_hypothesis_internal_use_settings"), (item.cls, "settings"))
    for (owner, name), count in zip(places, most, strict=True):
        known = getattr(owner, name, None)
        if isinstance(known, settings):
            setattr(owner, name, settings(known, max_examples=min(count, known.max_examples)))
            return True
    return False


# A shell without job control starts what it runs in the background deaf to Ctrl-C and to SIGQUIT, `nohup` deaf to the
# end of the terminal, and so are all its children.
for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGTERM, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

FOUR_CARDS = """
[node]
gpus = 4
[[node.card]]
model = "A100"
vram = "40g"
tflops = 100
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of the server and the clients of a test; no other server is named."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("ULLAGE_HOME", str(place))
    monkeypatch.delenv("ULLAGE_ENDPOINT", raising=False)
    monkeypatch.delenv("ULLAGE_TOKEN", raising=False)
    monkeypatch.delenv("ULLAGE_EXECUTOR", raising=False)
    return place


@pytest.fixture
def hidden_fake(home: Path) -> Iterator[FakeApi]:
    """A fake server that no client knows."""
    fake = FakeApi()
    yield fake
    fake.close()


@pytest.fixture
def fake(hidden_fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """A fake server that the environment names, and no other."""
    monkeypatch.setenv("ULLAGE_ENDPOINT", hidden_fake.url)
    monkeypatch.setenv("ULLAGE_TOKEN", TOKEN)
    return hidden_fake


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A real server with four cards, for all tests of a module."""
    home = tmp_path_factory.mktemp("server") / "home"
    home.mkdir()
    (home / "ullage.toml").write_text(FOUR_CARDS)
    with LiveServer(home) as live:
        yield live


@pytest.fixture
def http(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx2.Client]:
    """A client of the real server, which the environment names too; afterwards no request holds anything."""
    monkeypatch.setenv("ULLAGE_HOME", str(server.home))
    monkeypatch.setenv("ULLAGE_ENDPOINT", server.url)
    monkeypatch.setenv("ULLAGE_TOKEN", server.token)
    with server.client() as client:
        yield client
        for body in (*client.get("/v1/nominations").json(), *client.get("/v1/allocations").json()):
            client.delete(f"/v1/allocations/{body['uid']}")
        for quota in client.get("/v1/quotas").json():
            client.delete(f"/v1/quotas/{quota['namespace']}")
