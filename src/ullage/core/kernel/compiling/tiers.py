"""Two tiers of the functions that decide: plain Python from the first moment, compiled code when it is ready.

Both tiers run the same functions and decide the same. A process is in the compiled tier unless it calls
`start_plain`. In the plain tier a compiled function has a subclass of its class, whose call runs the Python function.
A change-over sets its own class again, so that a call costs nothing extra from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from numba import config
from numba.core.registry import CPUDispatcher


class NotCached(Exception):
    """No code is cached for this function and these types."""


_ahead: ContextVar[Literal["", "compile", "read"]] = ContextVar("ahead", default="")
"""What this thread does ahead of a change-over, while other threads decide in the plain tier."""


class _Plain(CPUDispatcher):
    """A compiled function in the plain tier. Compiled functions still call its compiled code."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return (super().__call__ if _ahead.get() else self.py_func)(*arguments, **named)


class _Tier:
    def __init__(self) -> None:
        self.plain = False
        self.functions: list[Any] = []
        self.at_change: list[Callable[[], None]] = []


_TIER = _Tier()


def enter(function: Any) -> None:
    """Put a compiled function into the tier of this process."""
    _TIER.functions.append(function)
    if _TIER.plain:
        function.__class__ = _Plain


def at_change_over(act: Callable[[], None]) -> None:
    """Register what a change-over does before the first call of compiled code."""
    _TIER.at_change.append(act)


def is_plain() -> bool:
    """Return whether decisions of this thread run as plain Python."""
    return bool(config.DISABLE_JIT) or (_TIER.plain and not _ahead.get())  # type: ignore[attr-defined]  # numba is not typed


def awaits_change_over() -> bool:
    """Return whether this process is in the plain tier until compiled code is ready. Without a compiler: False."""
    return _TIER.plain


def is_read_only() -> bool:
    """Return whether this thread only loads cached code, and compiles nothing."""
    return _ahead.get() == "read"


def start_plain() -> None:
    """Decide in the plain tier from now on. Without a compiler a process always does."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]  # numba is not typed
        return
    _TIER.plain = True
    for function in _TIER.functions:
        function.__class__ = _Plain


@contextmanager
def ahead(*, compile_too: bool = True) -> Iterator[None]:
    """Use the compiled tier in this thread, to compile or to load the code that others use after a change-over.

    Raises:
        NotCached: code is missing in the cache, and `compile_too` is not set.

    """
    token = _ahead.set("compile" if compile_too else "read")
    try:
        yield
    finally:
        _ahead.reset(token)


def change_over() -> None:
    """Decide in the compiled tier from now on. A decision that another thread is taking has the same result.

    A function that runs as plain Python may call the next one in either tier. The addresses of steps (`steps.py`) are
    written first, because only compiled code needs them.
    """
    _TIER.plain = False
    for act in _TIER.at_change:
        act()
    for function in _TIER.functions:
        function.__class__ = CPUDispatcher
