"""`ullage run`: run a program as the task of a session, and wait for it."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from ullage.cli.array import follow_array
from ullage.cli.execute import require_terminal
from ullage.cli.exits import Exit, caution, complain
from ullage.cli.interactive import attached_once_it_runs, code_of_task, send_standard_input, talk
from ullage.cli.interrupts import Interrupts
from ullage.cli.job import JobRequest, add_job, job_of
from ullage.cli.logs import exit_code, print_log
from ullage.cli.standard_input import has_input
from ullage.cli.submit import CANCEL_S, Cancellation, begin
from ullage.cli.target import TASK
from ullage.client.api import Api
from ullage.client.log import TaskLog
from ullage.client.terminal import DETACH_KEYS
from ullage.model.array import Array
from ullage.model.error import InvalidRequest, UllageError, invalid
from ullage.model.task import TaskState
from ullage.wire.explanation import Explanation

QUIET_S = 1.0
"""Seconds after which a program that does not start gets an explanation."""

AGAIN_S = 5.0
"""Seconds between two checks of the reason."""


def configure_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pty",
        action="store_true",
        help="with a terminal, such as for a shell: keys and its size are passed on; "
        f"{DETACH_KEYS} at the beginning of a line leaves it, and `ullage attach` returns",
    )
    add_job(parser)
    parser.set_defaults(act=_run)


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
    job = job_of(arguments)
    if job.tty:
        _check_interactive(job)
    elif job.array is not None and job.standard_input is not None:
        job.standard_input.require_all()
    api, cancellation = begin(job)
    if job.tty:
        return _run_on_terminal(api, cancellation, interrupts)
    if job.array is not None:
        return _run_array(api, cancellation, interrupts, job.array)
    session = cancellation.session
    log = TaskLog(api, session, TASK, follow=True, on_note=complain)
    with interrupts.cancelling(lambda: _cancel(cancellation, log)):
        with _watching(api, cancellation):
            if job.standard_input is not None and not job.standard_input.is_all:
                sent = (api, session, job.standard_input.data, cancellation.run)
                threading.Thread(target=send_standard_input, args=sent, daemon=True).start()
            print_log(log)
        assert log.ended is not None
        if interrupts.code is not None:
            return interrupts.code
        with suppress(UllageError):  # the program has ended already
            Api(api.transport.hurried(CANCEL_S)).close_session(session)
    if job.standard_input is None and has_input():
        caution(["the standard input was not sent to the program; --stdin sends it"])
    return exit_code(log.ended)


def _check_interactive(job: JobRequest) -> None:
    """Check that a job can have the terminal of this process.

    Raises:
        InvalidRequest: there is none, or an array or the standard input is given, too.

    """
    if job.array is not None or job.standard_input is not None:
        other = "--stdin" if job.array is None else "--array"
        raise invalid("--pty", other, "a terminal is for one program, and is its input; leave one of the two out")
    require_terminal()


def _run_on_terminal(api: Api, cancellation: Cancellation, interrupts: Interrupts) -> int:
    session = cancellation.session
    with ExitStack() as context:
        with interrupts.cancelling(cancellation.run), _watching(api, cancellation):
            stream = attached_once_it_runs(api, session, context)
        # From here on a client that is lost may return.
        ended = None if stream is None else talk(stream, session)
    if ended is not None and ended.reason:
        cancellation.run()  # it would run again, without a client
    code = code_of_task(api, session, TASK, ended)
    return code if interrupts.code is None else interrupts.code


def _run_array(api: Api, cancellation: Cancellation, interrupts: Interrupts, array: Array) -> int:
    with interrupts.cancelling(cancellation.run), _watching(api, cancellation):
        code = follow_array(api, cancellation.session, array)
    return code if interrupts.code is None else interrupts.code


@contextmanager
def _watching(api: Api, cancellation: Cancellation) -> Iterator[None]:
    """Print meanwhile why the program does not run; cancel it after an exception."""
    ended = threading.Event()
    threading.Thread(target=_explain_waits, args=(api, cancellation.session, ended), daemon=True).start()
    try:
        yield
    except BaseException:
        cancellation.run()
        raise
    finally:
        ended.set()


def _cancel(cancellation: Cancellation, log: TaskLog) -> None:
    """Cancel the program. Its output then ends, or is abandoned if no server answers."""
    log.patience.shorten(CANCEL_S)
    if not cancellation.run():
        log.give_up()


def _explain_waits(api: Api, session: str, ended: threading.Event) -> None:
    """Print on stderr why the program does not run, each time the reason changes."""
    printed, evicted = "", 0
    pause = QUIET_S
    while not ended.wait(pause):
        pause = AGAIN_S
        try:
            if api.task(session, TASK).state != TaskState.PENDING:
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
        from ullage.model.rejection import Code  # noqa: PLC0415  # only what waits needs it

        if reason != printed and explanation.code != Code.RUNNING:
            print(f"ullage: {session} waits: {reason}", file=sys.stderr)
            if explanation.code == Code.BIND_FAILURES and explanation.suggestions:
                print(f"hint: {'; '.join(explanation.suggestions)}", file=sys.stderr)
            printed = reason
    api.transport.close_own()


def _reason(explanation: Explanation) -> str:
    return f"{explanation.code}: {explanation.summary}"
