"""Functions, arguments and what comes back, as bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it has no types

_PLAIN = frozenset((type(None), bool, int, float, str, bytes))
"""Types that pickle the same with or without cloudpickle, which costs six times as much."""

_KEPT = 64
"""Pickled functions that a session keeps."""


def dump_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The arguments of one call."""
    if not kwargs and _PLAIN.issuperset(map(type, args)):
        return pickle.dumps((args, kwargs), pickle.HIGHEST_PROTOCOL)
    data: bytes = cloudpickle.dumps((args, kwargs))
    return data


def load(data: bytes) -> Any:
    """A value from a worker. It was made by the caller's own functions: it is trusted as they are."""
    return pickle.loads(data)  # noqa: S301  # trusted: see above


class PickledFunctions:
    """Each function pickled once: as it is, with the globals it uses, when it is first submitted."""

    def __init__(self) -> None:
        # By identity, with the function itself, so that its id is not used again.
        self._known: dict[int, tuple[object, bytes]] = {}

    def dump(self, function: Callable[..., Any]) -> bytes:
        """The bytes of `function`."""
        known = self._known.get(id(function))
        if known is not None:
            return known[1]
        data: bytes = cloudpickle.dumps(function)
        # Only plain functions: another callable carries state, which may be different next time.
        if isinstance(function, FunctionType):
            if len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[id(function)] = (function, data)
        return data
