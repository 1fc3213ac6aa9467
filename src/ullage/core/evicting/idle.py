"""Idle executors, whose processes are kept for the next session of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView, World

_Kind = tuple[object, ...]
"""The key of interchangeable idle executors."""


class Idle:
    """Idle executors on nodes that take work, by kind; the one that has been idle longest comes first."""

    def __init__(self, world: World) -> None:
        self._kinds: dict[_Kind, list[ExecutorView]] = {}
        rows, fleet = world.fleet.row_of, world.fleet
        idle = (executor for executor in world.executors if executor.phase is ExecutorPhase.IDLE)
        for executor in sorted(idle, key=lambda e: (e.since, e.id)):
            allocation = fleet.ledger.get(executor.id)
            if allocation is not None and allocation.node in rows and fleet.schedulable[rows[allocation.node]]:
                kind = executor.application, executor.setup, executor.requirement
                self._kinds.setdefault(kind, []).append(executor)

    def __iter__(self) -> Iterator[ExecutorView]:
        for executors in self._kinds.values():
            yield from executors

    def kind_of(self, demand: Demand) -> _Kind | None:
        """Return what a session can reuse, or None if there is no such executor."""
        kind = demand.application, demand.setup, demand.requirement
        return kind if kind in self._kinds else None

    def warm(self, demand: Demand, usable: Callable[[ExecutorView], bool]) -> list[ExecutorView]:
        """Return usable executors for one unit, as many as there are, the warmest first."""
        found: list[ExecutorView] = []
        for executor in reversed(self._kinds.get((demand.application, demand.setup, demand.requirement), [])):
            if len(found) == demand.batch_size:
                break
            if usable(executor):
                found.append(executor)
        return found

    def take(self, executor: ExecutorView) -> None:
        """Give an executor to a session."""
        self._kinds[executor.application, executor.setup, executor.requirement].remove(executor)
