"""Tasks that wait for tasks which nothing runs: calls within calls, whose executors hold what these would need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ullage.core.explaining.explain import Reasons
from ullage.model.counted import counted
from ullage.model.task import TaskState
from ullage.service.state import ExecutorRecord, SessionRecord, State


@contextmanager
def awaited(state: State, executor: str | None, awaited_session: str) -> Iterator[None]:
    """Note in the block that a task of an executor waits for results of a session of the same owner."""
    found = state.executors.get(executor or "")
    own, other = state.sessions.get((found and found.session) or ""), state.sessions.get(awaited_session)
    if found is None or own is None or other is None or own.session.spec.owner != other.session.spec.owner:
        yield
        return
    found.awaits[awaited_session] = found.awaits.get(awaited_session, 0) + 1
    try:
        yield
    finally:
        found.awaits[awaited_session] -= 1
        if not found.awaits[awaited_session]:
            del found.awaits[awaited_session]


def nested_waits(state: State, record: SessionRecord) -> tuple[str, ...]:
    """Return a sentence for each session whose tasks those of an open session wait for, while nothing runs them."""
    working = _working(record)
    names = sorted({name for executor in working for name in executor.awaits if _is_stuck(state, name)})
    return tuple(_sentence(record, name, working) for name in names) if record.open else ()


def with_nested(reasons: Reasons, nested: tuple[str, ...]) -> Reasons:
    """Return why a session has what it has, with its tasks that wait for others."""
    return replace(reasons, warnings=(*reasons.warnings, *nested)) if nested else reasons


def _working(record: SessionRecord) -> list[ExecutorRecord]:
    return [executor for executor in record.executors.values() if executor.tasks]


def _is_stuck(state: State, name: str) -> bool:
    """Return whether a session has waiting tasks, and no executor, also one that starts, for them."""
    record = state.sessions.get(name)
    if record is None or not record.counts[TaskState.PENDING]:
        return False
    return all(executor.awaits for executor in record.executors.values() if not executor.stopping)


def _sentence(record: SessionRecord, name: str, working: Iterable[ExecutorRecord]) -> str:
    waiting = sum(name in executor.awaits for executor in working)
    whose = "tasks of the same session" if name == record.id else f"tasks of session {name}"
    text = (
        f"{counted(waiting, 'executor')} of {record.id} run{'s' if waiting == 1 else ''} a task that waits for {whose}"
    )
    return (
        f"{text}, and nothing runs these: each task holds its executor while it waits. With fewer at once "
        f"(max_instances, `ullage update {record.id} --at-once N`) there is room"
    )
