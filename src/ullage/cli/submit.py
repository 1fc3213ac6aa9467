"""`ullage submit`: run a program as the task of a session, without waiting for it. `ullage run` begins like this."""

from __future__ import annotations

import argparse
import threading
from contextlib import suppress

from ullage.cli import program
from ullage.cli.exits import caution, complain
from ullage.cli.job import JobRequest, add_job, job_of
from ullage.client.api import Api
from ullage.client.local import reach
from ullage.client.patience import NotConnected
from ullage.client.placeable import refuse_unplaceable
from ullage.model.error import NotFound, UllageError, Unplaceable

CANCEL_S = 5.0
"""The most seconds to send a cancellation: a user waits for this command to end."""


def configure_submit(parser: argparse.ArgumentParser) -> None:
    add_job(parser)
    parser.set_defaults(act=_submit)


class Cancellation:
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


def _submit(arguments: argparse.Namespace) -> int:
    job = job_of(arguments)
    if job.standard_input is not None:
        job.standard_input.require_all()
    _, cancellation = begin(job)
    print(cancellation.session)
    return 0


def _is_filled(resreq: str, amounts: str) -> bool:
    """Return whether a request has more than the amounts that were stated, not only `gpu=0`."""
    stated = {entry.partition("=")[0] for entry in amounts.split(",")}
    filled = (entry.partition("=") for entry in resreq.split(","))
    return any(name in _AMOUNTS and name not in stated and value != "0" for name, _, value in filled)


_AMOUNTS = ("cpu", "mem", "gpu")


def begin(job: JobRequest) -> tuple[Api, Cancellation]:
    """Create the session and submit its tasks.

    Raises:
        Unplaceable: it can never be placed, and `--wait` is not given.

    """
    api = reach(start=True)
    body = program.create(api, job.name, job.options, array=job.array, amounts=job.amounts)
    session = body.id
    if job.amounts is not None and _is_filled(body.resreq, job.amounts):
        complain(f"{session} asks for {body.resreq}: what is left out of {job.amounts} has the defaults")
    cancellation = Cancellation(api, session)
    try:
        if not job.wait:
            refuse_unplaceable(api, body)
        program.submit(api, session, job.program, array=job.array)
        if job.notify_command is not None:
            program.notify(api, session, job.notify_command, job.options, environment=job.environment)
        caution(body.warnings)
    except Unplaceable:
        if cancellation.run():
            with suppress(UllageError):  # it is closed at least
                api.delete_session(session)
        raise
    except BaseException:
        cancellation.run()
        raise
    return api, cancellation
