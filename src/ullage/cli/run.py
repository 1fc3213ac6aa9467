"""`ullage run` and `ullage submit`: run a program as the task of a session."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import threading
from contextlib import suppress

from ullage.cli import program
from ullage.cli.exits import Exit, caution, complain
from ullage.cli.interrupts import Interrupts
from ullage.cli.logs import exit_code, print_log
from ullage.cli.standard_input import has_input, read_input
from ullage.client.api import Api
from ullage.client.local import reach
from ullage.client.log import TaskLog
from ullage.client.placeable import refuse_unplaceable
from ullage.client.transport import NotConnected
from ullage.model.duration import FORMS, parse_duration
from ullage.model.error import InvalidRequest, NotFound, UllageError, invalid
from ullage.model.queue import DEFAULT_QUEUE
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.task import TaskState
from ullage.wire.explanation import Explanation

QUIET_S = 1.0
"""Seconds after which a program that does not start gets an explanation."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
"""The beginning of a request or of a variable of the environment."""

_RESREQ = (
    "its request, such as cpu=2,mem=4g,gpu=1 (cpu=0.5 and cpu=500m are half a core); parts of cards: "
    "gpu=0.5, or vram=20g, tflops=60, percent=25 of each; "
    "choice of cards: gpu_model=A100|H100, gpu_model_like, gpu_vendor, gpu_index=0|1, gpu_uuid, pool; isolation of "
    "parts: isolation=hard; alignment of CPUs and cards: numa=best-effort, restricted or "
    "single-numa-node; alignment with other devices: gpu~nic=required, switch or preferred; "
    "links between its cards: links=best or island"
)

AGAIN_S = 5.0
"""Seconds between two checks of the reason."""

CANCEL_S = 5.0
"""The most seconds to send a cancellation: a user waits for this command to end."""


