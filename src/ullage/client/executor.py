"""A session in the form of `concurrent.futures.Executor`."""

from __future__ import annotations

import atexit
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from ullage.client.client import Client, connect
from ullage.client.future import TaskFuture
from ullage.client.prepared import BrokenInitializer, Initializer
from ullage.client.session import Session
from ullage.client.spec import SessionOptions
from ullage.client.unsendable import Unsendable
from ullage.model.error import InvalidRequest, invalid

T = TypeVar("T")
P = ParamSpec("P")


class Executor(Unsendable, concurrent.futures.Executor):
    """A replacement for `ProcessPoolExecutor`: one session, with the options of `Client.session`.

    `max_workers` is the option `max_instances`. `initializer(*initargs)` is called once in each worker process before
    its first call; if it fails, calls raise a `BrokenExecutor` with the cause. As with the standard library, an
    executor that is dropped, or left open at the end of the program, ends after its calls.

    Raises:
        Unavailable: no server answers, and no local one can be started.
        InvalidRequest: an option is invalid.

    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        endpoint: str | None = None,
        token: str | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        if max_workers is not None:
            _check_workers(max_workers, options)
            options["max_instances"] = max_workers
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._max_workers = options.get("max_instances") or os.cpu_count() or 1  # dask submits so many at a time
        self._initializer = None if initializer is None else Initializer(initializer, initargs)
        self._broken: BrokenInitializer | None = None
        self._process = os.getpid()
        prepare = None if self._initializer is None else self._initializer.prepare
        self._client = connect(endpoint, token, prepare=prepare)
        self._down = threading.Lock()  # acquired once, by the first shutdown
        try:
            self.session = self._client.session(**options)
        except BaseException:
            self._client.close()
            raise
        _open.add(self)
        self._at_drop = weakref.finalize(self, _finish_soon, self.session, self._client)
        self._at_drop.atexit = False  # see `_shut_down_all`

    @overload
    def submit(
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskFuture[T]: ...
    @overload
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> TaskFuture[T]: ...
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> TaskFuture[Any]:
        """Call `fn(*args, **kwargs)` in an executor of the session.

        Raises:
            RuntimeError: after `shutdown`; a `BrokenExecutor` after the initializer failed.

        """
        self._require_open()
        future = self.session.submit(fn, *args, **kwargs)
        if self._initializer is not None:
            future.add_done_callback(self._note_failure)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Yield results in order; `chunksize` calls make one task.

        With `buffersize`, as in Python 3.14, the iterables are read when they are needed, and may be endless.

        Raises:
            RuntimeError: after `shutdown`; a `BrokenExecutor` after the initializer failed.
            TimeoutError: from the iterator, `timeout` seconds after this call.

        """
        self._require_open()
        return self.session.map(fn, *iterables, timeout=timeout, chunksize=chunksize, buffersize=buffersize)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; close the session once the submitted ones have ended.

        Without `wait` a thread does that; the interpreter waits for it at its end.
        """
        if os.getpid() != self._process or not self._down.acquire(blocking=False):  # a fork does not own the session
            return
        self._at_drop.detach()
        if cancel_futures:
            self.session.cancel_pending()
        if wait:
            _finish(self.session, self._client)
        else:
            _finish_soon(self.session, self._client)

    def _require_open(self) -> None:
        if self._down.locked():
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._broken is not None:
            raise BrokenInitializer("the initializer failed in an executor") from self._broken.__cause__

    def _note_failure(self, future: concurrent.futures.Future[Any]) -> None:
        if not future.cancelled() and isinstance(error := future.exception(), BrokenInitializer):
            self._broken = error


_open: weakref.WeakSet[Executor] = weakref.WeakSet()
"""Executors, some of which are to be shut down."""


@atexit.register
def _shut_down_all() -> None:
    for executor in list(_open):
        executor.shutdown()


def _finish(session: Session, client: Client) -> None:
    try:
        session.close()
    finally:
        client.close()


def _finish_soon(session: Session, client: Client) -> None:
    if client.transport.is_of_this_process:
        threading.Thread(target=_finish, args=(session, client), name="ullage-shutdown").start()


def _check_workers(max_workers: object, options: SessionOptions) -> None:
    if not isinstance(max_workers, int) or max_workers < 1:
        raise invalid("max_workers", max_workers, "a whole number from 1 is needed; an address is endpoint=...")
    if options.get("max_instances") is not None:
        text = "max_workers and max_instances are the same; give one of them"
        raise InvalidRequest(text, field="max_workers")
