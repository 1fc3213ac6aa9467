"""`ullage exec`: run a program beside a running task."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from ullage.cli.exits import KILLED_BY, complain
from ullage.cli.target import find_task, parse_target
from ullage.cli.variables import chosen_variables
from ullage.client.api import Api
from ullage.client.local import reach
from ullage.client.program import only_task
from ullage.client.terminal import DETACH_KEYS, DETACHED, Ends, ProgramEnd, connect, open_exec
from ullage.model.error import InvalidRequest, invalid
from ullage.wire.session import ExecBody

LOST = 125
"""The exit code of a program that did not end by itself."""


def configure_exec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-t",
        "--tty",
        action="store_true",
        help=f"with a terminal: keys and its size are passed on; {DETACH_KEYS} at the beginning of a line ends it",
    )
    parser.add_argument(
        "-i", "--interactive", action="store_true", help="for habit: the standard input is passed on anyway"
    )
    parser.add_argument(
        "-e", "--env", action="append", default=[], metavar="NAME[=VALUE]", help="pass a variable on; may be repeated"
    )
    parser.add_argument(
        "target", metavar="SESSION[/N]", help="a running task: N of a session, or SESSION:INDEX of an array"
    )
    parser.add_argument(
        "argv",
        nargs=argparse.REMAINDER,
        metavar="-- PROGRAM ...",
        help="the program: it runs as the user of the task, with its cards, limits, environment and directory, and "
        "ends with its executor",
    )
    parser.set_defaults(act=_exec)


def _exec(arguments: argparse.Namespace) -> int:
    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    word = next(iter(argv), "")
    if not word:
        raise invalid("program", "", "write it last, as in `ullage exec train-1 -- nvidia-smi`")
    if word.startswith("-") and argv is arguments.argv:
        raise invalid("program", word, "options come before the task, as in `ullage exec -t train-1 -- bash`")
    if arguments.tty:
        require_terminal()
    given = [*(["TERM"] if arguments.tty and "TERM" in os.environ else []), *arguments.env]
    program = ExecBody(argv=argv, env=chosen_variables(os.environ, given), tty=arguments.tty)
    api = reach(start=False)
    session, task = one_task(api, arguments.target)
    with open_exec(api, session, task, program) as stream:
        ended = connect(stream, standard_ends(terminal=arguments.tty))
    return KILLED_BY + signal.SIGHUP if ended == DETACHED else code_of_end(ended)


def one_task(api: Api, text: str) -> tuple[str, int]:
    """Return the session and the number of the task that a target names: its only one if it names none.

    Raises:
        InvalidRequest: the session has several tasks, or none.

    """
    target = parse_target(text)
    if not target.parts:
        return target.session, only_task(api, target.session, f"name one of them, as in {text}/1")
    return find_task(api, text)


def require_terminal() -> None:
    """Check that the standard input is a terminal.

    Raises:
        InvalidRequest: it is not (`no-terminal-here`).

    """
    if not os.isatty(0):
        where = "the terminal of the standard input is passed on, and here it is none: run this verb in a terminal"
        text = f"{where}; without -t or --pty a pipe or a file is passed on"
        raise InvalidRequest(text, code="no-terminal-here", field="tty")


def standard_ends(*, terminal: bool) -> Ends:
    """Return the standard input, output and error of this process."""
    return Ends(0, sys.stdout.buffer, sys.stderr.buffer, terminal=terminal)


def code_of_end(ended: ProgramEnd) -> int:
    """Return the exit code of a program that was not detached from. Print why it has none."""
    if ended.code is not None:
        return ended.code
    complain(ended.reason)
    return LOST
