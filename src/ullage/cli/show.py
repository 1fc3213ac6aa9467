"""`ullage show`: all fields of one object."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from ullage.cli.output import add_output, print_one
from ullage.cli.target import find_task
from ullage.client.allocations import Allocations
from ullage.client.api import Api
from ullage.client.local import reach
from ullage.model.nearest import Missing
from ullage.wire.allocation import AllocationBody, QuotaBody
from ullage.wire.node import ExecutorBody, GpuBody, NodeBody
from ullage.wire.session import TaskBody

T = TypeVar("T")


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", choices=list(_FIND), help=f"kind of the object: {', '.join(_FIND)}")
    parser.add_argument("id", metavar="ID", help="its id or name; SESSION/N for a task, a uuid or NODE/N for a card")
    add_output(parser)
    parser.set_defaults(act=_show)


def _show(arguments: argparse.Namespace) -> int:
    print_one(_FIND[arguments.kind](reach(start=False), arguments.id), arguments.output)
    return 0


def _task(api: Api, name: str) -> TaskBody:
    return api.task(*find_task(api, name))


def _node(api: Api, name: str) -> NodeBody:
    return _only("node", name, {node.name: node for node in api.nodes()})


def _gpu(api: Api, name: str) -> GpuBody:
    gpus = api.gpus()
    return _only("gpu", name, {f"{gpu.node}/{gpu.index}": gpu for gpu in gpus} | {gpu.uuid: gpu for gpu in gpus})


def _allocation(api: Api, name: str) -> AllocationBody:
    return Allocations(api.transport).get(name)


def _quota(api: Api, name: str) -> QuotaBody:
    return Allocations(api.transport).quota(name)


def _executor(api: Api, name: str) -> ExecutorBody:
    return _only("executor", name, {executor.id: executor for executor in api.executors()})


_FIND: dict[str, Callable[[Api, str], msgspec.Struct]] = {
    "session": Api.session,
    "task": _task,
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
