"""Pickles of exceptions that keep notes, cause and context.

Python pickles an exception as a call of its class with `args`. That fails if `__init__` takes other arguments, and
leaves out `__cause__` and `__context__`. Here each exception of the chain is pickled separately, and so is each
exception that another one holds as an attribute.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]  # it has no types

from ullage.worker import failure
from ullage.worker.service import TaskFailed

_LONGEST = 32
"""The most exceptions of one chain that are pickled."""


class _Link(NamedTuple):
    """One exception of a chain: its pickle, and the positions of its cause and context in the chain."""

    data: bytes
    cause: int | None
    context: int | None
    suppresses_context: bool


class _Chain(NamedTuple):
    """Exceptions that caused each other, first the one that the task raised."""

    links: tuple[_Link, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _assemble, (self.links,)


def dump(error: BaseException) -> bytes:
    """Return the pickle of an exception.

    Raises:
        Exception: the exception has an attribute that cannot be pickled.

    """
    return pickle.dumps(_Chain(_links(error, frozenset(), _dump_one)), pickle.HIGHEST_PROTOCOL)


_Dump = Callable[[BaseException, frozenset[int]], bytes]


def _links(error: BaseException, above: frozenset[int], dump_first: _Dump) -> tuple[_Link, ...]:
    """Return an exception, its causes and contexts; `above` are the ids of the exceptions that hold it."""
    chain = list(_chain(error, above))
    places = {id(each): place for place, each in enumerate(chain)}
    within = above | places.keys()
    return tuple(
        _Link(
            (dump_first if each is error else _dump_or_describe)(each, within),
            places.get(id(each.__cause__)),
            places.get(id(each.__context__)),
            each.__suppress_context__,
        )
        for each in chain
    )


def _chain(error: BaseException, above: frozenset[int]) -> Iterator[BaseException]:
    """Yield an exception, its cause and context, and theirs, each once."""
    waiting, seen = [error], set(above)
    longest = len(above) + _LONGEST
    while waiting and len(seen) < longest:
        each = waiting.pop(0)
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [other for other in (each.__cause__, each.__context__) if other is not None]


def _dump_one(error: BaseException, above: frozenset[int]) -> bytes:
    """Return a pickle that can be loaded: by the rules of the class, else by its fields."""
    try:
        data = _pickled(error, above, by_fields=False)
        if type(pickle.loads(data)) is type(error):  # noqa: S301  # it was pickled just now
            return data
    except Exception:  # noqa: BLE001, S110  # user classes may do anything when pickled
        pass
    data = _pickled(error, above, by_fields=True)
    pickle.loads(data)  # noqa: S301  # as above
    return data


def _dump_or_describe(error: BaseException, above: frozenset[int]) -> bytes:
    """Return a pickle of the exception, or of a `TaskFailed` with its text if it cannot be pickled."""
    try:
        return _dump_one(error, above)
    except Exception:  # noqa: BLE001  # user classes may do anything when pickled
        return pickle.dumps(TaskFailed(failure.bounded(failure.describe(error))))


def _pickled(error: BaseException, above: frozenset[int], *, by_fields: bool) -> bytes:
    file = io.BytesIO()
    _Pickler(file, error, above, by_fields=by_fields).dump(error)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles one exception. Exceptions that it holds, such as members of a group, become chains of their own."""

    def __init__(self, file: io.BytesIO, error: BaseException, above: frozenset[int], *, by_fields: bool) -> None:
        super().__init__(file)
        self._error = error
        self._above = above
        self._by_fields = by_fields

    def reducer_override(self, obj: Any) -> Any:
        """Return how to rebuild an object; `NotImplemented` selects the rules of its class."""
        if obj is self._error and self._by_fields:
            args = (obj.message, obj.exceptions) if isinstance(obj, BaseExceptionGroup) else obj.args
            return _rebuild, (type(obj), args, obj.__dict__)
        if isinstance(obj, BaseException) and id(obj) not in self._above:
            return _assemble, (_links(obj, self._above, _dump_or_describe),)
        return super().reducer_override(obj)


def _rebuild(kind: type[BaseException], args: tuple[Any, ...], fields: dict[str, Any]) -> BaseException:
    """Return an exception without calling its `__init__`, which may need other arguments than `args`."""
    built_in = next(base for base in kind.__mro__ if base.__module__ == "builtins")  # classes may have own `__new__`
    error: BaseException = built_in.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


def _assemble(links: tuple[_Link, ...]) -> BaseException:
    """Return the first exception of a chain, with the others as causes and contexts."""
    errors: list[BaseException] = [pickle.loads(link.data) for link in links]  # noqa: S301  # the caller's own task
    for error, link in zip(errors, links, strict=True):
        error.__cause__ = None if link.cause is None else errors[link.cause]
        error.__context__ = None if link.context is None else errors[link.context]
        error.__suppress_context__ = link.suppresses_context  # setting a cause sets it
    first, *_ = errors
    return first
