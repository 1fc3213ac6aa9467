"""`ullage run` and `ullage submit`: run a program as the task of a session."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ullage.cli import program
from ullage.cli.array import follow_array
from ullage.cli.exits import Exit, caution, complain
from ullage.cli.interrupts import Interrupts
from ullage.cli.job import JobRequest, add_job, job_of
from ullage.cli.logs import exit_code, print_log
from ullage.cli.standard_input import has_input
from ullage.client.api import Api
from ullage.client.local import reach
from ullage.client.log import TaskLog
from ullage.client.placeable import refuse_unplaceable
from ullage.client.transport import NotConnected
from ullage.model.array import Array
from ullage.model.error import InvalidRequest, NotFound, UllageError
from ullage.model.rejection import Code
from ullage.model.task import TaskState
from ullage.wire.explanation import Explanation

QUIET_S = 1.0
"""Seconds after which a program that does not start gets an explanation."""

AGAIN_S = 5.0
"""Seconds between two checks of the reason."""

CANCEL_S = 5.0
"""The most seconds to send a cancellation: a user waits for this command to end."""


def configure_run(parser: argparse.ArgumentParser) -> None:
    add_job(parser)
    parser.set_defaults(act=_run)


def configure_submit(parser: argparse.ArgumentParser) -> None:
    add_job(parser)
    parser.set_defaults(act=_submit)


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
    api, cancellation = _begin(job)
    if job.array is not None:
        return _run_array(api, cancellation, interrupts, job.array)
    session = cancellation.session
    log = TaskLog(api, session, program.TASK, follow=True, on_note=complain)
    interrupts.cancel = lambda: _cancel(cancellation, log)
    with _watching(api, cancellation):
        print_log(log)
    assert log.ended is not None
    if interrupts.code is not None:
        return interrupts.code
    with suppress(UllageError):  # the program has ended already
        Api(api.transport.hurried(CANCEL_S)).close_session(session)
    if job.standard_input is None and has_input():
        caution(["the standard input was not sent to the program; --stdin sends it"])
    return exit_code(log.ended)


def _run_array(api: Api, cancellation: _Cancellation, interrupts: Interrupts, array: Array) -> int:
    interrupts.cancel = cancellation.run
    with _watching(api, cancellation):
        code = follow_array(api, cancellation.session, array)
    return code if interrupts.code is None else interrupts.code


@contextmanager
def _watching(api: Api, cancellation: _Cancellation) -> Iterator[None]:
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
    _, cancellation = _begin(job_of(arguments))
    print(cancellation.session)
    return 0


def _begin(job: JobRequest) -> tuple[Api, _Cancellation]:
    """Create the session and submit its tasks.

    Raises:
        Unplaceable: no node can ever hold it, and `--wait` is not given.

    """
    api = reach(start=True)
    session, warnings = program.create(api, job.name, job.options, job.array)
    cancellation = _Cancellation(api, session)
    try:
        program.submit(api, session, job.argv, job.environment, standard_input=job.standard_input, array=job.array)
        if not job.wait:
            refuse_unplaceable(api, api.session(session))
        if job.notify_command is not None:
            program.notify(api, session, job.notify_command, job.options, environment=job.environment)
        caution(warnings)
    except BaseException:
        cancellation.run()
        raise
    return api, cancellation


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
