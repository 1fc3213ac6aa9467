"""Measures the latency of callers while strangers attack the same port.

The server of `ullage up` and the three ports of `ullage kube` run as processes of their own. A caller asks on one open
connection, again and again, first undisturbed and then during each attack. The strangers are one more process. They
have no credentials, and connect again as soon as they are cut off. Times are the caller's. On two cores the strangers
take one for themselves, so a part of each time is that of any busy machine.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPSConnection
from itertools import count, cycle
from pathlib import Path
from typing import Any, NamedTuple

from tests.kube.api_server import ApiServer
from tests.kube.certificates import Certificates
from tests.kube.live_front import LiveFront
from tests.kube.test_front import a_node, a_pod, put
from tests.kube.test_webhook import a_pod as a_new_pod
from tests.kube.test_webhook import review
from tests.strangers import ENDLESS, Address, pour
from tests.system.live_server import LiveServer

_SECONDS = 4.0
"""Seconds of each measurement, undisturbed and in each attack."""
_NODES, _CARDS = 100, 8
_SILENT, _FLOODING = 400, 8
_AIM_MS = 50
_PIECE_BYTES = 64 * 2**10

Ask = Callable[[], None]
"""The next question of a caller; raises if the answer is not good."""


class Port(NamedTuple):
    """The address of a front, its CA, and the request of a caller on its connection."""

    name: str
    port: int
    ca: Path | None
    connection: HTTPConnection
    ask: Ask


def main() -> None:
    """Print the results."""
    print(f"strangers: answers to another caller, {_SECONDS:g} s each; p99 below {_AIM_MS} ms is the aim")
    with tempfile.TemporaryDirectory(prefix="ullage-bench-") as folder:
        with local_server(Path(folder) / "home") as port:
            measure(port)
        with cluster_front(Path(folder)) as ports:
            for port in ports:
                measure(port)


def measure(port: Port) -> None:
    """Print what a caller of this port finds, undisturbed and in each attack."""
    print(f"  {port.name}")
    _report("undisturbed", _times(port))
    for name in ATTACKS:
        if name == "half handshakes" and port.ca is None:
            continue
        with _attacked(name, port):
            _report(name, _times(port))


def _times(port: Port) -> list[float]:
    port.connection.close()  # an idle one may be closed by now; the next question opens it again
    port.connection.connect()
    took, ends_at = [], time.perf_counter() + _SECONDS
    while (began := time.perf_counter()) < ends_at:
        port.ask()
        took.append(time.perf_counter() - began)
    return sorted(took)


def _report(name: str, took: list[float]) -> None:
    p50, p99, most = (took[int((len(took) - 1) * part)] * 1e3 for part in (0.5, 0.99, 1.0))
    print(f"    {name:18} p50 {p50:6.2f} ms, p99 {p99:6.2f} ms, longest {most:6.2f} ms, {len(took):6} answers")


# --- callers ---


@contextmanager
def local_server(home: Path) -> Iterator[Port]:
    """A server with cards; its caller allocates, reads and frees."""
    home.mkdir()
    with LiveServer(home, f"--gpus={_CARDS}") as server:
        port = int(server.url.rsplit(":", 1)[1])
        headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        numbers = count()
        with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:

            def ask() -> None:
                turn, step = divmod(next(numbers), 3)
                if step == 0:
                    body = json.dumps({"uid": f"u{turn}", "resreq": "gpu=0.5"})
                    _call(connection, "POST", "/v1/allocations", body, headers)
                else:
                    _call(connection, ("GET", "DELETE")[step - 1], f"/v1/allocations/u{turn}", None, headers)

            yield Port("ullage up: allocate, read, free", port, None, connection, ask)


@contextmanager
def cluster_front(folder: Path) -> Iterator[list[Port]]:
    """The front of a cluster; kube-scheduler and the API server of the cluster are its callers."""
    near, far = multiprocessing.get_context("spawn").Pipe()
    api = multiprocessing.get_context("spawn").Process(target=_serve_api, args=(far,), daemon=True)
    files = Certificates(folder)
    with ExitStack() as opened:
        api.start()
        opened.callback(api.terminate)
        settings = f'webhook_bind = "127.0.0.1:0"\n{files.settings("webhook_")}'
        front = opened.enter_context(closing(LiveFront(folder, near.recv(), settings))).start().wait_ready()
        ports = {name: int(front.url(name).rsplit(":", 1)[1]) for name in ("extender", "webhook", "metrics")}
        connections = {name: opened.enter_context(closing(HTTPConnection("127.0.0.1", ports[name]))) for name in ports}
        connections["webhook"] = opened.enter_context(
            closing(HTTPSConnection("127.0.0.1", ports["webhook"], context=files.trusting()))
        )
        names = [f"n{number}" for number in range(_NODES)]
        pods = cycle(json.dumps({"Pod": a_pod(f"p{number}"), "NodeNames": names}) for number in range(_CARDS))
        new = json.dumps(review(a_new_pod()))

        def filters() -> None:
            _call(connections["extender"], "POST", "/filter", next(pods))

        def admits() -> None:
            _call(connections["webhook"], "POST", "/webhook", new)

        def scrapes() -> None:
            _call(connections["metrics"], "GET", "/readyz", None)

        yield [
            Port(
                f"ullage kube, extender: filter {_NODES} nodes",
                ports["extender"],
                None,
                connections["extender"],
                filters,
            ),
            Port(
                "ullage kube, webhook: admit a pod, TLS",
                ports["webhook"],
                files.ca_file,
                connections["webhook"],
                admits,
            ),
            Port("ullage kube, metrics: readyz", ports["metrics"], None, connections["metrics"], scrapes),
        ]
        front.end()


def _serve_api(reported: Any) -> None:
    server = ApiServer()
    put(server, "nodes", *(a_node(f"n{number}", _CARDS) for number in range(_NODES)))
    reported.send(server.url)
    threading.Event().wait()


def _call(connection: HTTPConnection, method: str, path: str, body: str | None, headers: Any = {}) -> None:  # noqa: B006 - read only
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    raw = answer.read()
    assert answer.status < 300, raw


# --- strangers ---


@contextmanager
def _attacked(name: str, port: Port) -> Iterator[None]:
    """While entered, strangers attack the port."""
    near, far = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_attack, args=(name, port.port, port.ca, far))
    process.start()
    try:
        near.recv()
        yield
    finally:
        process.terminate()
        process.join()


def _attack(name: str, port: int, ca: Path | None, reported: Any) -> None:
    address = Address("127.0.0.1", port, None if ca is None else ssl.create_default_context(cafile=ca))
    for attack in ATTACKS[name]:
        threading.Thread(target=_again_and_again, args=(attack, address), daemon=True).start()
    reported.send(os.getpid())
    threading.Event().wait()


def _again_and_again(attack: Callable[[Address], None], address: Address) -> None:
    while True:
        with suppress(OSError):  # cut off, or not even let in
            attack(address)


def _endless(kind: str) -> Callable[[Address], None]:
    begin, pieces = ENDLESS[kind]

    def attack(address: Address) -> None:
        with address.connect() as caller:
            pour(caller, begin, pieces())

    return attack


def _stay_silent(address: Address) -> None:
    """Hold many connections with half a request, and replace the first one that is closed by all over again."""
    with ExitStack() as opened:
        callers = [opened.enter_context(address.connect()) for _ in range(_SILENT)]
        for caller in callers:
            caller.sendall(b"GET / HTTP/1.1\r\nX-Half: ")
        callers[0].recv(1)


def _send_slowly(address: Address) -> None:
    """Send a head byte by byte over many connections."""
    with ExitStack() as opened:
        callers = [opened.enter_context(address.connect()) for _ in range(_SILENT)]
        for byte in b"GET / HTTP/1.1\r\nX-Slow: " + b"a" * 2**10:
            for caller in callers:
                caller.sendall(bytes([byte]))


def _flood(address: Address) -> None:
    """Ask what anybody may ask, as fast as answers come."""
    with address.connect() as caller:
        while True:
            caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            if not caller.recv(_PIECE_BYTES):
                return


def _connect_only(address: Address) -> None:
    with address.connect():
        pass


def _shake_half(address: Address) -> None:
    """Begin a TLS handshake that never ends."""
    with socket.create_connection((address.host, address.port), timeout=30) as caller:
        caller.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


ATTACKS: dict[str, list[Callable[[Address], None]]] = {
    "endless requests": [_endless(kind) for kind in ENDLESS],
    "silent callers": [_stay_silent],
    "slow callers": [_send_slowly],
    "a flood of asking": [_flood] * _FLOODING,
    "short connections": [_connect_only] * _FLOODING,
    "half handshakes": [_shake_half] * _FLOODING,
}
"""The attacks of strangers, each in a loop in a thread of its own."""
