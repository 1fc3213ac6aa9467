"""`kubectl ullage`: what a cluster with `ullage kube` places, why pods wait, and where a pod would go.

kubectl runs the program `kubectl-ullage` for it. `why` reads the pod and its events; the other verbs ask the front for
what its live page shows.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ullage import __version__
from ullage.cli.bindings import CARDS as BOUND_CARDS
from ullage.cli.fleet import GPUS
from ullage.cli.loading import loading
from ullage.cli.main import Parser, parse_with, run
from ullage.cli.output import Column, add_output
from ullage.cli.plan import show_plan
from ullage.cli.queues import QUEUES as SERVER_QUEUES
from ullage.cli.refusal import Lists
from ullage.cli.request import REQUEST_OPTIONS, add_amounts, request_fields
from ullage.cli.times import show_age, show_time
from ullage.cli.top import gpu_table, node_table, show_top, table
from ullage.cli.typed_fields import as_typed
from ullage.cli.why import add_cluster, require_packages, why_pod
from ullage.model.counted import counted
from ullage.model.error import InvalidRequest, NotFound, Unavailable
from ullage.model.name import check_name
from ullage.wire.cluster_view import ClusterOverview, ClusterPlan, PodQueueBody, WaitingPodBody
from ullage.wire.compute_resources import ComputeDeviceBody
from ullage.wire.node import GpuBody

if TYPE_CHECKING:
    from ullage.bootstrap.front_client import FrontPlace

FRONT = "ULLAGE_FRONT"
"""The environment variable with the default of `--front`."""

AGAIN_S = 2.0
"""Seconds between two overviews of the live view."""

_ATTEMPTS = 5
"""Overviews in a row that may fail before the live view ends."""

_PROGRAM = "kubectl ullage"
_LISTS = Lists("kubectl ullage cards", "kubectl describe resourcequota")
_OF_SESSIONS = frozenset({"OWNER", "EXECUTORS"})
"""Columns of cards that say nothing of pods."""

_TITLES = {"SESSIONS": "PODS"}
"""Titles of columns of queues that have another one where pods wait in them."""

_QUEUE_COLUMNS = (
    *(column._replace(title=_TITLES.get(column.title, column.title)) for column in SERVER_QUEUES.columns),
    Column(
        "OLDEST",
        lambda queue: None if queue.oldest_at is None else show_age(queue.oldest_at),
        key=lambda queue: queue.oldest_at,
        moving=True,
    ),
    Column("ADMITTED", lambda queue: queue.admitted, wide=True),
)

CARDS = replace(
    GPUS, columns=tuple(column for column in GPUS.columns if column.title not in _OF_SESSIONS), users_of=None
)
QUEUES = replace(SERVER_QUEUES, columns=_QUEUE_COLUMNS, body=PodQueueBody)
BINDINGS = replace(BOUND_CARDS, users_of=None)


class _Verb(NamedTuple):
    """A verb: its line of help, an example, its own arguments, and what it does; a listing sets that itself."""

    help: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    act: Callable[[argparse.Namespace], int] | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line. Return its exit code."""
    given = sys.argv[1:] if argv is None else list(argv)

    def parse() -> argparse.Namespace:
        with loading():
            return parse_with(build_parser(), given, _PROGRAM)

    return run(parse)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = Parser(prog=_PROGRAM, description="Cards of a cluster with `ullage kube`, and the pods that want them.")
    parser.add_argument("--version", action="version", version=f"ullage {__version__}")
    verbs = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB", required=True)
    for name, verb in _VERBS.items():
        own = verbs.add_parser(name, help=verb.help, description=verb.help, epilog=f"example: {verb.example}")
        verb.configure(own)
        own.add_argument("-n", "--namespace", metavar="NAME", help="the namespace (default: that of the context)")
        own.add_argument(
            "--front",
            default=os.environ.get(FRONT, ""),
            metavar="NAMESPACE/SERVICE|URL",
            help=f"where Ullage answers (default: {FRONT}, else the Service that has the labels of the chart)",
        )
        add_cluster(own)
        if verb.act is not None:
            add_output(own)
            own.set_defaults(act=verb.act)
    return parser


# --- verbs ---


def _why(arguments: argparse.Namespace) -> int:
    namespace, slash, name = arguments.pod.removeprefix("pod/").rpartition("/")
    namespace = namespace if slash else _namespace(arguments)
    return why_pod(check_name("namespace", namespace), check_name("pod", name), arguments)


def _plan(arguments: argparse.Namespace) -> int:
    if (arguments.resreq is None) is (arguments.filename is None):
        raise InvalidRequest("give one of -r and -f", field="resreq")
    place = _place(arguments)
    from ullage.bootstrap.front_client import cluster_plan, read_pod  # noqa: PLC0415  # packages of clusters

    namespace = _namespace(arguments)
    if arguments.filename is not None:
        plan = ClusterPlan(pod=read_pod(arguments.filename), namespace=namespace)
    else:
        arguments.namespace = namespace
        plan = ClusterPlan(**request_fields(arguments))
    with as_typed(REQUEST_OPTIONS):
        found = cluster_plan(place, plan)
    return show_plan(found, arguments.output, _LISTS)


def _top(arguments: argparse.Namespace) -> int:
    place = _place(arguments)
    return show_top(_overview(place), lambda: _followed(place), _picture, arguments.output)


