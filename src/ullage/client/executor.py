"""A session in the form of `concurrent.futures.Executor`."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, Unpack

from ullage.client.client import connect
from ullage.client.future import TaskFuture
from ullage.client.spec import SessionOptions

T = TypeVar("T")


class Executor(concurrent.futures.Executor):
    """A replacement for `ProcessPoolExecutor`: one session, with the options of `Client.session`.

    Raises:
        Unavailable: no server answers, and no local one can be started.
        InvalidRequest: an option is invalid.

    """

    def __init__(
        self, endpoint: str | None = None, token: str | None = None, **options: Unpack[SessionOptions]
    ) -> None:
        self._process = os.getpid()
        self._client = connect(endpoint, token)
        self._down = threading.Lock()  # acquired once, by the first shutdown
        try:
            self.session = self._client.session(**options)
        except BaseException:
            self._client.close()
            raise

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> TaskFuture[T]:
        """Call `fn(*args, **kwargs)` in an executor of the session.

        Raises:
            RuntimeError: after `shutdown`.

        """
        if self._down.locked():
            raise RuntimeError("cannot schedule new futures after shutdown")
        return self.session.submit(fn, *args, **kwargs)

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Yield results in order; `chunksize` calls make one task."""
        if self._down.locked():
            raise RuntimeError("cannot schedule new futures after shutdown")
        return self.session.map(fn, *iterables, timeout=timeout, chunksize=chunksize)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; close the session once the submitted ones have ended.

        Without `wait` a thread does that; the interpreter waits for it at its end.
        """
        if os.getpid() != self._process or not self._down.acquire(blocking=False):  # a fork does not own the session
            return
        if cancel_futures:
            self.session.cancel_pending()
        if wait:
            self._finish()
        else:
            threading.Thread(target=self._finish, name="ullage-shutdown").start()

    def _finish(self) -> None:
        try:
            self.session.close()
        finally:
            self._client.close()
