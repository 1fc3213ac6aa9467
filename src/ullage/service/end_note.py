"""The line in the log of a task on why its run ended."""

from __future__ import annotations

from ullage.core.sharing.world import EVICTIONS, Eviction
from ullage.service.state import TaskRecord


def end_text(task: TaskRecord, reason: str, eviction: Eviction | None, *, last: bool) -> str:
    """Return why the run of a task ended with its executor. `last` says that it does not run again."""
    if task.ending is not None:
        return task.ending.message
    if eviction is None:
        first, *_ = reason.splitlines() or [""]
        text = f"its executor ended: {first}"
    else:
        text = f"evicted for session {eviction.winner}: {EVICTIONS[eviction.cause]}"
    return text if last else f"{text}; the task waits again"
