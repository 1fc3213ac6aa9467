"""`ullage logs`: the output of tasks, and with `-f` their exit code."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial

from ullage.cli.exits import FAILED, complain
from ullage.cli.target import TASK, parse_target, tasks_of
from ullage.client.api import Api, LogPart
from ullage.client.local import reach
from ullage.client.log import TaskLog
from ullage.client.prefixed import PrefixedOutput
from ullage.client.session_log import SessionLog, TaskPiece
from ullage.model.array import Array, parse_array
from ullage.model.duration import parse_duration
from ullage.model.error import invalid
from ullage.model.task import TIMED_OUT, TaskState
from ullage.wire.session import SessionBody, TaskBody

_CANCELLED = 143
"""128 + SIGTERM: the signal ends a cancelled program."""

_OWN_CODES = range(1, TIMED_OUT)
"""Exit codes of the program itself; larger ones mean that it timed out, did not run or was killed."""


def configure_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="SESSION[/N]",
        help="task N of a session, SESSION:INDEX of an array, several as SESSION:50-99, or all tasks, each line after "
        "the number of its task or :INDEX",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the tasks end; exit with their code")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each stream")
    parser.add_argument("--since", metavar="TIME", help="only what was printed in the last 90s, 10m, 12h or 2d")
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
    part = _part(arguments)
    api = reach(start=False)
    target = parse_target(arguments.target)
    session = target.session
    if len(target.parts) == 1:
        task = target.number(api)
    else:
        body = api.session(session)
        if target.parts:
            return _logs_of_some(api, body, target.numbers_in(body), part, follow=arguments.follow)
        if tasks_of(body) > 1:
            return _logs_of_all(api, body, part, follow=arguments.follow)
        task = None
    task = TASK if task is None else task
    log = TaskLog(api, session, task, part, follow=arguments.follow, on_note=complain)
    print_log(log)
    if not arguments.follow or log.ended is None:
        return 0
    return exit_code(log.ended)


def _part(arguments: argparse.Namespace) -> LogPart:
    if arguments.tail is not None and arguments.tail < 0:
        raise invalid("--tail", arguments.tail, "write a number of lines from 0")
    return LogPart(arguments.tail, None if arguments.since is None else parse_duration(arguments.since, "--since"))


def _index_label(array: Array, task: int) -> str:
    """Return `:INDEX`, as it follows the session in the name of the task."""
    index = array.index_of(task)
    return str(task) if index is None else f":{index}"


def _prefixed(body: SessionBody) -> PrefixedOutput:
    return PrefixedOutput(str if body.array is None else partial(_index_label, parse_array(body.array)))


def _logs_of_some(api: Api, body: SessionBody, tasks: Iterable[int], part: LogPart, *, follow: bool) -> int:
    """Print the lines of some tasks, one task after the other. With `follow` return 1 if one has not succeeded."""
    output, ended = _prefixed(body), list[TaskBody]()
    try:
        for task in tasks:
            log = TaskLog(api, body.id, task, part, follow=follow, on_note=complain)
            for piece in log:
                output.write(TaskPiece(task, piece.stream, piece.data))
            output.write(TaskPiece(task, "", b""))
            if log.ended is not None:
                ended.append(log.ended)
    finally:
        output.close()
    if not follow:
        return 0
    counts = Counter(task.state for task in ended)
    return _code_of(counts[TaskState.FAILED], counts[TaskState.CANCELLED])


def _code_of(failed: int, cancelled: int) -> int:
    if failed or cancelled:
        complain(f"{failed} tasks failed, and {cancelled} were cancelled")
        return FAILED
    return 0


def _logs_of_all(api: Api, body: SessionBody, part: LogPart, *, follow: bool) -> int:
    """Print the lines of all tasks. With `follow` return 1 if one has failed or was cancelled."""
    output = _prefixed(body)
    try:
        for piece in SessionLog(api, body.id, part, follow=follow, on_note=complain):
            output.write(piece)
    finally:
        output.close()
    if not follow:
        return 0
    ended = api.session(body.id)
    return _code_of(ended.failed, ended.cancelled)
