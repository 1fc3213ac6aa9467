"""The future of one task, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ullage.client.future import TaskFuture
from ullage.client.unsendable import Unsendable

T = TypeVar("T")


class AsyncTaskFuture(Unsendable, asyncio.Future[T]):
    """An `asyncio.Future` whose work runs under a session. Cancelling it, or who awaits it, cancels the task.

    `await` returns the value of the task, or raises its exception, with the traceback of the worker as a note.
    """

    _instead = "send its result: await it first"

    def __init__(self, future: TaskFuture[T], cancel: Callable[[TaskFuture[T]], object]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._task_future = future
        self._cancel_task = cancel
        self.add_done_callback(self._pass_on_cancellation)
        future.add_done_callback(self._end_soon)

    @property
    def task(self) -> int | None:
        """Return the id of the task, None until the server has accepted it."""
        return self._task_future.task

    def _end_soon(self, future: Any) -> None:
        """End in the thread of the loop; this is called in any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.get_loop().call_soon_threadsafe(partial(self._end, future))

    def _end(self, future: TaskFuture[T]) -> None:
        if self.done():
            return
        if future.cancelled():
            self.cancel()
            return
        error = future.exception()
        if error is None:
            self.set_result(future.result())
        elif isinstance(error, StopIteration):  # it would end the coroutine that awaits it (PEP 479)
            changed = RuntimeError("the task raised StopIteration")
            changed.__cause__ = error
            self.set_exception(changed)
        else:
            self.set_exception(error)

    def _pass_on_cancellation(self, _: object) -> None:
        if self.cancelled() and not self._task_future.done():
            self._cancel_task(self._task_future)


async def ended(future: TaskFuture[Any]) -> None:
    """Wait until a future has ended, however it does. The wait may be cancelled without it."""
    if future.done():
        return
    loop = asyncio.get_running_loop()
    waiting = loop.create_future()
    future.add_done_callback(lambda _: _wake(loop, waiting))
    await waiting


def _wake(loop: asyncio.AbstractEventLoop, waiting: asyncio.Future[None]) -> None:
    """Wake who waits, from any thread."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(_set, waiting)


def _set(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():  # else who waited was cancelled
        waiting.set_result(None)


async def until_called(register: Callable[[Callable[[], object]], object]) -> None:
    """Wait until the function that `register` gets is called, from any thread."""
    loop = asyncio.get_running_loop()
    waiting = loop.create_future()
    register(lambda: _wake(loop, waiting))
    await waiting
