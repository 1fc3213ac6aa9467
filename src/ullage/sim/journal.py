"""What a live server did, from its events: a trace of what it was asked, and where it put everything.

A task of the trace is whatever held room: an executor of a session, or a request for cards. It was asked
for when the oldest task that waited then was submitted, or when the request says it was made; where the
events say neither, when it was placed. An executor that left its session and waits for another counts as
gone. What still runs is taken to run until the last event.
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
    """Where and when a task of the trace ran: seconds since the epoch, the node, the uuids of its cards."""

    start_s: float
    node: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class History:
    """A trace, and per task what happened to it."""

    trace: Trace
    placed: tuple[Placed, ...]


def read_history(path: Path) -> History:
    """Events as `ullage events -o json` prints them: one JSON list, or an object per line.

    Raises:
        InvalidRequest: `invalid-trace`; it is no such file, or it says nothing of nodes or of what they held.

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
    """Events one by one, in the order in which they happened."""

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
        """Return all that began, in the order in which it was placed."""
        for name in tuple(self._open):
            self._end(name)
        known = [(task, placed) for task, placed in self._done if placed.node in self._nodes and not _partitioned(task)]
        if not known:
            raise InvalidRequest(
                f"{self._path}: its events tell of nothing that was placed on a node they describe; "
                "servers before this version did not record enough",
                code=CODE,
            )
        known.sort(key=_placed_first)
        trace = Trace(self._path.stem, tuple(self._nodes.values()), tuple(task for task, _ in known))
        return History(trace, tuple(placed for _, placed in known))

    def _node(self, data: Event) -> None:
        """A node registers. If it is known its server began anew, and no executor outlives its server."""
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
        self._open.setdefault(task.name, started)  # what is assumed and then bound holds its room from the first

    def _end(self, name: str) -> None:
        begun = self._open.pop(name, None)
        if begun is not None:
            task, placed = begun
            self._done.append((replace(task, duration_s=self._now - placed.start_s), placed))


def _placed_first(known: tuple[TraceTask, Placed]) -> tuple[float, str]:
    task, placed = known
    return placed.start_s, task.name


def _partitioned(task: TraceTask) -> bool:
    """Slices of hardware are left out: where one lay on its card is not in the events."""
    return task.requirement.cards.isolation is Isolation.PARTITIONED


def _requirement(text: str) -> ResourceRequirement:
    """Return the text of a requirement; pods may ask for parts of a core, which people may not write."""
    cpu, _, rest = text.partition(",")
    milli = parse_decimal(cpu.removeprefix("cpu="), "cpu", _MOST_CORES_PPM) // _PPM_PER_MILLI
    return replace(ResourceRequirement.from_string(f"cpu=1,{rest}"), cpu_milli=milli)
