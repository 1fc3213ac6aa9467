"""An announced address is open."""

from __future__ import annotations

import socket

import pytest

from ullage.bootstrap.listener import listen, reachable_host
from ullage.model.error import InvalidRequest, Unavailable


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_early_connection_waits_for_the_server(host: str) -> None:
    try:
        listener = listen(host, 0, "choose another port")
    except Unavailable:
        pytest.skip(f"this machine has no {host}")
    with listener, socket.create_connection(listener.getsockname()[:2], timeout=60) as early:
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"at last")
            assert early.recv(7) == b"at last"


def test_an_address_in_use_is_an_error_with_a_hint() -> None:
    with listen("127.0.0.1", 0, "choose another port") as first:
        port = first.getsockname()[1]
        with pytest.raises(Unavailable) as caught:
            listen("127.0.0.1", port, "choose another port")
    assert caught.value.code == "port-in-use"
    assert f"127.0.0.1:{port}" in caught.value.message
    assert "choose another port" in caught.value.message


def test_an_address_of_another_machine_is_named_instead_of_the_port() -> None:
    with pytest.raises(InvalidRequest, match=r"host: '192\.0\.2\.1' is not valid: no interface of this machine has it"):
        listen("192.0.2.1", 0, "choose another port")


def test_a_host_that_there_is_not_is_named_instead_of_the_port() -> None:
    with pytest.raises(InvalidRequest, match=r"host: 'nosuch\.invalid' is not valid: .*; write an address of this"):
        listen("nosuch.invalid", 0, "choose another port")


@pytest.mark.parametrize(
    ("address", "names", "host"),
    [
        ("0.0.0.0", [], "localhost"),
        ("::", [], "localhost"),
        ("0.0.0.0", ["gpu-box.example.org", "gpu-box"], "gpu-box.example.org"),
        ("127.0.0.1", ["gpu-box.example.org"], "127.0.0.1"),
        ("fd00::7", [], "[fd00::7]"),
    ],
)
def test_the_address_of_a_server_can_be_opened(address: str, names: list[str], host: str) -> None:
    assert reachable_host(address, names) == host