def _cards(arguments: argparse.Namespace) -> list[GpuBody]:
    overview = _overview(_place(arguments))
    node = arguments.node
    if node is not None and all(each.name != node for each in overview.nodes):
        raise NotFound(f"node {node} has no place in Ullage's books; `kubectl get nodes` lists the nodes", field="card")
    return [gpu for gpu in overview.gpus if node in (None, gpu.node)]


def _queues(arguments: argparse.Namespace) -> list[PodQueueBody]:
    return _overview(_place(arguments)).queues


def _bindings(arguments: argparse.Namespace) -> list[ComputeDeviceBody]:
    return _overview(_place(arguments)).bindings


def _configure_plan(parser: argparse.ArgumentParser) -> None:
    add_amounts(parser, "the request", required=False)
    parser.add_argument("-f", "--filename", metavar="FILE", help="a pod, or a workload with its template; -: stdin")


def _configure_why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="its name, or NAMESPACE/NAME")


def _configure_cards(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", nargs="?", metavar="NODE", help="only the cards of this node")
    CARDS.configure(parser, _cards)


def _configure_queues(parser: argparse.ArgumentParser) -> None:
    QUEUES.configure(parser, _queues)


def _configure_bindings(parser: argparse.ArgumentParser) -> None:
    BINDINGS.configure(parser, _bindings)


def _configure_nothing(_: argparse.ArgumentParser) -> None:
    """Add no arguments."""


_VERBS = {
    "why": _Verb(
        "why a pod waits",
        "kubectl ullage why train-0",
        _configure_why,
        _why,
    ),
    "plan": _Verb(
        "whether and where a pod or a request would fit now; exit code 1: it would not",
        "kubectl ullage plan -f pod.yaml",
        _configure_plan,
        _plan,
    ),
    "top": _Verb("a live view of nodes, cards and waiting pods", "kubectl ullage top", _configure_nothing, _top),
    "cards": _Verb(
        "cards and the pods on them",
        "kubectl ullage cards node-1 -o wide",
        _configure_cards,
    ),
    "queues": _Verb(
        "queues, their shares and waiting pods", "kubectl ullage queues --sort -pending", _configure_queues
    ),
    "bindings": _Verb("cards that are bound to applications", "kubectl ullage bindings -w", _configure_bindings),
}


# --- the front ---


def _place(arguments: argparse.Namespace) -> FrontPlace:
    require_packages()
    from ullage.bootstrap.front_client import FrontPlace  # noqa: PLC0415  # packages of clusters

    return FrontPlace(arguments.kubeconfig, arguments.context, arguments.front)


def _namespace(arguments: argparse.Namespace) -> str:
    if arguments.namespace is not None:
        return check_name("namespace", arguments.namespace)
    place = _place(arguments)
    from ullage.bootstrap.front_client import current_namespace  # noqa: PLC0415  # packages of clusters

    return current_namespace(place)


def _overview(place: FrontPlace) -> ClusterOverview:
    from ullage.bootstrap.front_client import cluster_overview  # noqa: PLC0415  # packages of clusters

    return cluster_overview(place)


def _followed(place: FrontPlace) -> Iterator[ClusterOverview]:
    """Yield overviews until several in a row have failed."""
    failed = 0
    while True:
        time.sleep(AGAIN_S)
        try:
            overview = _overview(place)
        except Unavailable:
            failed += 1
            if failed == _ATTEMPTS:
                raise
        else:
            failed = 0
            yield overview


# --- the live view ---


def _picture(overview: ClusterOverview) -> Any:
    from rich.console import Group  # noqa: PLC0415  # slow to import, and needed only here
    from rich.text import Text  # noqa: PLC0415  # slow to import

    front = overview.front
    head = f"ullage {front.version}   {show_time(overview.at)}   {front.identity}   q quits"
    state = front.unready and f"it decides nothing now: {front.unready}"
    pods = counted(overview.waiting_count, "waiting pod")
    return Group(
        Text(head, style="bold"),
        *([Text(state)] if state else []),
        node_table(overview.nodes, users="PODS"),
        gpu_table(overview.gpus),
        _queue_table(overview.queues, overview.at),
        Text(pods, style="bold"),
        _waiting_table(overview.waiting, overview.at),
    )


def _queue_table(queues: Sequence[PodQueueBody], at: float) -> Any:
    rows = [
        (
            queue.name,
            str(queue.weight),
            f"{queue.share:.1%}",
            str(queue.running),
            str(queue.pending),
            "-" if queue.oldest_at is None else show_age(queue.oldest_at, at),
        )
        for queue in queues
    ]
    return table(("QUEUE", "WEIGHT", "SHARE", "RUNNING", "PENDING", "OLDEST"), rows)


def _waiting_table(pods: Sequence[WaitingPodBody], at: float) -> Any:
    rows = [
        (
            f"{pod.namespace}/{pod.pod}",
            pod.queue or "-",
            str(pod.priority),
            show_age(pod.created_at, at) if pod.created_at else "-",
            pod.reason,
            pod.message,
        )
        for pod in pods
    ]
    return table(("POD", "QUEUE", "PRIORITY", "AGE", "REASON", "MESSAGE"), rows)


if __name__ == "__main__":
    sys.exit(main())
