"""A few threads of an asyncio client, which make its blocking calls."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ullage.client.future import TaskFuture, cancel_together
from ullage.model.counted import counted
from ullage.model.error import Conflict, UllageError

THREADS = 4
"""The most threads of one client; each keeps a connection."""

T = TypeVar("T")
P = ParamSpec("P")
_END = object()


class Offload:
    """Threads for calls that wait for the server. More calls than threads wait for one another."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "ullage-async")
        self._closed = False
        self._lock = threading.Lock()
        self._unwanted: list[TaskFuture[Any]] = []

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `function` returns in one of the threads, with the context variables of the caller.

        The call is not interrupted when the coroutine that waits for it is cancelled.

        Raises:
            Conflict: the client is closed (`client-closed`).

        """
        if self._closed:
            raise Conflict("the client is closed; create a new one with ullage.aconnect()", code="client-closed")
        call = partial(copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def cancel(self, future: TaskFuture[Any]) -> None:
        """Cancel a task in one of the threads, those that come meanwhile together.

        Tasks that no server accepts to cancel are warned of.
        """
        with self._lock:
            self._unwanted.append(future)
            if len(self._unwanted) > 1:  # a thread takes it with the others
                return
        with suppress(RuntimeError):  # the client is closed
            self._threads.submit(self._cancel_unwanted)

    def _cancel_unwanted(self) -> None:
        with self._lock:
            futures, self._unwanted = self._unwanted, []
        try:
            cancel_together(futures)
        except UllageError as error:
            first, *others = futures
            which = f"{counted(len(futures), 'task')} are" if others else f"task {first.task} is"
            warnings.warn(f"{which} not cancelled: {error.message}", stacklevel=1)

    async def close(self) -> None:
        """Wait for the calls in the threads, such as cancellations, and let the threads end."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)


async def in_own_thread(iterator: Iterator[T], give_up: Callable[[], object]) -> AsyncGenerator[T, None]:
    """Yield the values of an iterator that waits for an unknown time, from a thread of its own.

    `give_up` ends a wait of the iterator, from another thread.
    """
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, "ullage-stream")
    try:
        while (value := await loop.run_in_executor(thread, next, iterator, _END)) is not _END:
            yield value  # type: ignore[misc]  # it is not the end
    finally:
        give_up()
        thread.shutdown(wait=False)


class HasOffload(Protocol):
    """A part of the asyncio client: `offload` makes the calls of `sync`, its blocking twin."""

    @property
    def offload(self) -> Offload:
        """Return the threads."""

    @property
    def sync(self) -> Any:
        """Return the blocking twin."""


def offloaded(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the coroutine method that calls a method of the blocking twin, with its signature and docstring."""

    @wraps(method)
    async def call(self: HasOffload, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.offload.run(method, self.sync, *args, **kwargs)

    return call


class _Entered(Protocol):
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


E = TypeVar("E", bound=_Entered)


class Unopened(Generic[E]):
    """What will be open: `await` opens it, `async with` opens it and closes it at its end."""

    def __init__(self, open_it: Callable[[], Coroutine[Any, Any, E]]) -> None:
        self._open = open_it
        self._opened: E | None = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name}: it is not open yet; use `async with`, or `await` it first")

    def __await__(self) -> Generator[Any, Any, E]:
        """Return the opened object."""
        return self._open().__await__()

    async def __aenter__(self) -> E:
        self._opened = await self._open()
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)