def configure_run(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    parser.set_defaults(act=_run)


def configure_submit(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    parser.set_defaults(act=_submit)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", "--resreq", metavar="LIST", help=_RESREQ)
    parser.add_argument("-q", "--queue", default=DEFAULT_QUEUE, help=f"its queue (default: {DEFAULT_QUEUE})")
    parser.add_argument("-p", "--priority", type=int, metavar="N", help="higher is scheduled first within the queue")
    parser.add_argument("-t", "--time-limit", metavar="TIME", help=f"end it after {FORMS}")
    parser.add_argument("-n", "--name", help="id of its session (default: chosen by the server)")
    parser.add_argument(
        "-e", "--env", action="append", default=[], metavar="NAME[=VALUE]", help="pass a variable on; may be repeated"
    )
    parser.add_argument("--export-all", action="store_true", help="pass the whole environment on")
    parser.add_argument("--stdin", action="store_true", help="send the standard input, read to its end (up to 16Mi)")
    parser.add_argument("--wait", action="store_true", help="wait also if no node can hold it today")
    parser.add_argument(
        "argv", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="the program and its arguments"
    )


def _run(arguments: argparse.Namespace) -> int:
    interrupts = Interrupts()
    try:
        with interrupts:
            return _run_to_its_end(arguments, interrupts)
    except BaseException:  # such as a closed pipe, or a second signal
        if interrupts.code is None:
            raise
    raise Exit(interrupts.code)


def _run_to_its_end(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    api, cancellation = _begin(arguments)
    session = cancellation.session
    log = TaskLog(api, session, program.TASK, follow=True, on_note=complain)
    interrupts.cancel = lambda: _cancel(cancellation, log)
    ended = threading.Event()
    watcher = threading.Thread(target=_explain_waits, args=(api, session, ended), daemon=True)
    watcher.start()
    try:
        print_log(log)
    except BaseException:
        cancellation.run()
        raise
    finally:
        ended.set()
    assert log.ended is not None
    if interrupts.code is not None:
        return interrupts.code
    with suppress(UllageError):  # the program has ended already
        Api(api.transport.hurried(CANCEL_S)).close_session(session)
    if not arguments.stdin and has_input():
        caution(["the standard input was not sent to the program; --stdin sends it"])
    return exit_code(log.ended)


class _Cancellation:
    """Cancels a session once. Later threads wait for the first."""

    def __init__(self, api: Api, session: str) -> None:
        self.session = session
        self._api = api
        self._lock = threading.Lock()
        self._is_stored: bool | None = None

    def run(self) -> bool:
        """Cancel the session. Return whether the server accepted; print the error if not."""
        with self._lock:
            if self._is_stored is None:
                self._is_stored = self._send()
            return self._is_stored

    def _send(self) -> bool:
        transport = self._api.transport.hurried(CANCEL_S)
        try:
            Api(transport).cancel_session(self.session)
        except UllageError as error:
            if isinstance(error, NotFound):  # deleted meanwhile
                return True
            with suppress(OSError):  # the terminal may be gone
                complain(self._failure(error), f"`ullage cancel {self.session}` ends it once a server answers")
            return False
        finally:
            transport.close()
        return True

    def _failure(self, error: UllageError) -> str:
        if isinstance(error, NotConnected):
            return f"{self.session} is not cancelled: it runs again at the next start"
        return f"{self.session} is not cancelled and may still run: {error.message}"


def _cancel(cancellation: _Cancellation, log: TaskLog) -> None:
    """Cancel the program. Its output then ends, or is abandoned if no server answers."""
    log.patience.shorten(CANCEL_S)
    if not cancellation.run():
        log.give_up()


def _submit(arguments: argparse.Namespace) -> int:
    _, cancellation = _begin(arguments)
    print(cancellation.session)
    return 0


def _begin(arguments: argparse.Namespace) -> tuple[Api, _Cancellation]:
    """Create the session and submit the task.

    Raises:
        Unplaceable: no node can ever hold it, and `--wait` is not given.

    """
    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    word = next(iter(argv), "")
    if not word:
        raise invalid("program", "", "write it last, as in `ullage run -- python train.py`")
    _refuse_assignment(word)
    resreq = None if arguments.resreq is None else ResourceRequirement.from_string(arguments.resreq)
    environment = program.choose_environment(os.environ, arguments.env, everything=arguments.export_all)
    given = read_input(send=arguments.stdin)
    api = reach(start=True)
    session, warnings = program.create(
        api,
        arguments.name,
        {
            "resreq": resreq,
            "queue": arguments.queue,
            "priority": arguments.priority,
            "task_timeout_s": None if arguments.time_limit is None else parse_duration(arguments.time_limit),
        },
    )
    cancellation = _Cancellation(api, session)
    try:
        program.submit(api, session, argv, environment, standard_input=given)
        if not arguments.wait:
            refuse_unplaceable(api, api.session(session))
        caution(warnings)
    except BaseException:
        cancellation.run()
        raise
    return api, cancellation


def _refuse_assignment(word: str) -> None:
    """Refuse a request or a variable instead of a program.

    Raises:
        InvalidRequest: the word looks like one, and no such program exists.

    """
    if _ASSIGNMENT.match(word) and shutil.which(word) is None:
        fix = f"a request goes after -r, as in -r {word}, a variable after -e, and the program last, after --"
        raise invalid("program", word, fix)


def _explain_waits(api: Api, session: str, ended: threading.Event) -> None:
    """Print on stderr why the program does not run, each time the reason changes."""
    printed, evicted = "", 0
    pause = QUIET_S
    while not ended.wait(pause):
        pause = AGAIN_S
        try:
            if api.task(session, program.TASK).state != TaskState.PENDING:
                printed = ""
                continue
            explanation = api.why(session)
        except InvalidRequest:  # the session was deleted, which the log reports too
            break
        except UllageError:  # the server restarts
            continue
        if (event := explanation.evicted) is not None and event.number > evicted:
            print(f"ullage: {session} was evicted: its executor {event.message}", file=sys.stderr)
            evicted = event.number
        reason = _reason(explanation)
        if reason != printed and explanation.code != Code.RUNNING:
            print(f"ullage: {session} waits: {reason}", file=sys.stderr)
            if explanation.code == Code.BIND_FAILURES and explanation.suggestions:
                print(f"hint: {'; '.join(explanation.suggestions)}", file=sys.stderr)
            printed = reason
    api.transport.close_own()


def _reason(explanation: Explanation) -> str:
    return f"{explanation.code}: {explanation.summary}"
