"""`ullage show`: all fields of one object."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ullage.cli.output import DATA, add_output, cell_text, field_text, print_data, print_fields
from ullage.cli.target import find_task
from ullage.client.api import Api
from ullage.client.local import reach
from ullage.model.error import Forbidden
from ullage.model.nearest import Missing

if TYPE_CHECKING:
    from ullage.client.allocations import Allocations
    from ullage.wire.allocation import AllocationBody, QuotaBody
    from ullage.wire.catalog import QueueBody
    from ullage.wire.node import ExecutorBody, GpuBody, NodeBody
    from ullage.wire.session import SessionBody, TaskBody

T = TypeVar("T")

_SPELT = {"job": "session", "partition": "queue", "card": "gpu", "app": "application", "request": "allocation"}
"""Kinds by other names."""


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind", metavar="KIND", type=_kind, choices=list(_FIND), help=f"kind of the object: {', '.join(_FIND)}"
    )
    parser.add_argument("id", metavar="ID", help="its id or name; SESSION/N for a task, a uuid or NODE/N for a card")
    add_output(parser)
    parser.set_defaults(act=_show)


def _kind(text: str) -> str:
    """Return the kind of an object by its name here or elsewhere, such as `job`, also in the plural."""
    words = (text, text.removesuffix("s"))
    return next((_SPELT.get(word, word) for word in words if word in _SPELT or word in _FIND), text)


def _show(arguments: argparse.Namespace) -> int:
    body: Any = _FIND[arguments.kind](reach(start=False), arguments.id)
    if arguments.output in DATA:
        print_data(body, arguments.output)
    elif arguments.kind == "queue":
        from ullage.cli.queues import print_queue  # noqa: PLC0415  # other kinds need no amounts of requests

        print_queue(body, arguments.output)
    else:
        print_fields(list(_fields(body)))
    return 0


def _fields(body: msgspec.Struct) -> Iterator[tuple[str, str]]:
    """Yield the fields of a body as texts; those of a program each by itself."""
    from ullage.wire.details import ProgramBody  # noqa: PLC0415  # only those of sessions and tasks have one

    for name in body.__struct_fields__:
        value = getattr(body, name)
        if isinstance(value, ProgramBody):
            yield name, shlex.join(value.argv)
            yield f"{name}.working_directory", value.working_directory or "-"
            yield f"{name}.environment", ", ".join(value.environment) or "-"
            yield f"{name}.stdin_bytes", cell_text(value.stdin_bytes)
        elif name.endswith("_s") and isinstance(value, float):
            yield name, f"{value:g}"
        else:
            yield name, field_text(name, value)


def _session(api: Api, name: str) -> SessionBody:
    """Return a session, with its program and its limits for those who may see them."""
    try:
        return api.session_details(name)
    except Forbidden:
        return api.session(name)


def _task(api: Api, name: str) -> TaskBody:
    session, number = find_task(api, name)
    try:
        return api.task_details(session, number)
    except Forbidden:
        return api.task(session, number)


def _node(api: Api, name: str) -> NodeBody:
    return _only("node", name, {node.name: node for node in api.nodes()})


def _queue(api: Api, name: str) -> QueueBody:
    return _only("queue", name, {queue.name: queue for queue in api.queues()})


def _gpu(api: Api, name: str) -> GpuBody:
    gpus = api.gpus()
    return _only("gpu", name, {f"{gpu.node}/{gpu.index}": gpu for gpu in gpus} | {gpu.uuid: gpu for gpu in gpus})


def _allocation(api: Api, name: str) -> AllocationBody:
    return _allocations(api).get(name)


def _quota(api: Api, name: str) -> QuotaBody:
    return _allocations(api).quota(name)


def _allocations(api: Api) -> Allocations:
    from ullage.client.allocations import Allocations  # noqa: PLC0415  # sessions and nodes do not need it

    return Allocations(api.transport)


def _executor(api: Api, name: str) -> ExecutorBody:
    return _only("executor", name, {executor.id: executor for executor in api.executors()})


_FIND: dict[str, Callable[[Api, str], msgspec.Struct]] = {
    "session": _session,
    "task": _task,
    "queue": _queue,
    "node": _node,
    "gpu": _gpu,
    "application": Api.application,
    "executor": _executor,
    "allocation": _allocation,
    "quota": _quota,
}


def _only(kind: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise Missing(kind, name, known)
    return known[name]
