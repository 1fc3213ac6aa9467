"""Clients of tasks: `ullage run --pty`, `ullage attach`, and a standard input that is streamed."""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

from ullage.cli.execute import LOST, code_of_end, one_task, require_terminal, standard_ends
from ullage.cli.exits import complain
from ullage.cli.logs import exit_code
from ullage.cli.target import TASK
from ullage.client.api import Api, LogPart
from ullage.client.local import reach
from ullage.client.log import TaskLog
from ullage.client.terminal import DETACH_KEYS, DETACHED, TAKEN, ProgramEnd, connect, open_attached, send_input
from ullage.model.error import Conflict, UllageError, Unavailable
from ullage.model.task import TaskState

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0

_NOT_STARTED = (126, 127)
"""Codes of programs that were not started, for a reason that was shown already."""

_ENDED = (TaskState.SUCCEED, TaskState.FAILED, TaskState.CANCELLED)


def configure_attach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="SESSION[/N]",
        help="a program that `ullage run --pty` has started; another client is taken off it. "
        f"{DETACH_KEYS} at the beginning of a line leaves it, and it goes on",
    )
    parser.set_defaults(act=_attach)


def _attach(arguments: argparse.Namespace) -> int:
    api = reach(start=False)
    require_terminal()
    session, task = one_task(api, arguments.target)
    with open_attached(api, session, task) as stream:
        ended = talk(stream, session)
    return code_of_task(api, session, task, ended)


def talk(stream: socket.socket, session: str) -> ProgramEnd:
    """Connect the terminal of this process with a program until one of them ends.

    Raises:
        Unavailable: the connection to the server was lost (`program-lost`).

    """
    try:
        return connect(stream, standard_ends(terminal=True), leaves=True)
    except Unavailable as error:
        text = f"{error.message}; `ullage attach {session}` within 10 s returns to it otherwise"
        raise Unavailable(text, code=error.code) from error


def send_standard_input(api: Api, session: str, before: bytes, cancel: Callable[[], object]) -> None:
    """Send the standard input to the program of a session, after what was read of it before."""
    try:
        with ExitStack() as context:
            stream = attached_once_it_runs(api, session, context)
            reason = "" if stream is None else send_input(stream, before)
    except UllageError as error:
        reason = error.message
    if reason:
        complain(f"the standard input was not sent to its end: {reason}")
        cancel()  # the program would run again with a part of its input
    api.transport.close_own()


def attached_once_it_runs(api: Api, session: str, context: ExitStack) -> socket.socket | None:
    """Return the stream of the task of a session once it runs; None if it has ended before."""
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return context.enter_context(open_attached(api, session, TASK))
        except Conflict as error:
            if error.code != "task-not-running":
                raise
        if api.task(session, TASK).state in _ENDED:
            return None
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def code_of_task(api: Api, session: str, task: int, ended: ProgramEnd | None) -> int:
    """Return the exit code after the end of a connection; that of the task, which may have another reason."""
    if ended == DETACHED:
        complain(f"detached; `ullage attach {session}/{task}` returns to it")
        return 0
    if ended == TAKEN:
        complain(f"another client has attached to {session}/{task}, which goes on")
        return LOST
    if ended is not None and (ended.reason or ended.code in _NOT_STARTED):
        return code_of_end(ended)
    log = TaskLog(api, session, task, LogPart(lines=0), follow=True, on_note=complain)
    for _ in log:
        pass
    assert log.ended is not None
    return exit_code(log.ended)
