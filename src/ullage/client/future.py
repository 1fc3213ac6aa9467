"""The future of one task."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from ullage.client.log import TaskLog
from ullage.client.pickling import load
from ullage.client.retry import Attempts
from ullage.client.unsendable import Unsendable
from ullage.model.task import TaskState
from ullage.wire.session import Result
from ullage.worker.service import TaskFailed

T = TypeVar("T")

_ENDED = ("CANCELLED_AND_NOTIFIED", "FINISHED")
"""Final states of a `concurrent.futures.Future`."""

_LOGGER = logging.getLogger("concurrent.futures")
"""The logger of the standard library for exceptions of callbacks."""

Decode = Callable[[Result], Any]
"""Returns the value of an ended task, or raises its exception."""


class Server(Protocol):
    """The server of a task, as its future uses it."""

    def cancel(self, future: TaskFuture[Any]) -> bool:
        """Cancel one task, sent or not. Return False if it has ended."""

    def cancel_many(self, futures: Iterable[TaskFuture[Any]]) -> None:
        """Cancel tasks, sent or not, in a few requests. Futures of sent ones end with their results."""

    def is_running(self, future: TaskFuture[Any]) -> bool:
        """Return whether the task of a future runs."""

    def log(self, future: TaskFuture[Any], *, follow: bool) -> TaskLog:
        """Return what the task of a future has printed; with `follow` until it ends."""

    def require_here(self) -> None:
        """Raise if this process cannot receive results."""


class TaskFuture(Unsendable, Future[T]):
    """A `concurrent.futures.Future` whose work runs under a session.

    `task` is the id of the task, None until the server has accepted it. `result()` raises the exception of the task
    itself, with the traceback of the worker as a note; `TaskFailed` if it cannot. `may_resume` says that a later client
    can find the task again, so that it goes on without this one; `chunk` is the number of its calls in a chunk.
    """

    _instead = "send its result()"

    def __init__(self, decode: Decode, server: Server, *, may_resume: bool = False) -> None:
        super().__init__()
        self.task: int | None = None
        self.may_resume = may_resume
        self.chunk: int | None = None
        self._decode = decode
        self._server = server
        self._notifies = threading.Lock()
        self._attempts: Attempts | None = None
        self._unwanted = False  # cancelled by the caller: it is not tried again

    def retry_by(self, attempts: Attempts) -> None:
        """Have `attempts` decide after each failure whether the call is tried again."""
        self._attempts = attempts

    @property
    def _waiters(self) -> list[Any]:
        """Waiters for several futures; `wait` and `as_completed` of the standard library add themselves.

        Raises:
            Conflict: the future cannot end in this process (`client-forked`).

        """
        if self._state not in _ENDED:
            self._server.require_here()
        return self._waiting

    @_waiters.setter
    def _waiters(self, waiters: list[Any]) -> None:
        self._waiting = waiters

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call `fn` with this future when it ends. Exceptions of `fn` are logged and end no thread of the client."""
        super().add_done_callback(partial(_call_back, fn))

    def result(self, timeout: float | None = None) -> T:
        """Return the value of the task, or raise its exception.

        Raises:
            TimeoutError: it did not end in `timeout` seconds.
            Conflict: its client was created before a fork (`client-forked`).

        """
        if not self.done():
            self._server.require_here()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception of the task, None if it succeeded; raises as `result` does."""
        if not self.done():
            self._server.require_here()
        return super().exception(timeout)

    def running(self) -> bool:
        """Return whether the task runs now, according to the server.

        Raises:
            UllageError: the server does not answer, or the session is deleted.

        """
        return not self.done() and self._server.is_running(self)

    def log(self, *, follow: bool = False) -> TaskLog:
        """Return what the task has printed; with `follow` until it ends. Iteration gives pieces of both streams.

        Raises:
            Conflict: the server did not accept the task (`not-submitted`).

        """
        return self._server.log(self, follow=follow)

    def cancel(self) -> bool:
        """Cancel the task, also while it runs. Return False if it has ended.

        Raises:
            UllageError: the server does not accept the cancellation.

        """
        if self.done():
            return self.cancelled()
        self.give_up()
        return self._server.cancel(self)

    @property
    def server(self) -> Server:
        """Return the server of its task."""
        return self._server

    def give_up(self) -> None:
        """Note that nobody wants the result, so that the call is not tried again."""
        self._unwanted = True

    def become_cancelled(self) -> bool:
        """End as cancelled, unless it has ended otherwise."""
        if not super().cancel():
            return False
        if self._notifies.acquire(blocking=False):  # once: it may be cancelled here, and then by its result
            self.set_running_or_notify_cancel()  # wakes waiters for several futures
        return True

    def fail(self, error: BaseException) -> None:
        """End with `error`, unless it has ended."""
        with suppress(InvalidStateError):
            self.set_exception(error)

    def finish(self, result: Result) -> None:
        """End with the result of the task, unless it was cancelled here before."""
        if result.state == TaskState.CANCELLED:
            self.become_cancelled()
            return
        try:
            value = self._decode(result)
        except BaseException as error:  # noqa: BLE001  # the task's own exception, whatever it is
            if not self._tries_again(error):
                self.fail(error)
            return
        with suppress(InvalidStateError):
            self.set_result(value)

    def _is_unwanted(self) -> bool:
        return self._unwanted  # set by another thread at any time

    def _tries_again(self, error: BaseException) -> bool:
        if self._attempts is None or self._is_unwanted() or self.done():
            return False
        ended, self.task = self.task, None
        if not self._attempts.again(error):
            self.task = ended
            return False
        if self._is_unwanted():  # cancelled in this moment
            self._server.cancel(self)
        return True


def _call_back(fn: Callable[[Future[T]], object], future: Future[T]) -> None:
    """Call `fn`. Outside of the main thread, `sys.exit()` in it is logged like any other exception."""
    try:
        fn(future)
    except Exception:
        raise
    except BaseException:
        if threading.current_thread() is threading.main_thread():
            raise
        _LOGGER.exception("exception calling callback for %r", future)


def decode_bytes(result: Result) -> bytes | None:
    """Return the output of a raw task.

    Raises:
        TaskFailed: it did not succeed.

    """
    if result.state == TaskState.SUCCEED:
        return result.output
    raise _failure(result)


def decode_value(result: Result) -> Any:
    """Return the result of a function task.

    Raises:
        BaseException: the exception of the function; TaskFailed if that cannot be loaded.

    """
    if result.state == TaskState.SUCCEED:
        return None if result.output is None else _loaded(result.task, result.output)
    raise exception_of(result.output, result.message) or _failure(result)


def _loaded(task: int, output: bytes) -> Any:
    try:
        return load(output)
    except Exception as error:
        error.add_note(f"task {task} succeeded, but its result cannot be unpickled in this process")
        raise


def exception_of(output: bytes | None, message: str) -> BaseException | None:
    """Return the exception in the output of a failed function; None if it was not or cannot be pickled."""
    if output is None:  # its worker was lost, or the exception could not be pickled
        return None
    try:
        error = load(output)
    except Exception:  # noqa: BLE001  # a class this side lacks, or one that does not unpickle
        return None
    if not isinstance(error, BaseException):
        return None
    if not getattr(error, "__notes__", None):  # an exception with its own way of pickling loses its notes
        error.add_note(f"\nIn the worker:\n{message}")
    return error


def _failure(result: Result) -> TaskFailed:
    text = result.message or f"task {result.task} ended with code {result.code}"
    return TaskFailed(text, code=result.code, output=result.output)


def cancel_together(futures: Iterable[TaskFuture[Any]]) -> None:
    """Cancel several futures, of any sessions, in a few requests.

    Raises:
        UllageError: a server does not accept it.

    """
    by_server: dict[Server, list[TaskFuture[Any]]] = {}
    for future in futures:
        by_server.setdefault(future.server, []).append(future)
    for server, some in by_server.items():
        server.cancel_many(some)
