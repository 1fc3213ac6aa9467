"""`ullage run` and `ullage submit`: a program under a session."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType

from ullage.cli import program
from ullage.cli.exits import INTERRUPTED, UNPLACEABLE, Exit, caution, complain
from ullage.cli.logs import exit_code, print_log
from ullage.cli.moment import parse_duration
from ullage.client.api import Api
from ullage.client.local import reach
from ullage.client.log import Log
from ullage.model.error import InvalidRequest, UllageError, invalid
from ullage.model.queue import DEFAULT_QUEUE
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.task import TaskState
from ullage.wire.api import Explanation

QUIET_S = 1.0
"""Seconds after which a program that does not start is explained."""

_RESREQ = (
    "what it holds, such as cpu=2,mem=4g,gpu=1; of cards also a part: gpu=0.5, or vram=20g, tflops=60, percent=25 of "
    "each; which ones: gpu_model=A100|H100, gpu_model_like, gpu_vendor, gpu_index=0|1, gpu_uuid, pool; how parts are "
    "kept apart: isolation=hard; how its CPUs and cards are kept near each other: numa=best-effort, restricted or "
    "single-numa-node; what cards are kept near to: gpu~nic=required or preferred"
)

AGAIN_S = 5.0
"""Seconds between looks whether the reason has changed."""


def configure_run(parser: argparse.ArgumentParser) -> None:
    """`ullage run`."""
    _configure(parser)
    parser.set_defaults(act=_run)


def configure_submit(parser: argparse.ArgumentParser) -> None:
    """`ullage submit`."""
    _configure(parser)
    parser.set_defaults(act=_submit)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", "--resreq", metavar="LIST", help=_RESREQ)
    parser.add_argument("-q", "--queue", default=DEFAULT_QUEUE, help=f"its queue (default: {DEFAULT_QUEUE})")
    parser.add_argument("-p", "--priority", type=int, metavar="N", help="higher goes first within the queue")
    parser.add_argument("-t", "--time-limit", metavar="TIME", help="end it after 90, 90s, 30m, 12h or 2d")
    parser.add_argument("-n", "--name", help="id of its session (default: chosen by the server)")
    parser.add_argument(
        "-e", "--env", action="append", default=[], metavar="NAME[=VALUE]", help="pass a variable on; may be repeated"
    )
    parser.add_argument("--export-all", action="store_true", help="pass the whole environment on")
    parser.add_argument("--wait", action="store_true", help="wait also if no node can hold it today")
    parser.add_argument(
        "argv", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="the program and its arguments"
    )


def _run(arguments: argparse.Namespace) -> int:
    api, session = _begin(arguments)
    interrupts = _Interrupts(api, session)
    interrupts.install()
    started = threading.Event()
    watcher = threading.Thread(target=_explain_wait, args=(api, session, started), daemon=True)
    watcher.start()
    log = Log(api, session, program.TASK, follow=True)
    try:
        print_log(log, started)
    except BaseException:  # nobody reads the output any more, or the second Ctrl-C
        with suppress(UllageError):
            api.cancel_session(session)
        raise
    finally:
        started.set()
        interrupts.remove()
    assert log.ended is not None
    if interrupts.seen:
        return INTERRUPTED
    with suppress(UllageError):  # the program has ended; what remains is bookkeeping
        api.close_session(session)
    return exit_code(log.ended)


def _submit(arguments: argparse.Namespace) -> int:
    _, session = _begin(arguments)
    print(session)
    return 0


def _begin(arguments: argparse.Namespace) -> tuple[Api, str]:
    """Create the session and submit the task, unless no node could ever hold it."""
    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not argv:
        raise invalid("program", "", "write it last, as in `ullage run -- python train.py`")
    resreq = None if arguments.resreq is None else ResourceRequirement.from_string(arguments.resreq)
    environment = program.choose_environment(os.environ, arguments.env, everything=arguments.export_all)
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
    try:
        program.submit(api, session, argv, environment)
        if not arguments.wait:
            _refuse_unplaceable(api, session)
        caution(warnings)
    except BaseException:
        with suppress(UllageError):
            api.cancel_session(session)
        raise
    return api, session


def _refuse_unplaceable(api: Api, session: str) -> None:
    explanation = api.why(session)
    if explanation.code == Code.TOO_LARGE:
        help_ = "; ".join(explanation.suggestions) or "ask for less"
        complain(_reason(explanation), f"{help_}; or wait with --wait until there is such a node")
        raise Exit(UNPLACEABLE)


def _explain_wait(api: Api, session: str, started: threading.Event) -> None:
    """Say on stderr why the program does not start, whenever the reason changes."""
    said = ""
    pause = QUIET_S
    while not started.wait(pause):
        pause = AGAIN_S
        try:
            if api.task(session, program.TASK).state != TaskState.PENDING:
                break
            reason = _reason(api.why(session))
        except InvalidRequest:  # closed and deleted by somebody else: the log says so too
            break
        except UllageError:  # the server restarts
            continue
        if reason != said:
            print(f"ullage: {session} waits: {reason}", file=sys.stderr)
            said = reason
    api.transport.close_own()


def _reason(explanation: Explanation) -> str:
    return f"{explanation.code}: {explanation.summary}"


class _Interrupts:
    """The first Ctrl-C cancels the session and lets the output come to its end; the second one leaves."""

    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, api: Api, session: str) -> None:
        self._api = api
        self._session = session
        self._before: dict[signal.Signals, signal.Handlers | object] = {}
        self.seen = False

    def install(self) -> None:
        self._before = {number: signal.signal(number, self._on_signal) for number in self._SIGNALS}

    def remove(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what `signal.signal` gave

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True
        # In a thread: the main one may be in the middle of a request, and its output must not break off.
        threading.Thread(target=self._cancel).start()

    def _cancel(self) -> None:
        print(f"ullage: cancelling {self._session}; press Ctrl-C again to leave at once", file=sys.stderr)
        with suppress(UllageError):
            self._api.cancel_session(self._session)
        self._api.transport.close_own()
