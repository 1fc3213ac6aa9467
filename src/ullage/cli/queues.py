"""`ullage queues`: the share tree, and its changes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from ullage.cli.listing import Listing
from ullage.cli.output import Column, add_output, print_row
from ullage.cli.request import as_typed
from ullage.cli.size import show_size
from ullage.client.local import reach
from ullage.model.error import InvalidRequest
from ullage.model.queue import ROOT
from ullage.model.resources import show_milli
from ullage.wire.catalog import PutQueueBody, QueueBody

_BAR = 10
"""Characters of the bar of a whole share."""

_NONE = "none"
"""The value of an option that removes a guarantee or a limit."""


def _bar(queue: QueueBody) -> str:
    filled = min(_BAR, round(queue.share * _BAR))
    return "█" * max(filled, 1 if queue.share else 0) + "·" * (_BAR - max(filled, 1 if queue.share else 0))


COLUMNS = (
    Column("NAME", lambda q: q.name),
    Column("PARENT", lambda q: q.parent, wide=True),
    Column("WEIGHT", lambda q: q.weight),
    Column("SHARE", lambda q: f"{q.share:.1%}", key=lambda q: q.share),
    Column("BAR", _bar, key=lambda q: q.share),
    Column("GUARANTEE", lambda q: q.guarantee),
    Column("LIMIT", lambda q: q.limit),
    Column("CPU", lambda q: show_milli(q.held.cpu_milli), key=lambda q: q.held.cpu_milli),
    Column("MEM", lambda q: show_size(q.held.memory_bytes), key=lambda q: q.held.memory_bytes),
    Column("GPU", lambda q: show_milli(q.held.gpu_milli), key=lambda q: q.held.gpu_milli),
    Column("SESSIONS", lambda q: q.sessions),
    Column("PENDING", lambda q: q.pending),
    Column("RUNNING", lambda q: q.running),
)


def tree(queues: Sequence[QueueBody]) -> tuple[list[QueueBody], list[str]]:
    """Return queues with each below its parent, and their names with the branches of the tree."""
    found = list(_below(ROOT, queues, ""))
    placed = {queue.name for queue, _ in found}
    found += [(queue, queue.name) for queue in queues if queue.name not in placed]  # filtered from their parents
    return [queue for queue, _ in found], [name for _, name in found]


def _below(parent: str, queues: Sequence[QueueBody], indent: str) -> Iterator[tuple[QueueBody, str]]:
    children = [queue for queue in queues if queue.parent == parent]
    last = next(reversed(children), None)
    for queue in children:
        is_last = queue is last
        branch, more = ("", "") if parent == ROOT else ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        yield queue, f"{indent}{branch}{queue.name}"
        yield from _below(queue.name, queues, f"{indent}{more}")


QUEUES = Listing(kind="queue", columns=COLUMNS, body=QueueBody, name=lambda queue: queue.name, tree=tree)
_OPTIONS = ("parent", "weight", "guarantee", "limit")


def configure_queues(parser: argparse.ArgumentParser) -> None:
    actions = QUEUES.configure_with_actions(
        parser, lambda _: reach(start=False).queues(), "ullage queues list --sort -share"
    )
    put = actions.add_parser(
        "set",
        help="create a queue, or change what is given of one",
        description="Create a queue, or change what is given of one. A queue of the settings file is as the file says "
        "again after the next start of the server.",
        epilog="example: ullage queues set research --weight 2 --guarantee gpu=2 --limit gpu=8,mem=1t",
    )
    put.add_argument("name", metavar="QUEUE")
    put.add_argument("--parent", metavar="QUEUE", help=f"the queue above it (default: {ROOT})")
    put.add_argument("--weight", type=int, metavar="N", help="its share among the queues with its parent (default: 1)")
    put.add_argument("--guarantee", metavar="LIST", help=f"what it gets first, such as gpu=2,mem=64g; {_NONE} removes")
    put.add_argument("--limit", metavar="LIST", help=f"the most it may hold, such as gpu=8,mem=1t; {_NONE} removes it")
    add_output(put, inner=True)
    put.set_defaults(act=_set)
    delete = actions.add_parser(
        "delete",
        help="delete a queue without queues below it and without open sessions",
        epilog="example: ullage queues delete research",
    )
    delete.add_argument("name", metavar="QUEUE")
    delete.set_defaults(act=_delete)


def _set(arguments: argparse.Namespace) -> int:
    given = {name: value for name in _OPTIONS if (value := getattr(arguments, name)) is not None}
    api = reach(start=False)
    before = next((queue for queue in api.queues() if queue.name == arguments.name), None)
    if before is not None and not given:
        options = ", ".join(f"--{name}" for name in _OPTIONS)
        raise InvalidRequest(f"queue {before.name} exists, and nothing of it is to be changed: give one of {options}")
    kept: dict[str, Any] = {} if before is None else {name: getattr(before, name) for name in _OPTIONS}
    wanted: dict[str, Any] = {name: None if value == _NONE else value for name, value in (kept | given).items()}
    named = {name: f"--{name}" for name in _OPTIONS} | {f"queues.{arguments.name}.parent": "--parent"}
    with as_typed(named):
        body = api.put_queue(arguments.name, PutQueueBody(**wanted))
    print_row(body, COLUMNS, arguments.output)
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    reach(start=False).delete_queue(arguments.name)
    print(f"queue {arguments.name} is deleted")
    return 0
