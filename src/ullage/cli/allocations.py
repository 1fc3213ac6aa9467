"""Requests for cards: `alloc`, `allocations`, `free`, `quotas`."""

from __future__ import annotations

import argparse

from ullage.cli.exits import TRY_AGAIN
from ullage.cli.moment import show_time
from ullage.cli.output import Column, add_output, print_list
from ullage.cli.preemption import add_standing, print_leaving
from ullage.client.allocations import Allocations
from ullage.client.local import reach
from ullage.model.error import NotFound
from ullage.model.request import ResourceRequirement
from ullage.wire.allocation import CreateAllocation, FreedBody
from ullage.wire.preemption import NominationBody

ALLOCATIONS = (
    Column("UID", lambda a: a.uid),
    Column("STATE", lambda a: a.state),
    Column("NODE", lambda a: a.node),
    Column("CARDS", lambda a: len(a.gpus)),
    Column("REQUEST", lambda a: a.resreq),
    Column("NAMESPACE", lambda a: a.namespace),
    Column("POD", lambda a: a.pod),
    Column("PRIORITY", lambda a: a.priority, wide=True),
    Column("QOS", lambda a: a.qos, wide=True),
    Column("BOUND", lambda a: show_time(a.bound_at), wide=True),
    Column("UUIDS", lambda a: ",".join(gpu.uuid for gpu in a.gpus), wide=True),
)
QUOTAS = (
    Column("NAMESPACE", lambda q: q.namespace),
    Column("READY", lambda q: q.ready),
    Column("USED", lambda q: _counts(q.used, q.caps)),
    Column("MESSAGE", lambda q: q.message),
)


def configure_alloc(parser: argparse.ArgumentParser) -> None:
    """`ullage alloc`."""
    parser.add_argument("uid", metavar="UID", help="the identity of the request; a repeat is answered, not repeated")
    parser.add_argument("-r", "--resreq", metavar="LIST", required=True, help="such as gpu=2,vram=20g,tflops=60")
    parser.add_argument("--namespace", default="default", help="whose quota counts (default: default)")
    parser.add_argument("--gpu", action="append", metavar="UUID", help="a card it must get (again for more)")
    parser.add_argument("--strategy", metavar="NAME", help="instead of the pool's, such as compact-first")
    add_standing(parser)
    parser.add_argument("--preempt", action="store_true", help="evict requests of lower priority if it does not fit")
    add_output(parser)
    parser.epilog = f"{parser.epilog}. Exit code 75: others are leaving for it; ask again when they are freed"
    parser.set_defaults(act=_alloc)


def configure_allocations(parser: argparse.ArgumentParser) -> None:
    """`ullage allocations`."""
    add_output(parser)
    parser.set_defaults(act=_list)


def configure_free(parser: argparse.ArgumentParser) -> None:
    """`ullage free`."""
    parser.add_argument("uid", metavar="UID", nargs="+")
    parser.set_defaults(act=_free)


def configure_quotas(parser: argparse.ArgumentParser) -> None:
    """`ullage quotas`."""
    add_output(parser)
    parser.set_defaults(act=_quotas)


def _api() -> Allocations:
    return Allocations(reach(start=False).transport)


def _alloc(arguments: argparse.Namespace) -> int:
    spec = CreateAllocation(
        uid=arguments.uid,
        resreq=str(ResourceRequirement.from_string(arguments.resreq)),
        namespace=arguments.namespace,
        gpus=arguments.gpu,
        strategy=arguments.strategy,
        qos=arguments.qos,
        priority=arguments.priority,
    )
    answer = _api().preempt(spec) if arguments.preempt else _api().create(spec)
    if isinstance(answer, NominationBody):
        print_leaving(answer, arguments.output)
        return TRY_AGAIN
    print_list([answer], ALLOCATIONS, arguments.output)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    print_list(_api().all(), ALLOCATIONS, arguments.output)
    return 0


def _free(arguments: argparse.Namespace) -> int:
    api = _api()
    for uid in arguments.uid:
        freed = api.free(uid)
        if freed.unknown:
            raise NotFound(f"allocation {uid} does not exist; `ullage allocations` lists them", field="uid")
        print(f"{uid}: {_freed(freed)}")
    return 0


def _freed(freed: FreedBody) -> str:
    if freed.already_gone:
        return "was free already"
    return f"{', '.join(freed.gpus)} free" if freed.gpus else "no room is kept for it any more"


def _quotas(arguments: argparse.Namespace) -> int:
    print_list(_api().quotas(), QUOTAS, arguments.output)
    return 0


def _counts(used: dict[str, int], caps: dict[str, int | None]) -> str:
    return ", ".join(f"{name} {used[name]}/{cap}" for name, cap in caps.items() if cap is not None)
