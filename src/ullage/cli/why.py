"""`ullage why`: why a session or a pod does not run, with numbers and suggestions."""

from __future__ import annotations

import argparse
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ullage.cli.output import DATA, Column, add_output, print_data, print_list
from ullage.cli.target import parse_target
from ullage.cli.times import show_time
from ullage.client.local import reach
from ullage.model.counted import counted
from ullage.model.error import Unavailable
from ullage.model.name import check_name
from ullage.model.task import TaskState
from ullage.wire.explanation import Explanation
from ullage.wire.history import StartBody
from ullage.wire.session import TaskBody

if TYPE_CHECKING:
    from ullage.bootstrap.pod_why import PodWhyBody

_REJECTIONS = (
    Column("NODE", lambda r: r.node),
    Column("GPU", lambda r: r.gpu, wide=True),
    Column("REASON", lambda r: r.code),
    Column("CURE", lambda r: r.cure),
    Column("NEEDED", lambda r: r.needed, wide=True),
    Column("HAD", lambda r: r.had, wide=True),
    Column("TEXT", lambda r: r.text),
)

_EVENTS = (
    Column("AT", lambda e: e.at),
    Column("FROM", lambda e: e.component),
    Column("REASON", lambda e: e.reason),
    Column("MESSAGE", lambda e: e.message),
)

_PACKAGES = ("aiohttp", "httpx2", "lightkube")

_HOLDERS = (
    Column("HELD BY", lambda h: h.session),
    Column("OWNER", lambda h: h.owner),
    Column("EXECUTORS", lambda h: h.executors),
    Column("DESERVED", lambda h: h.deserved),
    Column("AMOUNT", lambda h: h.amount),
)


def configure_why(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "session",
        metavar="SESSION|SESSION/N|NAMESPACE/POD",
        help="a session of the server, a task as SESSION/N or SESSION:INDEX, or a pod of a cluster",
    )
    add("-n", "--namespace", metavar="NAME", help="the pod of that name in this namespace")
    add_cluster(parser)
    add_output(parser)
    parser.set_defaults(act=_why)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a cluster."""
    add = parser.add_argument
    add("--kubeconfig", type=Path, metavar="FILE", help="how to reach the cluster (default: as kubectl)")
    add("--context", metavar="NAME", help="the context of the kubeconfig (default: the current one)")


def _why(arguments: argparse.Namespace) -> int:
    if (pod := _pod(arguments)) is not None:
        return why_pod(*pod, arguments)
    try:
        api = reach(start=False)
    except Unavailable as error:
        hint = f"of a pod in a cluster: ullage why NAMESPACE/{arguments.session}"
        raise Unavailable(f"{error.message}; {hint}", code=error.code) from None
    target = parse_target(arguments.session)
    number = target.number(api)
    explanation = api.why(target.session)
    if number is not None:
        return _why_task(str(target), TaskWhy(task=api.task(target.session, number), session=explanation), arguments)
    if arguments.output in DATA:
        print_data(explanation, arguments.output)
    else:
        waits = explanation.want and not explanation.held
        _print(explanation, arguments.output)
        if waits:
            sys.stdout.flush()  # the estimate takes some seconds where the queue is long
            _print_start(api.start(target.session))
    return 0


class TaskWhy(msgspec.Struct, frozen=True):
    """A task, and why its session has the executors that it has."""

    task: TaskBody
    session: Explanation


def _why_task(name: str, why: TaskWhy, arguments: argparse.Namespace) -> int:
    if arguments.output in DATA:
        print_data(why, arguments.output)
        return 0
    task = why.task
    if task.state == TaskState.PENDING:
        print(f"{name}: pending since {show_time(task.created_at)}{_runs_before(task)}; its session:")
        _print(why.session, arguments.output)
    elif task.state == TaskState.RUNNING:
        print(f"{name}: running in {task.executor} since {show_time(task.started_at)}{_runs_before(task)}")
    else:
        print(f"{name}: {_end_of(task)}")
        if task.state != TaskState.SUCCEED:
            print(f"\n`ullage logs {name}` shows its output; `ullage requeue` runs it again once its session is closed")
    return 0


def _runs_before(task: TaskBody) -> str:
    """Return how often a task ran before, if it did."""
    runs = [f"its executor was lost {counted(task.losses, 'time')}"] if task.losses else []
    runs += [f"it failed {counted(task.errors, 'time')} before"] if task.errors else []
    return "".join(f"; {each}" for each in runs)


def _end_of(task: TaskBody) -> str:
    """Return how a task ended."""
    code = f" with code {task.code}" if task.code else ""
    message = task.message.partition("\n")[0]
    return f"{task.state}{code}, {show_time(task.ended_at)}{_runs_before(task)}{f': {message}' if message else ''}"


def _pod(arguments: argparse.Namespace) -> tuple[str, str] | None:
    """Return the namespace and name of the pod; None if the argument is a session, or a task such as `ID/3`."""
    namespace, slash, name = arguments.session.partition("/")
    of_cluster = arguments.namespace or arguments.kubeconfig or arguments.context
    if slash and (of_cluster or not name.isdecimal()):
        return check_name("namespace", namespace), check_name("pod", name)
    if of_cluster:
        return arguments.namespace or "default", arguments.session
    return None


def why_pod(namespace: str, name: str, arguments: argparse.Namespace) -> int:
    """Print why a pod waits, or its node. The arguments are `kubeconfig`, `context` and `output`."""
    require_packages()
    from ullage.bootstrap.pod_why import pod_why  # noqa: PLC0415  # packages that sessions do not need

    found = pod_why(namespace, name, arguments.kubeconfig, arguments.context)
    if arguments.output in DATA:
        print_data(found, arguments.output)
    else:
        _print_pod(found, arguments.output)
    return 0


def require_packages() -> None:
    """Check that what reaches a cluster is installed.

    Raises:
        Unavailable: it is not (`not-installed`).

    """
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing:
        raise Unavailable(f"{', '.join(missing)} not installed: pip install 'ullage[k8s]'", code="not-installed")


def _print_pod(found: PodWhyBody, output: str) -> None:
    print(f"{found.pod}: {found.summary}")
    if found.events:
        print()
        print_list(found.events, _EVENTS, output)


def _print_start(start: StartBody) -> None:
    from ullage.cli.starts import start_text  # noqa: PLC0415  # needed only here

    print(f"starts: {start_text(start, time.time())}")


def _print(explanation: Explanation, output: str) -> None:
    print(f"{explanation.session}: {explanation.code}: {explanation.summary}")
    place = "" if explanation.position is None else f"; position {explanation.position}"
    print(
        f"executors: wants {explanation.want}, holds {explanation.held}, deserves {explanation.deserved}; "
        f"share {explanation.share:.1%}{place}"
    )
    for text in explanation.past_use:
        print(f"past use: {text}")
    if explanation.evicted is not None:
        print(f"evicted {show_time(explanation.evicted.at)}: its executor {explanation.evicted.message}")
    if (failed := explanation.first_failure) is not None:
        name = f"{failed.session}/{failed.task}" if failed.index is None else f"{failed.session}:{failed.index}"
        print(f"the first failure: {name} {_end_of(failed)}")
    if explanation.rejections:
        print()
        print_list(explanation.rejections, _REJECTIONS, output)
    if explanation.holders:
        print()
        print_list(explanation.holders, _HOLDERS, output)
    for warning in explanation.warnings:
        print(f"\n{warning}")
    if explanation.suggestions:
        print("\nwhat would help:")
        for suggestion in explanation.suggestions:
            print(f"  {suggestion}")
