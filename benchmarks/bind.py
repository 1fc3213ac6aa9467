"""Measures the pods that the extender binds in a second.

Work: `ullage kube` as a process of its own before the API server that the tests have, in this process, with 1,000
nodes of 8 cards and 1,200 pods of one card each. A client in a third process, with connections that stay open, asks
`/bind` for 400 pods one after the other and for 400 with 16 under way, as kube-scheduler does, which does not wait
for one bind before the next. Each bind reads the pod, chooses its card, and writes node and card in one call. The
last 400 are read and written by the client itself, 16 at a time: what the API server takes, which a cluster's own,
not in Python, does many times faster. Times are the client's.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.kube.api_server import TOKEN, ApiServer
from tests.kube.live_front import LiveFront
from tests.kube.test_front import a_node, a_pod, binding, put

_NODES, _CARDS, _PODS, _AT_ONCE = 1_000, 8, 400, 16

Call = Callable[[http.client.HTTPConnection, dict[str, str]], None]


def by_extender(connection: http.client.HTTPConnection, bound: dict[str, str]) -> None:
    """One bind, as kube-scheduler asks for it."""
    answer = _call(connection, "POST", "/bind", bound)
    assert answer["Error"] == "", answer


def by_hand(connection: http.client.HTTPConnection, bound: dict[str, str]) -> None:
    """The two calls of a bind, and nothing decided."""
    path = f"/api/v1/namespaces/default/pods/{bound['PodName']}"
    version = _call(connection, "GET", path)["metadata"]["resourceVersion"]
    metadata = {"name": bound["PodName"], "uid": bound["PodUID"], "resourceVersion": version}
    target = {"apiVersion": "v1", "kind": "Node", "name": bound["Node"]}
    _call(connection, "POST", f"{path}/binding", {"metadata": metadata, "target": target})


def _call(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> Any:
    connection.request(method, path, None if body is None else json.dumps(body), {"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    raw = answer.read()
    assert answer.status in (200, 201), raw
    return json.loads(raw)


def client(ports: tuple[int, int], pods: list[dict[str, str]], reported: Any) -> None:
    """The client: for each way to bind a third of the pods, the seconds of each and of all."""
    extender, api = ports
    ways: tuple[tuple[Call, int, int], ...] = ((by_extender, extender, 1), (by_extender, extender, _AT_ONCE))
    for way, port, at_once in (*ways, (by_hand, api, _AT_ONCE)):
        some, pods = pods[:_PODS], pods[_PODS:]
        began = time.perf_counter()
        with ThreadPoolExecutor(at_once) as threads:
            parts = threads.map(_one_after_the_other, [(way, port, some[n::at_once]) for n in range(at_once)])
        reported.send((sorted(took for part in parts for took in part), time.perf_counter() - began))


def _one_after_the_other(work: tuple[Call, int, list[dict[str, str]]]) -> list[float]:
    way, port, pods = work
    took = []
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        for each in pods:
            began = time.perf_counter()
            way(connection, each)
            took.append(time.perf_counter() - began)
    return took


def main() -> None:
    """Print what a client finds."""
    print(f"bind: {_NODES:,} nodes of {_CARDS} cards, pods of one card, before the API server of the tests")
    with tempfile.TemporaryDirectory() as folder, closing(ApiServer()) as server:
        put(server, "nodes", *(a_node(f"n{number:04}", _CARDS) for number in range(_NODES)))
        pods = put(server, "pods", *(a_pod(f"p{number}") for number in range(3 * _PODS)))
        asked = [binding(pod, f"n{number % _NODES:04}") for number, pod in enumerate(pods)]
        with closing(LiveFront(Path(folder), server.url)) as front:
            front.start().wait_ready()
            ports = int(front.url("extender").rsplit(":", 1)[1]), server.port
            processes = multiprocessing.get_context("spawn")
            near, far = processes.Pipe()
            process = processes.Process(target=client, args=(ports, asked, far))
            process.start()
            for what in ("one at a time", f"{_AT_ONCE} at a time", "without the extender"):
                times, seconds = near.recv()
                p50, p99 = (times[int(len(times) * part)] * 1e3 for part in (0.5, 0.99))
                print(f"  {what:20} p50 {p50:6.2f} ms, p99 {p99:6.2f} ms, {_PODS / seconds:5.0f}/s")
            process.join()
            assert front.end() == 0
