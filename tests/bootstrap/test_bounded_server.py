"""A server with bounds: the cost of an unauthenticated caller, and its effect on others."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import pytest
import trustme
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.strangers import ENDLESS, KIB, MIB, PLENTY, START, Address, ask, pour, read_answer

from ullage.bootstrap.http.bounds import Bounds
from ullage.bootstrap.http.connection import BoundedConnection
from ullage.bootstrap.http.connections import ConnectionPhase, Connections
from ullage.bootstrap.http.server import BoundedServer
from ullage.bootstrap.listener import listen
from ullage.bootstrap.tls import TlsFiles
from ullage.client.endpoint import ServerEndpoint
from ullage.client.transport import Transport
from ullage.model.error import InvalidRequest
from ullage.server.guard import UNAUTHENTICATED

BOUNDS = Bounds(connections=32)
LARGE = 64 * MIB


async def alive(_: Request) -> Response:
    return PlainTextResponse("ok")


async def unauthenticated(request: Request) -> Response:
    request.scope[UNAUTHENTICATED] = True
    return PlainTextResponse("ok")


came = Counter[str]()
"""Bytes of bodies that came to `take`, by the name that the caller gave itself."""


async def take(request: Request) -> Response:
    name, count = request.headers.get("x-name", ""), 0
    async for piece in request.stream():
        count += len(piece)
        came[name] = count
    return PlainTextResponse(str(count))


async def until_came(request: Request) -> Response:
    """Answer as soon as so many bytes came from a caller."""
    while came[request.path_params["name"]] < request.path_params["count"]:  # noqa: ASYNC110 - turns of a loop of a test
        await asyncio.sleep(0)
    return PlainTextResponse("they are there")


async def refuse(_: Request) -> Response:
    return PlainTextResponse("no", 401)


waits = threading.Event()


async def for_ever(_: Request) -> Response:
    """Wait for what never comes, as a client does for results."""
    waits.set()
    await asyncio.Event().wait()
    raise AssertionError


async def much(_: Request) -> Response:
    return Response(bytes(LARGE))


APP = Starlette(
    routes=[
        Route("/healthz", alive),
        Route("/unauthenticated", unauthenticated),
        Route("/take", take, methods=["POST"]),
        Route("/came/{name}/{count:int}", until_came),
        Route("/much", much),
        Route("/for-ever", for_ever),
        Route("/{rest:path}", refuse, methods=["GET", "POST"]),
    ]
)


@contextmanager
def serving(
    bounds: Bounds = BOUNDS, tls: TlsFiles | None = None, known: ssl.SSLContext | None = None
) -> Iterator[Address]:
    """Yield the address of the application, which runs in a thread of its own."""
    listener = listen("127.0.0.1", 0, "")
    address = Address("127.0.0.1", listener.getsockname()[1], known)
    server = BoundedServer(APP, bounds, tls, drain_s=1)
    thread = threading.Thread(target=lambda: uvloop.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_request_without_an_end_is_ended_and_others_are_answered(kind: str) -> None:
    begin, pieces = ENDLESS[kind]
    with serving() as address, address.connect() as caller:
        assert pour(caller, begin, pieces()) < PLENTY
        assert address.ask() == 200


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"X-Long: " + b"a" * 33 * KIB, id="too long"),
        pytest.param(b"\r\n".join(b"X-%d: 1" % n for n in range(200)), id="too many headers"),
    ],
)
def test_a_head_that_is_too_large_is_refused_with_a_code(head: bytes) -> None:
    with serving() as address, address.connect() as caller:
        pour(caller, START, iter([head + b"\r\n\r\n"]))
        status, _, body = read_answer(caller).partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 431 ")
    assert json.loads(body)["code"] == "head-too-large"


def test_a_head_within_bounds_is_served_however_it_is_cut_into_pieces() -> None:
    with serving() as address, address.connect() as caller:
        head = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * 30 * KIB + b"\r\nConnection: close\r\n\r\n"
        for begin in range(0, len(head), 1000):
            caller.sendall(head[begin : begin + 1000])
        assert read_answer(caller).startswith(b"HTTP/1.1 200 ")


def test_a_head_that_comes_byte_by_byte_is_read_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, parsed, parse = list[float](), threading.Semaphore(0), BoundedConnection._parse

    def count(connection: BoundedConnection, piece: bytes) -> None:
        parse(connection, piece)
        parsed.release()

    monkeypatch.setattr(BoundedConnection, "_parse", count)
    monkeypatch.setattr(BoundedConnection, "_pause", lambda _, seconds: pauses.append(seconds))
    with serving() as address, address.connect() as caller:
        for byte in b"GET /healthz":
            caller.sendall(bytes([byte]))
            assert parsed.acquire(timeout=60)
        assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 1.28, 1.28, 1.28]
        caller.sendall(b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert read_answer(caller).startswith(b"HTTP/1.1 200 ")
        assert len(pauses) == 10


def test_a_caller_without_a_token_that_asks_again_and_again_is_read_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()
    monkeypatch.setattr(BoundedConnection, "_pause", lambda _, seconds: pauses.append(seconds))
    with serving() as address:
        for path, paused in (("/healthz", 0), ("/unauthenticated", 8)):
            with address.connect() as caller:
                for _ in range(40):
                    assert ask(caller, path) == 200
                caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert read_answer(caller).startswith(b"HTTP/1.1 200 ")
            assert pauses == [0.02] * paused


def test_a_caller_without_a_token_is_answered_after_each_pause() -> None:
    with serving() as address, address.connect() as caller:
        for _ in range(40):
            assert ask(caller, "/unauthenticated") == 200


def test_a_request_that_names_two_hosts_is_refused() -> None:
    with serving() as address, address.connect() as caller:
        caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n")
        status, _, body = read_answer(caller).partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["code"] == "malformed-request"
    assert "more than one Host" in json.loads(body)["message"]


class Counted:
    """A connection that counts how many were cut."""

    cut_so_far = 0

    def cut(self) -> None:
        Counted.cut_so_far += 1


def test_connections_that_waited_too_long_are_cut_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "cut_so_far", 0)
    now = 0.0
    connections = Connections(replace(BOUNDS, connections=100), lambda: now)
    for _ in range(40):
        waits_for_ever = Counted()
        assert connections.admit(waits_for_ever)
        connections.wait(waits_for_ever, ConnectionPhase.HEAD)
    assert not connections.sweep()
    now = 1000.0
    assert [(connections.sweep(), Counted.cut_so_far) for _ in range(4)] == [
        (True, 16), (True, 32), (False, 40), (False, 40)
    ]  # fmt: skip


def chunked(path: str, *chunks: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + body


def test_a_body_in_tiny_chunks_is_refused_before_it_takes_the_time_of_others() -> None:
    with serving() as address, address.connect() as caller:
        caller.sendall(chunked("/take", *[b"x"] * 1000))
        status, _, body = read_answer(caller).partition(b"\r\n\r\n")
        assert address.ask() == 200
    assert status.startswith(b"HTTP/1.1 400 ")
    assert "chunks of less than 256 bytes" in json.loads(body)["message"]


def test_tiny_chunks_after_an_answer_end_the_connection_without_another_answer() -> None:
    with serving() as address, address.connect() as caller:
        pour(caller, chunked("/refused"), repeat(b"1\r\nx\r\n" * 100, 100))
        assert read_answer(caller).count(b"HTTP/1.1 ") <= 1


def test_a_body_in_many_chunks_of_a_usual_size_is_taken() -> None:
    with serving() as address, address.connect() as caller:
        caller.sendall(chunked("/take", *[b"x"] * 200, *[b"y" * 300] * 1000, b""))
        assert read_one(caller).endswith(b"\r\n\r\n300200")


def read_one(caller: socket.socket) -> bytes:
    """Return the bytes up to the end of one answer with a content length."""
    with caller.makefile("rb") as file:
        head = b"".join(iter(file.readline, b"\r\n")) + b"\r\n"
        length = next(line for line in head.splitlines() if line.lower().startswith(b"content-length:"))
        return head + file.read(int(length.split(b":")[1]))


def test_a_malformed_chunk_is_refused_with_a_code() -> None:
    with serving() as address, address.connect() as caller:
        caller.sendall(chunked("/take", b"x" * 300) + b"nonsense\r\n")
        status, _, body = read_answer(caller).partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["code"] == "malformed-request"


def test_a_request_that_waits_when_the_server_ends_is_answered_so_that_its_client_asks_again() -> None:
    with ExitStack() as left_last:
        with serving() as address:
            caller = left_last.enter_context(address.connect())
            waits.clear()
            caller.sendall(b"GET /for-ever HTTP/1.1\r\nHost: a\r\n\r\n")
            assert waits.wait(60)
        status, _, body = read_answer(caller).partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 503 ")
    assert json.loads(body)["code"] == "unavailable"


def test_malformed_http_is_refused_with_a_code() -> None:
    with serving() as address, address.connect() as caller:
        caller.sendall(b"\x16\x03\x01 this is a TLS greeting\r\n\r\n")
        status, _, body = read_answer(caller).partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["code"] == "malformed-request"


def test_a_large_body_arrives_whole_and_the_connection_serves_on() -> None:
    with serving() as address, address.connect() as caller:
        caller.sendall(b"POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (3 * MIB))
        caller.sendall(bytes(3 * MIB))
        caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answers = read_answer(caller)
    assert str(3 * MIB).encode() in answers
    assert answers.endswith(b"ok")


def test_a_client_learns_why_its_body_was_refused_however_large_it_is() -> None:
    with serving(replace(BOUNDS, drained_bytes=MIB)) as address:
        transport = Transport(lambda: ServerEndpoint(f"http://{address.host}:{address.port}"), retry_s=0.0)
        with pytest.raises(InvalidRequest, match="401: no"):
            transport.request("POST", "/v1/sessions", bytes(32 * MIB))
        transport.close()


def test_an_answer_that_came_before_its_body_is_read_by_a_caller_that_sends_on() -> None:
    with serving() as address, address.connect() as caller:
        pour(caller, START + b"Content-Length: 9000000\r\nConnection: close\r\n\r\n", iter([bytes(9_000_000)]))
        assert read_answer(caller).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET / HTT", id="half a line"),
        pytest.param(START + b"Host: a\r\n", id="half a head"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET", id="the begin of one more request"),
        pytest.param(b"POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc", id="half a body"),
        pytest.param(START + b"Content-Length: 100\r\n\r\nabc", id="half a body that nobody needs"),
    ],
)
def test_a_caller_that_sends_no_more_is_cut(begin: bytes) -> None:
    with serving(replace(BOUNDS, head_s=0.1, body_s=0.1, drain_s=0.1)) as address, address.connect() as caller:
        caller.sendall(begin)
        read_answer(caller)  # it ends


def test_silent_connections_give_way_to_others_the_oldest_first() -> None:
    with serving(replace(BOUNDS, connections=8)) as address, ExitStack() as opened:
        silent = [opened.enter_context(address.connect()) for _ in range(24)]
        assert address.ask() == 200
        for caller in silent[:16]:
            assert read_answer(caller) == b""
        silent[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert read_answer(silent[-1]).endswith(b"ok")


def test_unfinished_bodies_together_are_bounded_and_the_oldest_is_closed() -> None:
    head = b"POST /take HTTP/1.1\r\nHost: a\r\nX-Name: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    came.clear()
    with serving(replace(BOUNDS, bodies_bytes=3 * MIB)) as address, ExitStack() as opened:
        first = opened.enter_context(address.connect())
        first.sendall(head % (b"first", 2 * MIB) + bytes(2 * MIB - 1))
        assert address.ask(f"/came/first/{2 * MIB - 1}") == 200
        second = opened.enter_context(address.connect())
        second.sendall(head % (b"second", 2 * MIB) + bytes(2 * MIB))
        assert read_answer(second).startswith(b"HTTP/1.1 200 ")
        assert read_answer(first) == b""


class Open:
    """A connection that notes that it was cut."""

    was_cut = False

    def cut(self) -> None:
        self.was_cut = True


def test_a_caller_that_reads_nothing_of_its_answer_is_cut_when_its_time_is_over() -> None:
    now = 0.0
    connections = Connections(replace(BOUNDS, stalled_s=30.0), lambda: now)
    caller, other = Open(), Open()
    for each in (caller, other):
        assert connections.admit(each)
    connections.wait(caller, ConnectionPhase.STALLED)
    now = 29.0
    connections.sweep()
    assert not caller.was_cut
    now = 31.0
    connections.wait(other, ConnectionPhase.STALLED)
    connections.sweep()
    assert (caller.was_cut, other.was_cut, len(connections)) == (True, False, 1)


def test_a_caller_that_is_cut_off_before_its_first_answer_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Its first request is being answered when too many others came behind it."""
    with serving() as address:
        with address.connect() as caller:
            caller.sendall(b"GET /came/others/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * (BOUNDS.pipelined + 2))
            assert read_answer(caller) == b""
        with address.connect() as other:
            other.sendall(
                b"POST /take HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Name: others\r\nContent-Length: 1\r\n"
                b"Connection: close\r\n\r\nx"
            )
            assert read_answer(other).endswith(b"1")
        assert address.ask("/came/others/1") == 200
    assert caplog.records == []


def test_a_new_connection_is_refused_where_all_others_are_being_answered() -> None:
    connections = Connections(replace(BOUNDS, connections=2), lambda: 0.0)
    assert all(connections.admit(Open()) for _ in range(2))
    assert not connections.admit(Open())
    assert len(connections) == 2


def test_an_unread_answer_blocks_no_other_callers() -> None:
    with serving(replace(BOUNDS, connections=2)) as address, ExitStack() as opened:
        for _ in range(4):
            caller = opened.enter_context(address.connect())
            caller.sendall(b"GET /much HTTP/1.1\r\nHost: a\r\n\r\n")
            caller.recv(1)  # it was begun
        assert address.ask() == 200


@pytest.fixture
def certified(tmp_path: Path) -> tuple[TlsFiles, ssl.SSLContext]:
    """The certificate of a server, and what its callers trust."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "tls.pem", tmp_path / "tls.key"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    known = ssl.create_default_context()
    authority.configure_trust(known)
    return TlsFiles(cert, key), known


@pytest.mark.parametrize("kind", ENDLESS)
def test_plain_http_without_an_end_on_a_port_of_https_is_ended(
    certified: tuple[TlsFiles, ssl.SSLContext], kind: str
) -> None:
    begin, pieces = ENDLESS[kind]
    with serving(BOUNDS, *certified) as address, Address(address.host, address.port).connect() as caller:
        assert pour(caller, begin, pieces()) < PLENTY
        assert address.ask() == 200


def test_callers_that_never_finish_their_tls_handshake_give_way_to_others(
    certified: tuple[TlsFiles, ssl.SSLContext],
) -> None:
    bounds = replace(BOUNDS, connections=4, handshake_s=3600.0)
    with serving(bounds, *certified) as address, ExitStack() as opened:
        plain = Address(address.host, address.port)
        silent = [opened.enter_context(plain.connect()) for _ in range(12)]
        assert address.ask() == 200
        for caller in silent[:8]:
            assert read_answer(caller) == b""
