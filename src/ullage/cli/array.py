"""`ullage run --array`: the output of each task when it has ended, and one exit code for all."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ullage.cli.exits import FAILED, complain
from ullage.cli.logs import print_log
from ullage.client.api import Api
from ullage.client.log import TaskLog
from ullage.model.array import Array
from ullage.model.counted import counted
from ullage.model.error import Unavailable
from ullage.model.task import TaskState
from ullage.wire.session import Result

_POLL_S = 10.0
"""Seconds that one request waits for the next end."""

_LISTED = 20
"""Failures that the summary names."""


def follow_array(api: Api, session: str, array: Array) -> int:
    """Print the output of each task when it has ended, and at the end the failures. Return the exit code.

    Raises:
        Unavailable: no server answers.

    """
    failed: list[Result] = []
    for result in _results(api, session, len(array.indices)):
        print_log(TaskLog(api, session, result.task, follow=False, on_note=complain))
        if result.state != TaskState.SUCCEED:
            failed.append(result)
    if not failed:
        return 0
    sys.stdout.flush()
    count, first = len(array.indices), min(result.task for result in failed)
    complain(
        f"{len(failed)} of {counted(count, 'task')} of {session} did not succeed",
        f"`ullage logs {session}:{array.index_of(first)}` shows the output of one",
    )
    for result in sorted(failed, key=lambda each: each.task)[:_LISTED]:
        why = result.message.partition("\n")[0] or f"exit code {result.code}"
        print(f"  {session}:{array.index_of(result.task)} {result.state}: {why}", file=sys.stderr)
    if len(failed) > _LISTED:
        print(f"  and {len(failed) - _LISTED} more; `ullage tasks {session}` lists all", file=sys.stderr)
    return FAILED


def _results(api: Api, session: str, count: int) -> Iterator[Result]:
    """Yield the results of all tasks in the order of their ends, also while the server restarts."""
    cursor, seen, patience = 0, 0, api.transport.patience(complain)
    while seen < count:
        try:
            found = api.results(session, cursor, wait_s=_POLL_S)
        except Unavailable as error:
            patience.wait(error)
            continue
        patience.renew()
        cursor = found.next
        seen += len(found.results)
        yield from found.results
        if found.closed:
            return
