"""Functions, arguments and results as bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from inspect import isasyncgenfunction, isgeneratorfunction
from types import CodeType, FunctionType
from typing import Any

from ullage.client.sent import Cached, SentGlobals
from ullage.model.error import InvalidRequest, invalid
from ullage.worker.carried import Carried

_PLAIN = frozenset((type(None), bool, int, float, str, bytes))
"""Types that pickle the same with or without cloudpickle, which takes six times as long."""

MOST_INPUT = 510 << 20
"""The most bytes of one task: the server accepts a body of 512 MiB, which may have other tasks too."""

_CACHED = 64
"""Pickled functions that a session caches."""


def check_callable(function: object) -> None:
    """Refuse a value that cannot be called, or whose result cannot be sent back.

    Raises:
        InvalidRequest: it is not callable (often it is the result of a call), or it is a generator function.

    """
    if not callable(function):
        raise invalid("function", function, "give the function itself, and its arguments after it: submit(f, 1, 2)")
    asynchronous = isasyncgenfunction(function)
    if asynchronous or isgeneratorfunction(function):
        name = getattr(function, "__qualname__", function)
        kind, fix = ("n async", "a list from a coroutine function") if asynchronous else ("", "a list")
        text = f"function: {name} is a{kind} generator function, whose values cannot be sent back one by one"
        raise InvalidRequest(f"{text}; return {fix} instead", field="function")


def check_size(size: int) -> None:
    """Refuse a function and arguments that exceed a request to the server.

    Raises:
        InvalidRequest: they take more bytes than `MOST_INPUT`.

    """
    if size > MOST_INPUT:
        text = f"arguments: they and the function take {size:,} bytes, at most {MOST_INPUT:,} can be sent"
        raise InvalidRequest(f"{text}; write them to a file that executors read, and send its path", field="arguments")


def _refusal(field: str, named: Iterable[tuple[str, object]], error: Exception) -> InvalidRequest:
    """Return the error that names the value that cannot be pickled."""
    for name, value in named:
        try:
            SentGlobals().dump(value)
        except Exception as cause:  # noqa: BLE001  # user classes may do anything when pickled
            text = f"{field}: {name} ({type(value).__name__}) cannot be sent to an executor: {cause}"
            if not isinstance(cause, InvalidRequest):
                text += "; create it inside the function, or send plain data instead"
            return InvalidRequest(text, field=field)
    return InvalidRequest(f"{field}: cannot be sent to an executor: {error}", field=field)


def _parts(function: Callable[..., Any]) -> Iterator[tuple[str, object]]:
    """Yield the values that a plain function refers to: variables of enclosing functions, and globals."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not set yet
            yield f"its variable {name}", cell.cell_contents
    waiting, space = [code], function.__globals__
    while waiting:
        each = waiting.pop()
        waiting += [const for const in each.co_consts if isinstance(const, CodeType)]
        yield from ((f"its global {name}", space[name]) for name in each.co_names if name in space)


def load(data: bytes) -> Any:
    """Return a value from a worker. It comes from the caller's own functions and is trusted like them."""
    return pickle.loads(data)  # noqa: S301  # trusted: see above


Prepare = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Returns the function that is sent in place of another one."""


class SessionPickles:
    """Pickles the calls of one session, whose functions share the globals of their modules in a worker.

    Each function is pickled, with the globals that it uses, when it is first submitted.
    """

    def __init__(self) -> None:
        # By identity, with the function itself, so that its id is not reused.
        self._known: dict[int, tuple[object, bytes]] = {}
        self._sent = SentGlobals()

    def dump(self, function: Callable[..., Any], prepare: Prepare | None = None) -> bytes:
        """Return the bytes of `function`, or of what `prepare`, always the same, makes of it.

        Raises:
            InvalidRequest: it is not callable, or refers to a value that cannot be pickled; the value is named.

        """
        check_callable(function)
        known = self._known.get(id(function))
        if known is not None:
            _, data = known
            return data
        try:
            data = self._sent.dump(function if prepare is None else prepare(function))
        except Exception as error:
            raise _refusal("function", _parts(function), error) from error
        # Only functions: other callables have state that may change.
        if isinstance(function, FunctionType | Cached):
            if len(self._known) >= _CACHED:
                del self._known[next(iter(self._known))]
            self._known[id(function)] = (function, data)
        return data

    def dump_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], carried: Carried | None = None) -> bytes:
        """Return the arguments of one call, and the context of its caller.

        Raises:
            InvalidRequest: one of them cannot be pickled; it is named.

        """
        sent = (args, kwargs) if carried is None else (args, kwargs, carried)
        if not kwargs and _PLAIN.issuperset(map(type, args)):
            return pickle.dumps(sent, pickle.HIGHEST_PROTOCOL)
        try:
            return self._sent.dump(sent)
        except Exception as error:
            named = [*((f"argument {place + 1}", each) for place, each in enumerate(args)), *kwargs.items()]
            raise _refusal("arguments", named, error) from error
