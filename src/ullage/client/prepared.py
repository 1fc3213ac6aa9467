"""Functions that need an initializer to have run in their process, as those of `concurrent.futures` do."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any

from ullage.worker.received import STATE


class BrokenInitializer(BrokenExecutor):
    """The initializer of an `ullage.Executor` failed; the cause says how."""


class Initializer:
    """Calls a function once in each process, and again when the process has left its session."""

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._id = uuid.uuid4().hex

    def prepare(self, function: Callable[..., Any]) -> Prepared:
        """Return a function that calls `function` once the initializer has run."""
        return Prepared(self, function)

    def require(self) -> None:
        """Call the initializer, unless this process has done so in its session.

        Raises:
            BrokenInitializer: it failed, now or before.

        """
        if self._id in STATE.initialized:
            return
        try:
            self._function(*self._args)
        except Exception as error:
            raise BrokenInitializer("the initializer failed in an executor") from error
        STATE.initialized.add(self._id)


class Prepared:
    """A function with its initializer."""

    def __init__(self, initializer: Initializer, function: Callable[..., Any]) -> None:
        self._initializer = initializer
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in a process where the initializer has run."""
        self._initializer.require()
        return self._function(*args, **kwargs)
