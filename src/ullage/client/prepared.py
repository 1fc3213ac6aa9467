"""Functions that need an initializer to have run in their process, as those of `concurrent.futures` do."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any, ClassVar

Globals = dict[str, Any]
"""The global variables of a function."""


class BrokenInitializer(BrokenExecutor):
    """The initializer of an `ullage.Executor` failed; the cause says how."""


class Initializer:
    """Calls a function once in each process that unpickles it."""

    _done: ClassVar[dict[str, Globals]] = {}
    """The initializers that this process has called, each with the globals that it has set."""

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._id = uuid.uuid4().hex
        self._ready = False

    def prepare(self, function: Callable[..., Any]) -> Prepared:
        """Return a function that calls `function` once the initializer has run."""
        return Prepared(self, function)

    def require(self) -> None:
        """Call the initializer, unless this process has done so.

        A function of a script comes by value, and each copy of it has globals of its own: a later copy gets what the
        initializer has set in those of the first.

        Raises:
            BrokenInitializer: it failed, now or before.

        """
        if self._ready:
            return
        space: Globals = getattr(self._function, "__globals__", {})
        if self._id not in self._done:
            before = dict(space)
            try:
                self._function(*self._args)
            except Exception as error:
                raise BrokenInitializer("the initializer failed in an executor") from error
            changed = {name: value for name, value in space.items() if before.get(name, self) is not value}
            self._done[self._id] = {} if _is_of_module(space) else changed
        else:
            space.update(self._done[self._id])
        self._ready = True


def _is_of_module(space: Globals) -> bool:
    """Return whether globals are those of a module of this process, which all functions of the module share."""
    module = sys.modules.get(space.get("__name__", ""))
    return module is not None and vars(module) is space


class Prepared:
    """A function with its initializer."""

    def __init__(self, initializer: Initializer, function: Callable[..., Any]) -> None:
        self._initializer = initializer
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in a process where the initializer has run."""
        self._initializer.require()
        return self._function(*args, **kwargs)
