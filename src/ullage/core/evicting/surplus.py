"""Executors that their own session does not need: above its maximum, or without a task for too long."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView


def surplus(
    demand: Demand | None,
    executors: list[ExecutorView],
    taken: Callable[[str], bool],
    due: Callable[[float], bool],
) -> Iterator[ExecutorView]:
    """Yield those that leave their session, gangs whole; all of them if the session is closed (None).

    `taken` says which leave for others already, `due` whether a time (seconds) has come.
    """
    gangs: dict[str, list[ExecutorView]] = {}
    for executor in sorted(executors, key=lambda e: (e.phase is ExecutorPhase.BUSY, -e.bound_at, e.id)):
        gangs.setdefault(executor.gang or executor.id, []).append(executor)
    stay = [members for members in gangs.values() if not any(taken(member.id) for member in members)]
    left = sum(map(len, stay))
    for members in stay:
        if demand is None or (demand.max_instances is not None and left > demand.max_instances):
            leave = True
        else:
            leave = left - len(members) >= demand.floor and _unneeded(demand, members, due)
        if leave:
            left -= len(members)
            yield from members


def _unneeded(demand: Demand, members: list[ExecutorView], due: Callable[[float], bool]) -> bool:
    if demand.pending >= demand.batch_size or any(member.phase is not ExecutorPhase.VACANT for member in members):
        return False
    return due(max(member.since for member in members) + demand.delay_release_s)
