"""Servers for the tests of several folders: a fake one, and a real one with declared cards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.fake_api import TOKEN, FakeApi
from tests.system.live_server import LiveServer

FOUR_CARDS = """
[node]
gpus = 4
[[node.card]]
model = "A100"
vram = "40g"
tflops = 100
"""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeApi]:
    """A fake server that the environment names, and no other."""
    fake = FakeApi()
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ULLAGE_ENDPOINT", fake.url)
    monkeypatch.setenv("ULLAGE_TOKEN", TOKEN)
    yield fake
    fake.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A real server with four cards, for all tests of a module."""
    home = tmp_path_factory.mktemp("server") / "home"
    home.mkdir()
    (home / "ullage.toml").write_text(FOUR_CARDS)
    live = LiveServer(home)
    live.start()
    yield live
    live.stop()


@pytest.fixture
def http(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx2.Client]:
    """A client of the real server, which the environment names too; afterwards no request holds anything."""
    token = (server.home / "token").read_text().strip()
    monkeypatch.setenv("ULLAGE_HOME", str(server.home))
    monkeypatch.setenv("ULLAGE_ENDPOINT", server.url)
    monkeypatch.setenv("ULLAGE_TOKEN", token)
    with httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:
        yield client
        for body in (*client.get("/v1/nominations").json(), *client.get("/v1/allocations").json()):
            client.delete(f"/v1/allocations/{body['uid']}")
        for quota in client.get("/v1/quotas").json():
            client.delete(f"/v1/quotas/{quota['namespace']}")
