"""Notices are sent to the addresses that were checked, and to no others."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from ullage.bootstrap import webhooks
from ullage.model.notice import LINK_LOCAL, Notice

Resolve = Callable[..., None]


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.came.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))  # type: ignore[attr-defined]
        self.send_response(302 if self.path == "/moved" else 204)
        self.send_header("Location", "/again")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.came = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Have every name lead to these addresses."""

    def lead(*addresses: str) -> None:
        def found(_host: str, port: int, **_options: object) -> list[tuple[Any, ...]]:
            kinds = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
            places = [(address, port, 0, 0) if ":" in address else (address, port) for address in addresses]
            return [(kind, socket.SOCK_STREAM, 6, "", place) for kind, place in zip(kinds, places, strict=True)]

        monkeypatch.setattr(socket, "getaddrinfo", found)

    return lead


def notice(url: str) -> Notice:
    return Notice("k", "s", url, "{}", due_at=0.0)


def sent(receiver: Any, host: str, path: str = "/x?y=1", allowed: tuple[str, ...] = ("*",)) -> webhooks.Delivery:
    return webhooks.post(notice(f"http://{host}:{receiver.server_port}{path}"), allowed)


def test_a_notice_is_posted_and_a_redirect_is_not_followed(receiver: Any) -> None:
    assert sent(receiver, "127.0.0.1") == webhooks.Delivery(None)
    moved = sent(receiver, "localhost", "/moved")
    assert moved.reason == "HTTP status 302"
    assert receiver.came == [("/x?y=1", b"{}"), ("/moved", b"{}")]


@pytest.mark.parametrize(
    "addresses",
    [
        ("169.254.169.254",),
        ("127.0.0.1", "169.254.169.254"),
        ("::ffff:169.254.169.254",),
        ("fe80::1%1",),
        ("fd00:ec2::254",),
    ],
)
def test_nothing_is_connected_to_when_a_name_leads_to_the_metadata(
    receiver: Any, resolve: Resolve, monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    resolve(*addresses)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it was connected to"))
    refused = sent(receiver, "innocent.example.com")
    assert refused.final
    assert refused.reason == f"its address {addresses[-1]} is {LINK_LOCAL}"


def test_an_operator_allows_a_name_that_leads_there(
    receiver: Any, resolve: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve("169.254.10.1")
    places: list[object] = []
    connect = socket.socket.connect

    def record(connection: socket.socket, place: object) -> None:
        places.append(place)
        connect(connection, ("127.0.0.1", receiver.server_port))

    monkeypatch.setattr(socket.socket, "connect", record)
    assert sent(receiver, "inner.example.com", allowed=("*", "Inner.example.com")) == webhooks.Delivery(None)
    assert places == [("169.254.10.1", receiver.server_port)]


def test_the_next_address_is_tried_and_no_answer_is_a_reason(receiver: Any, resolve: Resolve) -> None:
    resolve("127.0.0.3", "127.0.0.1")  # nothing listens on the first one
    assert sent(receiver, "two.example.com") == webhooks.Delivery(None)
    resolve("127.0.0.3")
    failed = sent(receiver, "one.example.com")
    assert (failed.reason, failed.final) == ("ConnectionRefusedError: [Errno 111] Connection refused", False)


def test_the_certificate_of_a_receiver_is_verified_by_its_name(
    receiver: Any, resolve: Resolve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("hooks.example.com").configure_cert(context)
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    resolve("127.0.0.1")
    assert webhooks.post(notice(f"https://hooks.example.com:{receiver.server_port}/x")) == webhooks.Delivery(None)
    refused = webhooks.post(notice(f"https://other.example.com:{receiver.server_port}/x"))
    assert refused.reason is not None
    assert refused.reason.startswith("SSLCertVerificationError")
