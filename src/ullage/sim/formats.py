"""Files of traces; docs/reference/traces.md describes the columns.

The names of the columns determine the format of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.nearest import nearest
from ullage.model.node import Node
from ullage.model.quantity import parse_decimal
from ullage.model.queue import MAX_WEIGHT, ROOT, Queue, check_weight
from ullage.model.request import MAX_CARDS
from ullage.sim import openb, philly, spot
from ullage.sim.rows import CODE, Row, columns_of, invalid_trace, read_rows
from ullage.sim.trace import UNLIMITED, TraceTask

T = TypeVar("T")
Readers = Mapping[tuple[str, ...], Callable[[Row], T]]

NODE_COLUMNS = ("name", "cpu", "memory", "gpus")
TASK_COLUMNS = ("request",)
QUEUE_COLUMNS = ("queue",)

_OPTIONAL = {
    NODE_COLUMNS: ("gpu_model", "gpu_memory"),
    TASK_COLUMNS: ("name", "arrival_s", "duration_s", "queue", "priority", "count"),
    QUEUE_COLUMNS: ("parent", "weight", "priority"),
}
"""The other columns that are read, in the formats of Ullage."""

_LIKE = 0.8
"""The least similarity of two names of columns of which one may be a misspelling of the other."""

_MOST_CORES_PPM = 10**15
_PPM_PER_MILLI = 1000
_MAX_UNITS = 1 << 16


def read_nodes(path: Path) -> tuple[Node, ...]:
    """Return the nodes of a file: a node list of openb or of the spot trace, or one in the format of Ullage.

    Raises:
        InvalidRequest: `invalid-trace`; the message names file, line, column, value and fix.

    """
    nodes: dict[str, Node] = {}
    readers = {openb.NODE_COLUMNS: openb.read_node, spot.NODE_COLUMNS: spot.read_node, NODE_COLUMNS: _read_node}
    for row, node in _read(path, readers):
        if node.name in nodes:
            column = next(name for name in ("sn", "node_name", "name") if name in row.cells)
            raise row.bad(column, "another node has this name")
        nodes[node.name] = node
    return tuple(nodes.values())


def read_tasks(path: Path) -> tuple[TraceTask, ...]:
    """Return the tasks of a file: a pod list of openb, jobs of Philly, or requests in the format of Ullage.

    Raises:
        InvalidRequest: `invalid-trace`; the message names file, line, column, value and fix.

    """
    readers = {openb.TASK_COLUMNS: openb.read_task, TASK_COLUMNS: _read_task, philly.TASK_COLUMNS: philly.read_task}
    return tuple(task for _, task in _read(path, readers))


def read_queues(path: Path) -> dict[str, tuple[Queue, int]]:
    """Return the queues of the tree, each after its parent, and the default priority of their tasks.

    Raises:
        InvalidRequest: `invalid-trace`; the message names file, line, column, value and fix.

    """
    queues: dict[str, tuple[Queue, int]] = {}
    for row, (queue, priority) in _read(path, {QUEUE_COLUMNS: _read_queue}):
        if queue.name in queues:
            raise row.bad("queue", "another queue has this name")
        if queue.parent not in (ROOT, *queues):
            raise row.bad("parent", "name a queue of an earlier line, or leave it empty")
        queues[queue.name] = queue, priority
    return queues


def _read(path: Path, readers: Readers[T]) -> list[tuple[Row, T]]:
    columns = set(columns_of(path))
    for needed, read in readers.items():
        if columns.issuperset(needed):
            _check_misspelt(path, columns, needed)
            found = [(row, _converted(row, read)) for row in read_rows(path)]
            if not found:
                raise InvalidRequest(f"{path} has column names and no rows", code=CODE)
            return found
    forms = " or ".join(",".join(needed) for needed in readers)
    raise invalid_trace(path, 1, "-", ",".join(sorted(columns)), fix=f"no known format has these columns; use {forms}")


def _check_misspelt(path: Path, columns: set[str], needed: tuple[str, ...]) -> None:
    """Refuse a column that is not read where it is like one that is read and is missing."""
    known = _OPTIONAL.get(needed, ())
    for column in sorted(columns.difference(needed, known)):
        if (meant := nearest(column.casefold(), known, _LIKE)) is not None and meant not in columns:
            raise invalid_trace(path, 1, column, column, fix=f"it is not read; did you mean {meant}?")


def _converted(row: Row, read: Callable[[Row], T]) -> T:
    try:
        return read(row)
    except InvalidRequest as error:
        if error.code == CODE:
            raise
        raise invalid_trace(row.path, row.line, error.field or "-", dict(row.cells), fix=error.message) from None


def _read_node(row: Row) -> Node:
    """Return a node in the format of Ullage: all its cards are equal."""
    name, model, vram = row.text("name"), row.text("gpu_model", "") or None, row.size("gpu_memory")
    try:
        cpu_milli = parse_decimal(row.text("cpu"), "cpu", _MOST_CORES_PPM) // _PPM_PER_MILLI
    except InvalidRequest as error:
        raise row.bad("cpu", "write cores such as 64 or 0.5") if error.code != CODE else error from None
    memory = row.size("memory")
    if memory is None:
        raise row.bad("memory", "write a size such as 256g")
    count = row.count("gpus", maximum=MAX_CARDS)
    cards = tuple(Gpu(f"{name}/{i}", i, model, vram_bytes=vram) for i in range(count))
    return Node(name, cpu_milli, memory, cards, max_executors=UNLIMITED)


def _read_queue(row: Row) -> tuple[Queue, int]:
    name, parent = row.text("queue"), row.text("parent", "") or ROOT
    weight = row.count("weight", 1, maximum=MAX_WEIGHT)
    check_weight("weight", weight)
    return Queue(name, parent, weight), row.integer("priority", 0)


def _read_task(row: Row) -> TraceTask:
    """Return a request in the format of Ullage."""
    units = row.count("count", 1, maximum=_MAX_UNITS)
    if not units:
        raise row.bad("count", "1 unit or more is needed")
    return TraceTask(
        row.text("name", str(row.line)),
        row.requirement("request"),
        row.seconds("arrival_s") or 0.0,
        row.seconds("duration_s"),
        queue=row.text("queue", "default"),
        priority=row.integer("priority", 0),
        units=units,
    )
