"""The history of a live server from its events: a trace of its requests, and their placements.

A task of the trace is an executor of a session, or a request for cards. An executor arrives with the submission of
the oldest task that waited at its start, a request at its own time; if the events lack these times, the time of the
placement counts. An executor that left its session counts as ended. Tasks that still run end with the last event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ullage.model.error import InvalidRequest, UllageError
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Isolation
from ullage.model.quantity import parse_decimal
from ullage.model.request import ResourceRequirement
from ullage.sim.rows import CODE
from ullage.sim.trace import UNLIMITED, Trace, TraceTask

_PPM_PER_MILLI = 1000
_MOST_CORES_PPM = 10**15

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Placed:
    """The start of a task in seconds since the epoch, its node, and the uuids of its cards."""

    start_s: float
    node: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class History:
    """A trace, and the placement of each of its tasks."""

    trace: Trace
    placed: tuple[Placed, ...]


def read_history(path: Path) -> History:
    """Return the history in a file as `ullage events -o json` prints it: one JSON list, or an object per line.

    Raises:
        InvalidRequest: `invalid-trace`; the file is malformed, or its events lack nodes or placements.

    """
    reader = _Reader(path)
    for event in _events(path):
        reader.take(event)
    return reader.history()


def _events(path: Path) -> Iterator[Event]:
    try:
        text = path.read_text()
        if text.lstrip().startswith("["):
            found: Iterable[Any] = json.loads(text)
        else:
            found = (json.loads(line) for line in text.splitlines() if line.strip())
        for number, event in enumerate(found, 1):
            if not isinstance(event, dict) or not {"at", "kind", "data"} <= event.keys():
                raise InvalidRequest(f"{path}, event {number}: at, kind and data are needed", code=CODE)
            yield event
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} is no list of events: {error}", code=CODE) from None


class _Reader:
    """Builds a history from events in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._nodes: dict[str, Node] = {}
        self._sessions: dict[str, TraceTask] = {}
        self._open: dict[str, tuple[TraceTask, Placed]] = {}
        self._executors: set[str] = set()
        self._done: list[tuple[TraceTask, Placed]] = []
        self._now = 0.0

    def take(self, event: Event) -> None:
        self._now = float(event["at"])
        data: Event = event["data"]
        match event["kind"]:
            case "node.ready":
                self._node(data)
            case "session.created":
                self._sessions[event["session"]] = self._task(event["session"], data, data.get("queue"))
            case "executor.started" | "executor.reused":
                of = self._sessions.get(event["session"])
                if of is not None:
                    self._executors.add(data["executor"])
                    self._begin(replace(of, name=data["executor"]), data)
            case "allocation.assumed" | "allocation.bound" if "resreq" in data:
                self._begin(self._task(data["uid"], data, data.get("namespace")), data)
            case "executor.gone" | "executor.left":
                self._end(data["executor"])
            case "allocation.freed" | "allocation.expired":
                self._end(data["uid"])
            case _:
                pass

    def history(self) -> History:
        """Return all placed tasks in the order of their placement."""
        for name in tuple(self._open):
            self._end(name)
        known = [(task, placed) for task, placed in self._done if placed.node in self._nodes and not _partitioned(task)]
        if not known:
            raise InvalidRequest(
                f"{self._path}: its events have no placement on a node that they describe; "
                "earlier versions did not record it",
                code=CODE,
            )
        known.sort(key=_placed_first)
        trace = Trace(self._path.stem, tuple(self._nodes.values()), tuple(task for task, _ in known))
        return History(trace, tuple(placed for _, placed in known))

    def _node(self, data: Event) -> None:
        """Record a node. A node that registers again means that its server, and so its executors, had ended."""
        if "cards" not in data:
            return
        for name in self._executors.intersection(self._open):
            if self._open[name][1].node == data["node"]:
                self._end(name)
        cards = tuple(
            Gpu(uuid, index, model, vendor, vram_bytes=vram, compute_gflops=gflops)
            for index, (uuid, model, vendor, vram, gflops) in enumerate(json.loads(data["cards"]))
        )
        name = data["node"]
        self._nodes[name] = Node(name, data["cpu_milli"], data["memory_bytes"], cards, max_executors=UNLIMITED)

    def _task(self, name: str, data: Event, queue: str | None) -> TraceTask:
        try:
            asked = _requirement(data["resreq"])
        except UllageError as error:
            raise InvalidRequest(f"{self._path}, {name}: {error.message}", code=CODE) from None
        return TraceTask(name, asked, queue=queue or "default", priority=int(data.get("priority") or 0))

    def _begin(self, task: TraceTask, data: Event) -> None:
        asked_at = data.get("asked_at")
        arrival = self._now if asked_at is None else min(float(asked_at), self._now)
        gpus = tuple((data.get("gpus") or "").split())
        started = replace(task, arrival_s=arrival), Placed(self._now, data["node"], gpus)
        self._open.setdefault(task.name, started)  # an assumed request that is bound later started when it was assumed

    def _end(self, name: str) -> None:
        begun = self._open.pop(name, None)
        if begun is not None:
            task, placed = begun
            self._done.append((replace(task, duration_s=self._now - placed.start_s), placed))


def _placed_first(known: tuple[TraceTask, Placed]) -> tuple[float, str]:
    task, placed = known
    return placed.start_s, task.name


def _partitioned(task: TraceTask) -> bool:
    """Return whether a task held partitions of hardware: the events lack their slots, so they are left out."""
    return task.requirement.cards.isolation is Isolation.PARTITIONED


def _requirement(text: str) -> ResourceRequirement:
    """Parse a requirement. Requirements of pods may have thousandths of a core, unlike those of users."""
    cpu, _, rest = text.partition(",")
    milli = parse_decimal(cpu.removeprefix("cpu="), "cpu", _MOST_CORES_PPM) // _PPM_PER_MILLI
    return replace(ResourceRequirement.from_string(f"cpu=1,{rest}"), cpu_milli=milli)
