"""What the tasks of a session print, shown on this terminal while they run."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Generator, Iterator
from typing import TypeVar

from ullage.client.api import Api
from ullage.client.map_futures import MapFutures
from ullage.client.prefixed import PrefixedOutput
from ullage.client.session_log import SessionLog
from ullage.model.error import UllageError

T = TypeVar("T")

_ANSWER_S = 60.0
_LAST_S = 2.0
"""The most seconds to wait for the last prints once all results are there."""


class ShownLogs:
    """Shows the output of the tasks that are submitted to a session from now on, until `around` ends."""

    def __init__(self, api: Api, session: str) -> None:
        self._api, self._session = api, session
        self._transport = api.transport.hurried(_ANSWER_S)
        self._complete = threading.Condition()
        self._count = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Show what the tasks print that are submitted from now on."""
        body = self._api.session(self._session)
        before = body.pending + body.running + body.succeed + body.failed + body.cancelled
        log = SessionLog(Api(self._transport), self._session, follow=True, after=before)
        self._thread = threading.Thread(target=self._show, args=(log,), name="ullage-logs", daemon=True)
        self._thread.start()

    def around(self, results: Iterator[T], futures: MapFutures) -> Generator[T, None, None]:
        """Yield the same results of the tasks of a map. Return once their output is shown too."""
        try:
            yield from results
            self.wait(futures.total)
        finally:
            self.close()

    def wait(self, total: int) -> None:
        """Wait a moment until the output of so many tasks is shown."""
        with self._complete:
            self._complete.wait_for(lambda: self._count >= total or self._closed, _LAST_S)

    def close(self) -> None:
        """Show nothing more."""
        self._closed = True
        self._transport.close()
        if self._thread is not None:
            self._thread.join(_LAST_S)

    def _show(self, log: SessionLog) -> None:
        output = PrefixedOutput()
        try:
            for piece in log:
                output.write(piece)
                if not piece.stream:
                    with self._complete:
                        self._count += 1
                        self._complete.notify_all()
        except UllageError as error:
            if not self._closed:
                warnings.warn(f"what the tasks print is not shown any more: {error.message}", stacklevel=1)
        finally:
            output.close()
            with self._complete:
                self._closed = True
                self._complete.notify_all()
