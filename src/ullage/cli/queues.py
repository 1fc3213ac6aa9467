"""`ullage queues`: the share tree, and its changes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from ullage.cli.exits import caution
from ullage.cli.listing import Listing
from ullage.cli.output import Column, add_output, cell_text, print_fields, print_row
from ullage.cli.size import show_size
from ullage.cli.times import show_span
from ullage.cli.typed_fields import as_typed
from ullage.client.local import reach
from ullage.model.counted import counted
from ullage.model.duration import parse_duration
from ullage.model.error import InvalidRequest
from ullage.model.queue_name import ROOT
from ullage.model.resources import show_milli
from ullage.model.use_text import use_text
from ullage.wire.catalog import PutQueueBody, QueueBody

_BAR = 10
"""Characters of the bar of a whole share."""

_NONE = "none"
"""The value of an option that removes a guarantee or a limit."""


def _bar(queue: QueueBody) -> str:
    filled = min(_BAR, round(queue.share * _BAR))
    return "█" * max(filled, 1 if queue.share else 0) + "·" * (_BAR - max(filled, 1 if queue.share else 0))


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else show_span(seconds)


def _factor(queue: QueueBody) -> str | None:
    return None if queue.past_use is None else f"{queue.past_use.factor:.2g}"


def _used(queue: QueueBody) -> str | None:
    return None if queue.past_use is None else use_text(queue.past_use.card_s, queue.past_use.core_s)


COLUMNS = (
    Column("NAME", lambda q: q.name),
    Column("PARENT", lambda q: q.parent, wide=True),
    Column("WEIGHT", lambda q: q.weight, spared=1),
    Column("FACTOR", _factor, key=lambda q: q.past_use and q.past_use.factor, wide=True),
    Column("USED", _used, key=lambda q: q.past_use and q.past_use.card_s, wide=True),
    Column("SHARE", lambda q: f"{q.share:.1%}", key=lambda q: q.share),
    Column("BAR", _bar, key=lambda q: q.share, spared=5),
    Column("GUARANTEE", lambda q: q.guarantee, spared=2),
    Column("LIMIT", lambda q: q.limit),
    Column("DEFAULT", lambda q: q.default_resreq, wide=True),
    Column("MAX", lambda q: q.max_resreq, wide=True),
    Column("DEFAULT-TIME", lambda q: _span(q.default_time_s), key=lambda q: q.default_time_s or 0.0, wide=True),
    Column("MAX-TIME", lambda q: _span(q.max_time_s), key=lambda q: q.max_time_s or 0.0, wide=True),
    Column("CPU", lambda q: show_milli(q.held.cpu_milli), key=lambda q: q.held.cpu_milli),
    Column("MEM", lambda q: show_size(q.held.memory_bytes), key=lambda q: q.held.memory_bytes),
    Column("GPU", lambda q: show_milli(q.held.gpu_milli), key=lambda q: q.held.gpu_milli),
    Column("SESSIONS", lambda q: q.sessions, spared=3),
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
_TIMES = ("default_time_s", "max_time_s")
_OPTIONS = {name: f"--{name}" for name in ("parent", "weight", "guarantee", "limit")} | {
    "default_resreq": "--default-resreq",
    "max_resreq": "--max-resreq",
    "default_time_s": "--default-time",
    "max_time_s": "--max-time",
}
"""The fields of a queue that `set` changes, and their options."""


def configure_queues(parser: argparse.ArgumentParser) -> None:
    actions = QUEUES.configure_with_actions(parser, _queues, "ullage queues list --sort -share")
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
    put.add_argument("--default-resreq", metavar="LIST", help=f"the request of a session without one; {_NONE} removes")
    put.add_argument(
        "--max-resreq", metavar="LIST", help=f"the largest request of an executor, such as gpu=2; {_NONE} removes it"
    )
    for word, which in (("default", "of a task without one"), ("max", "that a task may have")):
        put.add_argument(
            f"--{word}-time", dest=f"{word}_time_s", metavar="TIME", help=f"time limit {which}; {_NONE} removes it"
        )
    add_output(put, inner=True)
    put.set_defaults(act=_set)
    delete = actions.add_parser(
        "delete",
        help="delete a queue without queues below it and without open sessions",
        epilog="example: ullage queues delete research",
    )
    delete.add_argument("name", metavar="QUEUE")
    delete.set_defaults(act=_delete)


def _queues(arguments: argparse.Namespace) -> list[QueueBody]:
    found = reach(start=False).queues()
    if not arguments.watch:
        caution(dict.fromkeys(text for queue in found for text in queue.warnings))
    return found


def print_queue(queue: QueueBody, output: str) -> None:
    """Print what a queue is and holds, with units; in other formats as its listing does."""
    caution(queue.warnings)
    if output != "table":
        print_row(queue, COLUMNS, output)
        return
    held = (show_milli(queue.held.cpu_milli), show_size(queue.held.memory_bytes), show_milli(queue.held.gpu_milli))
    fields = {
        "queue": queue.name,
        "parent": queue.parent,
        "weight": queue.weight,
        "guarantee": queue.guarantee,
        "limit": queue.limit,
        "default request": queue.default_resreq,
        "largest request": queue.max_resreq,
        "default time": _span(queue.default_time_s),
        "longest time": _span(queue.max_time_s),
        "past use": _past_use(queue),
        "share": f"{queue.share:.1%}",
        "holds": ",".join(f"{name}={amount}" for name, amount in zip(("cpu", "mem", "gpu"), held, strict=True)),
        "sessions": f"{queue.sessions} open, {counted(queue.pending, 'task')} pending, {queue.running} running",
    }
    print_fields([(name, cell_text(value)) for name, value in fields.items()])


def _past_use(queue: QueueBody) -> str | None:
    """Return what the queue used in the past, and what its weight counts as by that; None without a half-life."""
    past = queue.past_use
    if past is None:
        return None
    used = use_text(past.card_s, past.core_s)
    if past.part is None or past.due is None:
        return used
    parts = f"{past.part:.0%} where its weight gives {past.due:.0%}"
    return f"{used}, {parts}; its weight counts as {queue.weight * past.factor:.2g}"


def _set(arguments: argparse.Namespace) -> int:
    given = {name: value for name in _OPTIONS if (value := getattr(arguments, name)) is not None}
    api = reach(start=False)
    before = next((queue for queue in api.queues() if queue.name == arguments.name), None)
    if before is not None and not given:
        options = ", ".join(_OPTIONS.values())
        raise InvalidRequest(f"queue {before.name} exists, and nothing of it is to be changed: give one of {options}")
    kept: dict[str, Any] = {} if before is None else {name: getattr(before, name) for name in _OPTIONS}
    times = {name: parse_duration(given[name], _OPTIONS[name]) for name in _TIMES if given.get(name, _NONE) != _NONE}
    values = (kept | given | times).items()
    wanted: dict[str, Any] = {name: None if value == _NONE else value for name, value in values}
    named = _OPTIONS | {f"queues.{arguments.name}.parent": "--parent"}
    with as_typed(named):
        body = api.put_queue(arguments.name, PutQueueBody(**wanted))
    print_queue(body, arguments.output)
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    reach(start=False).delete_queue(arguments.name)
    print(f"queue {arguments.name} is deleted")
    return 0
