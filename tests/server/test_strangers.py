"""The cost of callers without a token for a real server and its other callers."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.strangers import ENDLESS, MIB, PLENTY, Address, pour, resident_bytes
from tests.system.live_server import LiveServer
from ullage.client.endpoint import local
from ullage.client.local import answers
from ullage.client.transport import Transport

GROWTH = 64 * MIB
"""Memory that strangers may cost a server, whatever they send."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server that never reads compiled code: nothing but its callers changes what memory it has."""
    with LiveServer(tmp_path_factory.mktemp("server") / "home") as live:
        yield live


@pytest.fixture
def address(server: LiveServer) -> Address:
    found = urlsplit(server.url)
    assert found.hostname
    assert found.port
    return Address(found.hostname, found.port)


def test_requests_without_an_end_are_ended_and_cost_little_memory(server: LiveServer, address: Address) -> None:
    assert server.process is not None
    assert address.ask() == 200
    before = resident_bytes(server.process.pid)
    for begin, pieces in ENDLESS.values():
        with address.connect() as caller:
            assert pour(caller, begin, pieces()) < PLENTY
        assert address.ask() == 200
    assert resident_bytes(server.process.pid) - before < GROWTH


def test_many_silent_callers_block_no_other(server: LiveServer, address: Address) -> None:
    assert server.process is not None
    assert address.ask() == 200
    before = resident_bytes(server.process.pid)
    with ExitStack() as opened:
        for count in range(400):
            caller = opened.enter_context(address.connect())
            caller.sendall(b"GET / HTTP/1.1\r\nX-Half: ")
            if count % 100 == 0:
                assert address.ask() == 200
        assert address.ask() == 200
        assert resident_bytes(server.process.pid) - before < GROWTH


def test_a_client_of_the_home_uses_its_socket_whatever_listens_at_the_port(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ULLAGE_HOME", str(server.home))
    monkeypatch.delenv("ULLAGE_ENDPOINT", raising=False)
    assert server.process is not None
    found = local()
    assert found is not None
    assert found.pid == server.process.pid
    transport = Transport(lambda: msgspec.structs.replace(found, url="http://127.0.0.1:1"))
    assert b'"home"' in transport.request("GET", "/v1/server")
    transport.close()
    assert stat.S_IMODE((server.home / "server.sock").stat().st_mode) == 0o600


def test_the_file_of_a_killed_server_is_not_believed_and_its_socket_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path / "home"))
    with LiveServer(tmp_path / "home") as server:
        server.kill()
        assert (tmp_path / "home" / "server.json").exists()
        assert local() is None
        server.start()
        found = local()
        assert found is not None
        assert server.process is not None
        assert found.pid == server.process.pid
        assert answers(found)
    assert not (tmp_path / "home" / "server.sock").exists()
