"""The built-in service `function`: runs Python callables.

The input of a task is a pickle of `(args, kwargs)` with the pickled function as its shared data, or, without shared
data, a pickle of `(function, args, kwargs)`; the context of the caller (`Carried`) may follow. Its output is the pickle
of the result, or of the exception with the traceback as a note (code 1). A coroutine function runs to its end in an
event loop of its own.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from types import CoroutineType
from typing import Any, TypeVar

import cloudpickle  # type: ignore[import-untyped]  # it has no types

from ullage.model.task import MAX_SHARED_DATA
from ullage.worker import failure, raised
from ullage.worker.carried import run_within
from ullage.worker.context import Context
from ullage.worker.loop import Stopped
from ullage.worker.received import STATE, Loaded, load
from ullage.worker.service import Task, TaskFailed

_PLAIN = (type(None), bool, int, float, str, bytes)
"""Types that pickle the same with or without cloudpickle, which costs more to start."""


class FunctionService:
    """Calls functions. It keeps the last ones that it unpickled, as they keep what a call leaves in them."""

    def __init__(self) -> None:
        self._by_id: dict[int, Loaded] = {}
        self._by_data: dict[bytes, Loaded] = {}

    def on_session_enter(self, context: Context) -> None:  # noqa: ARG002  # as every service has it
        """Forget the session before: each numbers its shared data from 1."""
        self._forget()

    def on_session_leave(self) -> None:
        """Forget the functions of the session and their globals."""
        self._forget()

    def _forget(self) -> None:
        self._by_id.clear()
        self._by_data.clear()
        STATE.clear()

    def on_task_invoke(self, task: Task) -> bytes:
        """Call the function.

        Raises:
            TaskFailed: the function raised, or input or result cannot be pickled.
            Stopped: the executor must end.

        """
        try:
            if task.shared_id is None:
                function, args, kwargs, *carried = load(task.input).value
            else:
                function = self._function(task.shared_id, task.shared).with_its_globals()
                args, kwargs, *carried = load(task.input).value
            result = run_within(next(iter(carried), None), partial(call, function, args, kwargs))
            if type(result) in _PLAIN:
                return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
            return _dump(result)
        except Stopped:  # this executor must end
            raise
        except BaseException as error:  # noqa: BLE001  # user code: any exception, also SystemExit, fails this task only
            raise failed(error, skip=3) from None

    def _function(self, shared_id: int, data: bytes | None) -> Loaded:
        """Return a function by the id of its data, or by the data: each submission gives it another id."""
        known = self._by_id.get(shared_id)
        if known is not None:
            return known
        if data is None:
            raise LookupError(f"the function (shared data {shared_id}) did not reach this executor")
        loaded = self._by_data.pop(data, None) or load(data)
        _put_last(self._by_data, data, loaded)
        _put_last(self._by_id, shared_id, loaded)
        return loaded


K = TypeVar("K")


def _put_last(loaded: dict[K, Loaded], key: K, value: Loaded) -> None:
    """Add a function, and drop the first one of too many."""
    loaded[key] = value
    if len(loaded) > MAX_SHARED_DATA:
        del loaded[next(iter(loaded))]


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a function returns; a coroutine runs to its end first."""
    result = function(*args, **kwargs)
    return _run(result) if isinstance(result, CoroutineType) else result


def _run(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in an event loop of its own."""
    import asyncio  # noqa: PLC0415  # the import takes longer than the start of an executor

    return asyncio.run(coroutine)


def failed(error: BaseException, skip: int) -> TaskFailed:
    """Return the failure of a task whose function raised `error`. `skip` outermost frames are the worker's."""
    trace = failure.bounded(failure.trace(error, skip=skip))
    message = failure.bounded(f"{failure.describe(error)}\n\n{trace}")
    error.add_note(f"\nIn the worker:\n{trace}")
    error.__traceback__ = None
    output: bytes | None
    try:
        output = raised.dump(error)
    except Exception:  # noqa: BLE001  # user classes may do anything when pickled
        output = None
    return TaskFailed(message, output=output)


def _dump(value: object) -> bytes:
    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:
        text = f"the result ({type(value).__name__}) cannot be sent back: {error}; return plain data instead"
        raise TypeError(text) from error
    return data
