"""`ullage nodes`, `gpus`, `executors`, `queues`, `cordon` and `uncordon`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from ullage.cli.output import Column, add_output, print_list
from ullage.cli.parts import show_compute, show_free, show_holders, show_owners, show_vram
from ullage.cli.places import PLACE
from ullage.cli.several import for_each
from ullage.cli.size import show_size
from ullage.cli.times import show_age
from ullage.client.api import Api
from ullage.client.local import reach
from ullage.model.resources import show_milli
from ullage.wire.node import NodeBody

NODES = (
    Column("NAME", lambda n: n.name),
    Column("STATE", lambda n: f"{n.state},cordoned" if n.cordoned else n.state),
    Column("CPU", lambda n: _held(n, "cpu_milli", show_milli)),
    Column("MEM", lambda n: _held(n, "memory_bytes", show_size)),
    Column("GPU", lambda n: _held(n, "gpu_milli", show_milli)),
    Column("EXECUTORS", lambda n: f"{n.executors}/{n.max_executors}"),
    Column("GPUS FROM", lambda n: n.gpu_source, wide=True),
    Column("ARCH", lambda n: n.arch, wide=True),
    Column("OS", lambda n: n.os, wide=True),
    Column("LABELS", lambda n: ",".join(f"{key}={value}" for key, value in n.labels.items()), wide=True),
    Column("NOTE", lambda n: n.note),
)

GPUS = (
    Column("NODE", lambda g: g.node),
    Column("GPU", lambda g: g.index),
    Column("MODEL", lambda g: g.model),
    Column("FREE", show_free),
    Column("VRAM", show_vram),
    Column("TFLOPS", show_compute),
    Column("ZONE", lambda g: ",".join(map(str, g.zones)) or None),
    Column("HEALTHY", lambda g: g.healthy),
    Column("HELD BY", show_holders),
    Column("OWNER", show_owners),
    Column("EXECUTORS", lambda g: ", ".join(holder.executor for holder in g.holders), wide=True),
    Column("POOL", lambda g: g.pool, wide=True),
    Column("ISOLATION", lambda g: None if g.isolations is None else ",".join(g.isolations), wide=True),
    Column("BUS", lambda g: g.bus_id, wide=True),
    Column("UUID", lambda g: g.uuid, wide=True),
)

EXECUTORS = (
    Column("ID", lambda e: e.id),
    Column("NODE", lambda e: e.node),
    Column("STATE", lambda e: e.state),
    Column("SESSION", lambda e: e.session),
    Column("REQUEST", lambda e: e.resreq),
    Column("GPUS", lambda e: len(e.gpus)),
    Column("TASKS", lambda e: e.tasks_running),
    Column("PID", lambda e: e.pid),
    Column("GANG", lambda e: e.gang, wide=True),
    Column("UUIDS", lambda e: ",".join(e.gpus), wide=True),
    *PLACE,
    Column("NOTE", lambda e: e.note, wide=True),
    Column("AGE", lambda e: show_age(e.since)),
)

QUEUES = (
    Column("NAME", lambda q: q.name),
    Column("PARENT", lambda q: q.parent),
    Column("WEIGHT", lambda q: q.weight),
    Column("SHARE", lambda q: f"{q.share:.1%}"),
    Column("GUARANTEE", lambda q: q.guarantee),
    Column("LIMIT", lambda q: q.limit),
    Column("CPU", lambda q: show_milli(q.held.cpu_milli)),
    Column("MEM", lambda q: show_size(q.held.memory_bytes)),
    Column("GPU", lambda q: show_milli(q.held.gpu_milli)),
    Column("SESSIONS", lambda q: q.sessions),
    Column("PENDING", lambda q: q.pending),
    Column("RUNNING", lambda q: q.running),
)


def configure_nodes(parser: argparse.ArgumentParser) -> None:
    _listing(parser, Api.nodes, NODES)


def configure_gpus(parser: argparse.ArgumentParser) -> None:
    _listing(parser, Api.gpus, GPUS)


def configure_executors(parser: argparse.ArgumentParser) -> None:
    _listing(parser, Api.executors, EXECUTORS)


def configure_queues(parser: argparse.ArgumentParser) -> None:
    _listing(parser, Api.queues, QUEUES)


def configure_cordon(parser: argparse.ArgumentParser) -> None:
    _per_node(parser, Api.cordon)


def configure_uncordon(parser: argparse.ArgumentParser) -> None:
    _per_node(parser, Api.uncordon)


def _listing(parser: argparse.ArgumentParser, fetch: Callable[[Api], Sequence[Any]], columns: Sequence[Column]) -> None:
    def act(arguments: argparse.Namespace) -> int:
        print_list(fetch(reach(start=False)), columns, arguments.output)
        return 0

    add_output(parser)
    parser.set_defaults(act=act)


def _per_node(parser: argparse.ArgumentParser, change: Callable[[Api, str], None]) -> None:
    def act(arguments: argparse.Namespace) -> int:
        api = reach(start=False)
        return for_each(arguments.nodes, lambda node: change(api, node))[0]

    parser.add_argument("nodes", nargs="+", metavar="NODE")
    parser.set_defaults(act=act)


def _held(node: NodeBody, dimension: str, show: Callable[[int], str]) -> str:
    return f"{show(getattr(node.held, dimension))}/{show(getattr(node.allocatable, dimension))}"
