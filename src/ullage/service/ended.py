"""How the tasks of a session ended, as the answer to why a closed session runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ullage.core.explaining.explain import Reasons
from ullage.model.counted import counted
from ullage.model.rejection import Code
from ullage.model.task import TaskState

_ENDS = {TaskState.SUCCEED: "succeeded", TaskState.FAILED: "failed", TaskState.CANCELLED: "cancelled"}


def with_ends(reasons: Reasons, session: str, counts: Mapping[TaskState, int]) -> Reasons:
    """Return why a session has what it has; of a closed one with the ends of its tasks, and how to repeat them."""
    if reasons.code is not Code.CLOSED:
        return reasons
    ends = [f"{counts[state]} {word}" for state, word in _ENDS.items() if counts[state]]
    total = sum(counts.values())
    summary = f"{reasons.summary}; of {counted(total, 'task')} {', '.join(ends)}" if ends else reasons.summary
    failed, cancelled = counts[TaskState.FAILED], counts[TaskState.CANCELLED]
    again = []
    if failed:
        again.append(f"`ullage requeue {session}` runs {counted(failed, 'failed task')} again")
    if cancelled:
        again.append(f"`ullage requeue --cancelled {session}` runs {counted(failed + cancelled, 'task')} again")
    return replace(reasons, summary=summary, suggestions=(*reasons.suggestions, *again))
