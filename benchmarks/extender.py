"""The scheduler extender over loopback: what filter and prioritize take, how many in a second, and a restart.

Work: nodes of 8 cards of which half are held, by a fixed seed; pods of three shapes ask one after the other for
a place among all nodes by name, and each is placed where it scores best before the next asks, as kube-scheduler
does. The server runs as in the process of `ullage kube`; the client is a process of its own on one connection,
that does no more than send bytes and wait for those of the answer. Times are the client's. Then four pods, changed each
time, are asked about on four connections at once, as fast as answers come: no core falls asleep between two questions,
which costs more here than they do. Then the books are made anew from 5,000 Node objects and 50,000 Pod objects as the
API gives them.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import random
import socket
import threading
import time
from typing import Any, cast

import msgspec
import uvloop

from benchmarks import bind
from ullage.bootstrap.http.bounds import cluster_bounds
from ullage.bootstrap.http.server import BoundedServer
from ullage.core.placing.rules import Rules
from ullage.kube.client.api import KubeApi
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.client.lease import Candidate
from ullage.kube.context import KubeContext
from ullage.kube.device_plugins import DevicePlugins
from ullage.kube.extender.app import make_app
from ullage.kube.extender.extender import Extender
from ullage.kube.followed import Followed
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.kube.leader.unconfirmed import UnconfirmedBinds
from ullage.kube.mirror.mirror import Mirror
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.request import ResourceRequirement
from ullage.service.cluster import Cluster
from ullage.wire.dialect import read_pod
from ullage.wire.pod import bind_annotations

_SIZES = 1_000, 5_000
_CARDS = 8
_QUESTIONS = 300
_AT_ONCE = 4
_FIRST = 9
"""Questions before these: those about each new shape count apart, because the table of its verdicts is made then."""
_NODES, _PODS = 5_000, 50_000
_AIMS = {1_000: "", 5_000: " (aim 5)"}
_RATES = {1_000: " (aim 1,000)", 5_000: ""}
_GPU = "nvidia.com/gpu"


class _Leads:
    """A candidate that leads, as elections are not what is measured."""

    epoch, holder = 1, "it"


def node(number: int) -> bytes:
    """A Node object."""
    amounts = {"cpu": "128", "memory": "1Ti", _GPU: str(_CARDS)}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.json.encode({"metadata": {"name": f"n{number:05}", "uid": f"n{number}"}, "status": status})


def pod(uid: str, cards: str, **more: Any) -> dict[str, Any]:
    """A Pod that asks for whole cards."""
    container = {"name": "c", "resources": {"limits": {_GPU: cards}}}
    spec = {"containers": [container], **more.pop("spec", {})}
    return {"metadata": {"name": uid, "namespace": "default", "uid": uid, **more}, "spec": spec}


def context_of(cluster: Cluster) -> KubeContext:
    """The context of a leader whose API server is asked nothing."""
    nowhere = cast("KubeApi", None)
    return KubeContext(
        api=nowhere, candidate=cast("Candidate", _Leads()), cluster=cluster, followed=Followed.of(nowhere)
    )


def front(nodes: int) -> tuple[Extender, Cluster]:
    """An extender over so many nodes, half of whose cards are held, and its books."""
    cluster = Cluster(Rules(), time.monotonic)
    context = context_of(cluster)
    mirror = Mirror(context)
    for number in range(nodes):
        context.followed.nodes._put(NODES.read(node(number)))  # noqa: SLF001 - as if it had been listed
    mirror.recover()
    mirror.term = _Leads.epoch
    rng = random.Random(1)
    for name in cluster.allocator.fleet.row_of:
        for k in range(4):
            if rng.random() < 0.7:
                cluster.adopt_bound(_request(f"{name}/{k}", rng.choice((1, 1, 2))), name)
    gc.freeze()  # as `Front` does
    term, plugins = ReadyTerm(context.candidate, mirror), cast("DevicePlugins", None)
    unconfirmed = UnconfirmedBinds(context, term)
    return Extender(context, term, unconfirmed, plugins), cluster


def _request(uid: str, cards: int) -> Request:
    return Request(uid, ResourceRequirement.of(gpu=cards), Claim(pod=uid, pod_uid=uid))


def ask(port: int, nodes: int, reported: Any) -> None:
    """The client: place pods one after the other, and tell the seconds of each filter and prioritize."""
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(_AT_ONCE)]
    for each in connections:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    names, took, rates = [f"n{number:05}" for number in range(nodes)], [], {}

    def post(verb: str, body: dict[str, Any]) -> Any:
        question = _question(verb, body)
        began = time.perf_counter()
        connections[0].sendall(question)
        answer = _answer(connections[0])
        took.append((verb, time.perf_counter() - began))
        return json.loads(answer)

    for number in range(_FIRST + _QUESTIONS):
        asked = pod(f"p{number}", "124"[number % 3])
        found = post("filter", {"Pod": asked, "NodeNames": names})
        scores = post("prioritize", {"Pod": asked, "NodeNames": found["NodeNames"]})
        best = max(scores, key=lambda each: each["Score"])["Host"]
        post("place", {"Pod": asked, "Node": best})
    for verb in ("filter", "prioritize"):
        pods = (
            pod(f"q{number % _AT_ONCE}", "124"[number % 3], resourceVersion=str(number)) for number in range(_QUESTIONS)
        )
        questions = [_question(verb, {"Pod": asked, "NodeNames": names}) for asked in pods]
        began = time.perf_counter()
        for number, question in enumerate(questions):
            connection = connections[number % _AT_ONCE]
            if number >= _AT_ONCE:
                _answer(connection)
            connection.sendall(question)
        for each in connections:
            _answer(each)
        rates[verb] = len(questions) / (time.perf_counter() - began)
    reported.send((took, rates))


def _question(verb: str, body: dict[str, Any]) -> bytes:
    raw = json.dumps(body).encode()
    head = f"POST /{verb} HTTP/1.1\r\nHost: it\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


def _answer(connection: socket.socket) -> bytes:
    """The body of the next answer."""
    found, head, body = b"", b"", b""
    while not head:
        found += connection.recv(2**20)
        head, _, body = found.partition(b"\r\n\r\n") if b"\r\n\r\n" in found else (b"", b"", b"")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    parts, left = [body], length - len(body)
    while left:
        parts.append(connection.recv(2**20))
        left -= len(parts[-1])
    return b"".join(parts)


def measure(nodes: int) -> None:
    """Print what a client finds."""
    extender, cluster = front(nodes)
    app = make_app(extender)

    async def place(request: Any) -> Any:
        from starlette.responses import Response  # noqa: PLC0415 - part of the load, not of the extender

        body = msgspec.json.decode(await request.body())
        asked = read_pod(body["Pod"])
        assert asked is not None
        assert cluster.adopt_bound(asked.request, body["Node"])
        return Response(b"{}")

    app.add_route("/place", place, methods=["POST"])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = BoundedServer(app, cluster_bounds(), drain_s=1)
    thread = threading.Thread(target=lambda: uvloop.run(server.serve(sockets=[listener])))
    thread.start()
    near, far = multiprocessing.get_context("spawn").Pipe()
    client = multiprocessing.get_context("spawn").Process(target=ask, args=(listener.getsockname()[1], nodes, far))
    client.start()
    took, rates = near.recv()
    client.join()
    server.should_exit = True
    thread.join()
    for verb in ("filter", "prioritize"):
        asked = [seconds for each, seconds in took if each == verb]
        first, times = max(asked[:_FIRST]), sorted(asked[_FIRST:])
        p50, p99 = (times[int(len(times) * part)] * 1e3 for part in (0.5, 0.99))
        one = f"p50 {p50:5.2f} ms, p99 {p99:5.2f} ms{_AIMS[nodes]}, first {first * 1e3:5.2f} ms"
        print(f"  {nodes:5} names: {verb:10} {one}; {_AT_ONCE} at once: {rates[verb]:5.0f}/s{_RATES[nodes]}")


def rebuild() -> None:
    """Print how long it takes to know a cluster again."""
    (_, first), rng = front(_NODES), random.Random(2)
    nodes = [NODES.read(node(number)) for number in range(_NODES)]
    cluster, pods = Cluster(Rules(), time.monotonic), []
    names = list(first.allocator.fleet.row_of)
    held = first.allocator.fleet.ledger
    for number in range(_PODS):
        body = pod(f"p{number}", "1", spec={"nodeName": rng.choice(names)})
        body["spec"]["containers"][0]["resources"] = {}
        pods.append(body)
    for uid, allocation in held.items():
        assert isinstance(allocation, Allocation)
        at = {"nodeName": allocation.node}
        pods.append(pod(uid, str(len(allocation.gpus)), annotations=bind_annotations(allocation), spec=at))
    raw = [msgspec.json.encode(body) for body in pods[-_PODS:]]
    context = context_of(cluster)
    began = time.perf_counter()
    mirror = Mirror(context)
    for each in nodes:
        context.followed.nodes._put(each)  # noqa: SLF001 - as if it had been listed
    for line in raw:
        context.followed.pods._put(PODS.read(line))  # noqa: SLF001 - as if it had been listed
    mirror.recover()
    seconds, holding = time.perf_counter() - began, len(cluster.allocator.fleet.ledger)
    print(f"  restart: {_NODES} nodes, {len(raw)} pods, {holding} of them with cards: {seconds:.2f} s")


def main() -> None:
    """Print the results."""
    print(f"extender: {_CARDS} cards a node, half of them held; {_QUESTIONS} pods placed one after the other")
    for nodes in _SIZES:
        measure(nodes)
    rebuild()
    bind.main()
