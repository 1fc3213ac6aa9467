"""A session of a client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, BinaryIO, ParamSpec, Self, TypeVar, Unpack, overload

from ullage.client.api import Api, LogPart
from ullage.client.async_future import AsyncTaskFuture, ended, until_called
from ullage.client.chunk import each_result
from ullage.client.future import TaskFuture
from ullage.client.log import LogPiece, TaskLog
from ullage.client.map_futures import MapFutures
from ullage.client.mapping import MapOptions, MapPlan
from ullage.client.offload import Offload, in_own_thread, offloaded
from ullage.client.program import ProgramEnds, ProgramResult, program_of, run_program
from ullage.client.progress import shown_progress
from ullage.client.results import outcome_of, result_of
from ullage.client.session import Session
from ullage.client.session_log import SessionLog, TaskPiece
from ullage.client.shown_logs import ShownLogs
from ullage.client.transport import Transport
from ullage.client.unsendable import Unsendable
from ullage.wire.session import TaskBody

T = TypeVar("T")
P = ParamSpec("P")


class AsyncSession(Unsendable):
    """A session on a server, which runs tasks; `AsyncClient.session` and `AsyncClient.open_session` return it.

    Leaving its `async with` block waits for the submitted tasks and closes the session; an exception in the block, or
    the cancellation of the coroutine, cancels it. A session from `open_session` stays open.
    """

    _instead = "open it inside the function, with ullage.connect().open_session(NAME)"

    def __init__(self, session: Session, offload: Offload, transport: Transport) -> None:
        self.id = session.id
        self.sync = session
        self.offload = offload
        self._transport = transport

    def __repr__(self) -> str:
        return f"AsyncSession({self.id!r})"

    def _repr_html_(self) -> str:
        return self.sync._repr_html_()  # it takes seconds at most

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            try:
                await self.wait()
            except BaseException as interruption:  # cancelled
                await self._leave(type(interruption), interruption, interruption.__traceback__)
                raise
        await self._leave(kind, error, trace)

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(self.offload.run(self.sync.__exit__, kind, error, trace))

    # --- work ---

    @overload
    def submit(
        self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncTaskFuture[T]: ...
    @overload
    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> AsyncTaskFuture[T]: ...
    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> AsyncTaskFuture[Any]:
        """Call `function(*args, **kwargs)` in an executor; `await` the future for the result.

        It never waits for room: whoever submits without awaiting results keeps all arguments in memory.

        Raises:
            InvalidRequest: it is not callable, or a value cannot be sent or is too large.

        """
        return self._future(self.sync.calls.submit(function, args, kwargs, blocks=False))

    def run(self, data: bytes) -> AsyncTaskFuture[bytes | None]:
        """Submit a raw task: the worker of the application receives `data` and returns the output.

        Raises:
            InvalidRequest: `data` is not bytes, or is too large to be sent.

        """
        return self._future(self.sync.calls.run(data, blocks=False))

    def _future(self, future: TaskFuture[T]) -> AsyncTaskFuture[T]:
        return AsyncTaskFuture(future, self.offload.cancel)

    @overload
    def map(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *iterables: Iterable[Any],
        **options: Unpack[MapOptions],
    ) -> AsyncIterator[T]: ...
    @overload
    def map(
        self,
        function: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        **options: Unpack[MapOptions],
    ) -> AsyncIterator[T]: ...
    @overload
    def map(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *iterables: Iterable[Any],
        return_exceptions: bool,
        **options: Unpack[MapOptions],
    ) -> AsyncIterator[T | BaseException]: ...
    @overload
    def map(
        self,
        function: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        return_exceptions: bool,
        **options: Unpack[MapOptions],
    ) -> AsyncIterator[T | BaseException]: ...
    def map(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        return_exceptions: bool = False,
        **options: Unpack[MapOptions],
    ) -> AsyncIterator[Any]:
        """Call `function` with one item of each iterable at a time, as `Session.map` does with the same options.

        The iterables are read in another thread. The remaining calls are cancelled after a failure, after a timeout,
        and when the iterator or the coroutine that uses it is closed or cancelled; with a `key` they go on.

        Raises:
            InvalidRequest: an option is unknown or has a wrong value, or `function` is not callable.
            TimeoutError: from the iterator, `timeout` seconds after this call.

        """
        plan = self.sync.calls.plan(function, options, keeps_failures=return_exceptions)
        shown = self.sync.calls.shown_logs(plan)
        submit = partial(self.sync.calls.submit_map, function, iterables, plan, shown=shown)
        starting = asyncio.ensure_future(self.offload.run(submit))
        return self._results(starting, plan, shown)

    async def _results(
        self, starting: asyncio.Future[MapFutures], plan: MapPlan, shown: ShownLogs | None
    ) -> AsyncIterator[Any]:
        take = outcome_of if plan.keeps_failures else result_of
        left: dict[TaskFuture[Any], None] = {}
        submitting: asyncio.Future[Any] = starting
        try:
            futures = await asyncio.shield(starting)
            left = dict.fromkeys(futures)
            total = futures.total if plan.buffersize is None else None
            arranged = _in_order(futures) if plan.ordered else _as_they_end(futures)
            with shown_progress(total) if plan.progress else nullcontext(lambda: None) as advance:
                while left:
                    future = await asyncio.wait_for(anext(arranged), plan.deadline.remaining())
                    del left[future]
                    if plan.buffersize is not None:
                        submitting = asyncio.ensure_future(self.offload.run(futures.submit))
                        left.update(dict.fromkeys(await asyncio.shield(submitting)))
                    result = take(future, None)
                    for each in (result,) if plan.chunksize == 1 else each_result(result):
                        yield each
                    advance()
            if shown is not None:
                await self.offload.run(shown.wait, futures.total)
        finally:
            if shown is not None:
                shown.close()
            if not submitting.done() or left:
                self._give_up(submitting, left)

    def _give_up(self, submitting: asyncio.Future[Iterable[TaskFuture[Any]]], left: Iterable[TaskFuture[Any]]) -> None:
        """Cancel the calls of a map, also those that are submitted at this moment."""

        def cancel(done: asyncio.Future[Iterable[TaskFuture[Any]]]) -> None:
            added = () if done.cancelled() or done.exception() is not None else done.result()
            self.sync.calls.exchange.cancel_soon([*left, *added])

        submitting.add_done_callback(cancel)

    async def invoke(self, data: bytes) -> bytes | None:
        """Run a raw task to its end.

        Raises:
            TaskFailed: it did not succeed.

        """
        return await self.run(data)

    async def wait(self) -> None:
        """Wait until all tasks submitted here have ended."""
        await until_called(self.sync.calls.exchange.when_all_ended)

    # --- the session ---

    status = offloaded(Session.status)
    why = offloaded(Session.why)
    expected_start = offloaded(Session.expected_start)
    update = offloaded(Session.update)
    cancel = offloaded(Session.cancel)
    cancel_pending = offloaded(Session.cancel_pending)

    async def tasks(self) -> AsyncIterator[TaskBody]:
        """Yield all tasks of the session, which are fetched page by page."""
        tasks = self.sync.tasks()
        while (task := await self.offload.run(next, tasks, None)) is not None:
            yield task

    def log(
        self, task: int, *, follow: bool = False, tail: int | None = None, within_s: float | None = None
    ) -> AsyncIterator[LogPiece]:
        """Yield what a task has printed, as `Session.log` does, as it arrives; with `follow` until it ends.

        A followed log has a thread and a connection of its own.
        """
        log = TaskLog(Api(self._transport.another()), self.id, task, LogPart(tail, within_s), follow=follow)
        return in_own_thread(iter(log), log.give_up)

    def logs(
        self, *, follow: bool = False, tail: int | None = None, within_s: float | None = None
    ) -> AsyncIterator[TaskPiece]:
        """Yield what all tasks have printed, as `log` does for one; with `follow` until the session is closed."""
        transport = self._transport.another()
        log = SessionLog(Api(transport), self.id, LogPart(tail, within_s), follow=follow)
        return in_own_thread(iter(log), transport.close)

    async def exec(
        self,
        argv: Sequence[str],
        *,
        task: int | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        stdout: BinaryIO | None = None,
        stderr: BinaryIO | None = None,
    ) -> ProgramResult:
        """Run another program in the executor of a running task, as `Session.exec` does.

        It has a thread and a connection of its own, also for writing to files. When the coroutine is cancelled, as by
        `asyncio.timeout`, the program gets SIGHUP, and SIGKILL 10 s later.

        Raises:
            NotFound: the task does not exist.
            Conflict: the task does not run (`task-not-running`), or the program did not end by itself, such as with
                its executor (`program-ended`).
            Unavailable: the server is gone, and so is the program (`program-lost`).

        """
        program = program_of(argv, env)
        ends = ProgramEnds(stdin, stdout, stderr)
        self._transport.require_open()
        transport = self._transport.another()
        api = Api(transport)
        results = in_own_thread((run_program(api, self.id, task, program, ends=ends) for _ in (None,)), transport.close)
        async with aclosing(results):
            return await anext(results)

    async def close(self) -> None:
        """Wait for the tasks submitted here, then close the session.

        Raises:
            Conflict: tasks of other clients still run.

        """
        await self.wait()
        await self.offload.run(self.sync.close)

    async def delete(self) -> None:
        """Close the session like `close`, then delete it with its tasks, results and events.

        Raises:
            Conflict: tasks of other clients still run.

        """
        await self.wait()
        await self.offload.run(self.sync.delete)


async def _in_order(futures: MapFutures) -> AsyncIterator[TaskFuture[Any]]:
    while futures:
        future = futures.take()
        await ended(future)
        yield future


async def _as_they_end(futures: MapFutures) -> AsyncIterator[TaskFuture[Any]]:
    queue: asyncio.Queue[TaskFuture[Any]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def put(future: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(queue.put_nowait, future)

    while True:
        while futures:
            futures.take().add_done_callback(put)
        yield await queue.get()
