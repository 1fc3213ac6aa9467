"""`ullage logs`: the output of a program as exact bytes, and its exit code."""

from __future__ import annotations

import argparse
import sys

from ullage.cli.exits import FAILED, complain
from ullage.cli.program import TASK
from ullage.cli.target import find_task
from ullage.client.local import reach
from ullage.client.log import TaskLog
from ullage.model.task import TIMED_OUT, TaskState
from ullage.wire.session import TaskBody

_CANCELLED = 143
"""128 + SIGTERM: the signal ends a cancelled program."""

_OWN_CODES = range(1, TIMED_OUT)
"""Exit codes of the program itself; larger ones mean that it timed out, did not run or was killed."""


def configure_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="SESSION[/N]", help="a session, task N of it (default: 1), or SESSION:INDEX of an array"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on until the program ends; exit with its exit code"
    )
    parser.set_defaults(act=_logs)


def print_log(log: TaskLog) -> None:
    """Copy standard output and error of the program to those of this process."""
    streams = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
    for piece in log:
        stream = streams[piece.stream]
        stream.write(piece.data)
        stream.flush()


def exit_code(task: TaskBody) -> int:
    """Return the exit code of `task`. Print the reason if the code does not imply it."""
    if task.state == TaskState.SUCCEED:
        return 0
    if task.state == TaskState.CANCELLED:
        complain(task.message or f"{task.session} was cancelled")
        return _CANCELLED
    code = task.code or FAILED
    if task.code not in _OWN_CODES:
        complain(task.message or f"{task.session} failed")
    return code if 0 < code < 256 else FAILED  # noqa: PLR2004  # exit codes are bytes


def _logs(arguments: argparse.Namespace) -> int:
    api = reach(start=False)
    session, task = find_task(api, arguments.target, TASK)
    log = TaskLog(api, session, task, follow=arguments.follow, on_note=complain)
    print_log(log)
    if not arguments.follow or log.ended is None:
        return 0
    return exit_code(log.ended)
