"""`ullage nodes`, `gpus`, `executors`, `cordon` and `uncordon`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cached_property

from msgspec.structs import replace

from ullage.cli.listing import Listing
from ullage.cli.output import Column
from ullage.cli.parts import show_compute, show_free, show_holders, show_owners, show_vram
from ullage.cli.places import PLACE
from ullage.cli.several import for_each
from ullage.cli.size import show_size
from ullage.cli.times import show_age
from ullage.client.api import Api
from ullage.client.local import reach
from ullage.model.executor import ExecutorState
from ullage.model.node_state import NodeState
from ullage.model.resources import show_milli
from ullage.model.session_state import SessionState
from ullage.wire.node import ExecutorBody, GpuBody, NodeBody
from ullage.wire.session import SessionBody

_CORDONED = "cordoned"


def _vram_held(card: GpuBody) -> int | None:
    if card.vram_bytes is None or card.free.vram_bytes is None:
        return None
    return card.vram_bytes - card.free.vram_bytes


_NODES = (
    Column("NAME", lambda n: n.name),
    Column("STATE", lambda n: f"{n.state},cordoned" if n.cordoned else n.state),
    Column("CPU", lambda n: _held(n, "cpu_milli", show_milli), key=lambda n: n.held.cpu_milli),
    Column("MEM", lambda n: _held(n, "memory_bytes", show_size), key=lambda n: n.held.memory_bytes),
    Column("GPU", lambda n: _held(n, "gpu_milli", show_milli), key=lambda n: n.held.gpu_milli),
    Column("EXECUTORS", lambda n: f"{n.executors}/{n.max_executors}", key=lambda n: n.executors),
    Column("GPUS FROM", lambda n: n.gpu_source, wide=True),
    Column("ARCH", lambda n: n.arch, wide=True),
    Column("OS", lambda n: n.os, wide=True),
    Column("LABELS", lambda n: ",".join(f"{key}={value}" for key, value in n.labels.items()), wide=True),
    Column("NOTE", lambda n: n.note),
)

CARDS = (
    Column("NODE", lambda g: g.node),
    Column("GPU", lambda g: g.index),
    Column("MODEL", lambda g: g.model),
    Column("FREE", show_free, key=lambda g: g.free.fraction),
    Column("VRAM", show_vram, key=_vram_held),
    Column("TFLOPS", show_compute, key=lambda g: g.compute_gflops),
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

_EXECUTORS = (
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
    Column("AGE", lambda e: show_age(e.since), key=lambda e: -e.since, moving=True),
)

NODES = Listing(
    kind="node",
    columns=_NODES,
    body=NodeBody,
    name=lambda node: node.name,
    known_states=(*NodeState, _CORDONED),
    states_of=lambda node: (node.state, _CORDONED) if node.cordoned else (node.state,),
)
GPUS = Listing(
    kind="card",
    columns=CARDS,
    body=GpuBody,
    name=lambda card: f"{card.node}/{card.index}",
    known_states=("free", "partial", "full", "unhealthy"),
    states_of=lambda card: (_use(card),) if card.healthy else (_use(card), "unhealthy"),
    users_of=lambda card: [holder.owner for holder in card.holders if holder.owner],
)
EXECUTORS = Listing(
    kind="executor",
    columns=_EXECUTORS,
    body=ExecutorBody,
    name=lambda executor: executor.id,
    known_states=tuple(ExecutorState),
    states_of=lambda executor: (executor.state,),
)


def configure_nodes(parser: argparse.ArgumentParser) -> None:
    NODES.configure(parser, lambda _: reach(start=False).nodes())


def configure_gpus(parser: argparse.ArgumentParser) -> None:
    GPUS.configure(parser, lambda _: reach(start=False).gpus())


def configure_executors(parser: argparse.ArgumentParser) -> None:
    sessions = _Sessions()
    listing = replace(EXECUTORS, users_of=sessions.users_of, queues_of=sessions.queues_of)
    listing.configure(parser, sessions.executors)


class _Sessions:
    """Executors and their sessions, which are fetched when the first executor is asked about."""

    def executors(self, _: argparse.Namespace) -> list[ExecutorBody]:
        self.__dict__.pop("_known", None)  # those of the time before
        return reach(start=False).executors()

    def users_of(self, executor: ExecutorBody) -> list[str]:
        return [session.owner for session in self._of(executor)]

    def queues_of(self, executor: ExecutorBody) -> list[str]:
        return [session.queue for session in self._of(executor)]

    def _of(self, executor: ExecutorBody) -> list[SessionBody]:
        return [self._known[executor.session]] if executor.session in self._known else []

    @cached_property
    def _known(self) -> dict[str | None, SessionBody]:
        return {session.id: session for session in reach(start=False).sessions(SessionState.OPEN)}


def configure_cordon(parser: argparse.ArgumentParser) -> None:
    _per_node(parser, Api.cordon)


def configure_uncordon(parser: argparse.ArgumentParser) -> None:
    _per_node(parser, Api.uncordon)


def _use(card: GpuBody) -> str:
    if not card.holders:
        return "free"
    return "partial" if card.free.fraction else "full"


def _per_node(parser: argparse.ArgumentParser, change: Callable[[Api, str], None]) -> None:
    def act(arguments: argparse.Namespace) -> int:
        api = reach(start=False)
        return for_each(arguments.nodes, lambda node: change(api, node))[0]

    parser.add_argument("nodes", nargs="+", metavar="NODE")
    parser.set_defaults(act=act)


def _held(node: NodeBody, dimension: str, show: Callable[[int], str]) -> str:
    return f"{show(getattr(node.held, dimension))}/{show(getattr(node.allocatable, dimension))}"
