"""A session of a client."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, BinaryIO, ParamSpec, Self, TypeVar, Unpack, overload

import msgspec

from ullage.client.api import Api, LogPart, list_tasks
from ullage.client.calls import SessionCalls
from ullage.client.chunk import flattened
from ullage.client.future import TaskFuture
from ullage.client.log import TaskLog
from ullage.client.mapping import MapOptions
from ullage.client.patience import Patience
from ullage.client.pickling import Prepare
from ullage.client.program import ProgramEnds, ProgramResult, program_of, run_program
from ullage.client.results import as_they_end, in_order, outcome_of, result_of, with_progress
from ullage.client.session_log import SessionLog
from ullage.client.spec import seconds_of
from ullage.client.unsendable import Unsendable
from ullage.model.error import Conflict, UllageError, Unavailable
from ullage.wire.explanation import Explanation
from ullage.wire.history import StartBody
from ullage.wire.session import SessionBody, TaskBody, UpdateSession

T = TypeVar("T")
P = ParamSpec("P")

_GIVE_UP_S = 5.0
"""The most seconds to send the cancellation after an exception."""

_CLOSE_S = 30.0
"""The most seconds that closing waits for cancelled tasks to end."""


class Session(Unsendable):
    """A session on a server, which runs tasks; `Client.session` and `Client.open_session` return it.

    Leaving its `with` block waits for the submitted tasks and closes the session; an exception in
    the block cancels it. A session from `open_session` stays open.
    """

    _instead = "open it inside the function, with ullage.connect().open_session(NAME)"

    def __init__(
        self,
        api: Api,
        body: SessionBody,
        *,
        keep_open: bool = False,
        carries_context: bool = True,
        prepare: Prepare | None = None,
    ) -> None:
        self.id = body.id
        self._api = api
        self._keep_open = keep_open
        self.calls = SessionCalls(api, body, stays_open=keep_open, carries_context=carries_context, prepare=prepare)
        self._exchange = self.calls.exchange

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    def _repr_html_(self) -> str:
        from ullage.client.notebook import session_html  # noqa: PLC0415  # only notebooks need it

        return session_html(self._api.transport, self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._exchange.is_of_this_process:  # the end of a fork, whose parent owns the session
            return
        if kind is not None:
            self._cancel_after_error()
            return
        try:
            self._exchange.wait()
        except BaseException:  # interrupted
            self._cancel_after_error()
            raise
        if self._keep_open:
            self._exchange.stop()
        else:
            self.close()

    # --- work ---

    @overload
    def submit(
        self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskFuture[T]: ...
    @overload
    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> TaskFuture[T]: ...
    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> TaskFuture[Any]:
        """Call `function(*args, **kwargs)` in an executor. A coroutine function runs in an event loop of its own.

        A function is pickled when it is first submitted, with the globals that it uses then.

        Raises:
            InvalidRequest: it is not callable, or a value cannot be sent or is too large.

        """
        return self.calls.submit(function, args, kwargs, blocks=True)

    @overload
    def map(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *iterables: Iterable[Any],
        **options: Unpack[MapOptions],
    ) -> Iterator[T]: ...
    @overload
    def map(
        self,
        function: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        **options: Unpack[MapOptions],
    ) -> Iterator[T]: ...
    @overload
    def map(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *iterables: Iterable[Any],
        return_exceptions: bool,
        **options: Unpack[MapOptions],
    ) -> Iterator[T | BaseException]: ...
    @overload
    def map(
        self,
        function: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        return_exceptions: bool,
        **options: Unpack[MapOptions],
    ) -> Iterator[T | BaseException]: ...
    def map(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        return_exceptions: bool = False,
        **options: Unpack[MapOptions],
    ) -> Iterator[Any]:
        """Call `function` with one item of each iterable at a time. All are submitted at once without a `buffersize`.

        Results come in order, or with `ordered=False` as they end. The first failure is raised; `return_exceptions`
        yields exceptions in the places of results. The remaining calls are cancelled after a failure, after a timeout,
        and when the iterator is closed early, as by `break`; with a `key` they go on. The other options are those of
        `ullage.client.mapping.MapOptions`.

        Raises:
            InvalidRequest: an option is unknown or has a wrong value, or `function` is not callable.
            TimeoutError: from the iterator, `timeout` seconds after this call.

        """
        plan = self.calls.plan(function, options, keeps_failures=return_exceptions)
        shown = self.calls.shown_logs(plan)
        futures = self.calls.submit_map(function, iterables, plan, shown)
        total = futures.total if plan.buffersize is None else None
        take = outcome_of if plan.keeps_failures else result_of
        arrange = in_order if plan.ordered else as_they_end
        results: Generator[Any, None, None] = arrange(futures, plan.deadline, self._exchange.cancel_soon, take)
        if shown is not None:
            results = shown.around(results, futures)
        if plan.progress:
            results = with_progress(results, total)
        return results if plan.chunksize == 1 else flattened(results)

    def run(self, data: bytes) -> TaskFuture[bytes | None]:
        """Submit a raw task: the worker of the application receives `data` and returns the output.

        Raises:
            InvalidRequest: `data` is not bytes, or is too large to be sent.

        """
        return self.calls.run(data, blocks=True)

    def invoke(self, data: bytes, timeout: float | None = None) -> bytes | None:
        """Run a raw task to its end.

        Raises:
            TaskFailed: it did not succeed.
            TimeoutError: it did not end in `timeout` seconds.

        """
        return self.run(data).result(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all tasks submitted here have ended. Return False after `timeout` seconds."""
        return self._exchange.wait(timeout)

    # --- the session ---

    def status(self) -> SessionBody:
        """Return the session now: its counts, its executors, and its deserved share."""
        return self._api.session(self.id)

    def why(self) -> Explanation:
        """Explain why the session has the executors that it has."""
        return self._api.why(self.id)

    def expected_start(self) -> StartBody:
        """Estimate when the session gets its first executor: a range with its chance, or why there is none."""
        return self._api.start(self.id)

    def tasks(self) -> Iterator[TaskBody]:
        """Yield all tasks of the session, which are fetched page by page."""
        return list_tasks(self._api, self.id)

    def log(
        self, task: int, *, follow: bool = False, tail: int | None = None, within_s: float | None = None
    ) -> TaskLog:
        """Return what a task has printed; with `follow` until it ends.

        `tail` is the number of the last lines of each stream, `within_s` the age of the oldest output in seconds.
        """
        return TaskLog(self._api, self.id, task, LogPart(tail, within_s), follow=follow)

    def logs(self, *, follow: bool = False, tail: int | None = None, within_s: float | None = None) -> SessionLog:
        """Return what all tasks have printed, as `log` does for one; with `follow` until the session is closed."""
        return SessionLog(self._api, self.id, LogPart(tail, within_s), follow=follow)

    def exec(
        self,
        argv: Sequence[str],
        *,
        task: int | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        stdout: BinaryIO | None = None,
        stderr: BinaryIO | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        """Run another program in the executor of a running task, as `ullage exec` does, and wait for its end.

        It has the user, cards, limits, environment and directory of the task, and `env` in addition. Without `task` it
        is the only one of the session. Its input is `stdin`. Its output is in the result, as bytes, or is written to
        the files `stdout` and `stderr` as it arrives.

        Raises:
            TimeoutError: it has not ended in `timeout` seconds. It gets SIGHUP, and SIGKILL 10 s later.
            NotFound: the task does not exist.
            Conflict: the task does not run (`task-not-running`), or the program did not end by itself, such as with
                its executor (`program-ended`).
            Unavailable: the server is gone, and so is the program (`program-lost`).

        """
        program, ends = program_of(argv, env), ProgramEnds(stdin, stdout, stderr)
        return run_program(self._api, self.id, task, program, ends=ends, timeout=timeout)

    def update(
        self,
        *,
        priority: int | msgspec.UnsetType = msgspec.UNSET,
        weight: int | msgspec.UnsetType = msgspec.UNSET,
        min_instances: int | msgspec.UnsetType = msgspec.UNSET,
        max_instances: int | msgspec.UnsetType | None = msgspec.UNSET,
        begin_at: datetime | float | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> SessionBody:
        """Change the given fields; the others stay. What can never be satisfied is a warning.

        Before `begin_at` no further task starts; None is at once.
        """
        changes = UpdateSession(
            priority=priority,
            weight=weight,
            min_instances=min_instances,
            max_instances=max_instances,
            begin_at=begin_at if begin_at is msgspec.UNSET else seconds_of(begin_at),
        )
        body = self._api.update_session(self.id, changes)
        for text in body.warnings:
            warnings.warn(text, stacklevel=2)
        return body

    def cancel(self) -> None:
        """Cancel all tasks, running ones too, and close the session."""
        self._exchange.require_here()
        self._exchange.abandon()
        self._api.cancel_session(self.id)
        self._exchange.stop()

    def cancel_pending(self) -> None:
        """Cancel the tasks that were submitted here and do not run yet."""
        self._exchange.cancel_pending()

    def close(self) -> None:
        """Wait for the tasks submitted here, then close the session.

        Raises:
            Conflict: tasks of other clients still run.

        """
        self._exchange.wait()
        patience = Patience(_CLOSE_S)
        while True:
            try:
                self._api.close_session(self.id)
                break
            except Conflict as refusal:
                if refusal.code != "tasks-running":
                    raise
                patience.wait(refusal)  # a cancelled task takes time to end
        self._exchange.stop()

    def delete(self) -> None:
        """Close the session like `close`, then delete it with its tasks, results and events.

        Raises:
            Conflict: tasks of other clients still run.

        """
        self.close()
        self._api.delete_session(self.id)

    def _cancel_after_error(self) -> None:
        """Cancel after an exception. Errors of the server must not hide the exception."""
        try:
            if self._keep_open:
                with suppress(UllageError):
                    self._exchange.cancel_each()
            else:
                self._exchange.abandon()
                self._cancel_soon()
        finally:
            self._exchange.stop()

    def _cancel_soon(self) -> None:
        """Cancel the session within seconds, or warn that no server accepted it."""
        transport = self._api.transport.hurried(_GIVE_UP_S)
        try:
            Api(transport).cancel_session(self.id)
        except Unavailable as error:
            text = f"session {self.id} is not cancelled: {error.message}"
            warnings.warn(f"{text}; `ullage cancel {self.id}` ends it once a server answers", stacklevel=4)
        except UllageError:  # closed or deleted meanwhile
            pass
        finally:
            transport.close()
