"""Two tiers of the functions that decide: plain Python from the first moment, compiled code when it is ready.

Both tiers are the same functions and decide the same. A process is in the compiled tier unless it asks for the plain
one: there a compiled function (`compiled`) has a subclass of its class, whose call runs the Python function. At the
change-over its own class is set back, so that a call costs nothing more from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from numba import config
from numba.core.registry import CPUDispatcher


class NotKept(Exception):
    """Nothing on disk was compiled for this function and these types."""


_ahead: ContextVar[Literal["", "compile", "read"]] = ContextVar("ahead", default="")
"""What this thread does ahead of a change-over, while others decide in the plain tier."""


class _Plain(CPUDispatcher):
    """A compiled function in the plain tier. Other compiled functions call it as ever."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return (super().__call__ if _ahead.get() else self.py_func)(*arguments, **named)


class _Tier:
    def __init__(self) -> None:
        self.plain = self.changed = False
        self.functions: list[Any] = []
        self.at_change: list[Callable[[], None]] = []


_TIER = _Tier()


def enter(function: Any) -> None:
    """Put a compiled function into the tier of this process."""
    _TIER.functions.append(function)
    if _TIER.plain:
        function.__class__ = _Plain


def at_change_over(act: Callable[[], None]) -> None:
    """Have this done at a change-over, before the first call of compiled code."""
    _TIER.at_change.append(act)


def is_plain() -> bool:
    """Return whether decisions of this thread are taken by plain Python."""
    return bool(config.DISABLE_JIT) or (_TIER.plain and not _ahead.get())  # type: ignore[attr-defined]


def awaits_change_over() -> bool:
    """Return whether this process is in the plain tier until compiled code is ready. Without a compiler it never is."""
    return _TIER.plain


def has_changed_over() -> bool:
    """Return whether this process was in the plain tier and has left it."""
    return _TIER.changed


def is_read_only() -> bool:
    """Return whether this thread only reads what is kept on disk, and compiles nothing."""
    return _ahead.get() == "read"


def start_plain() -> None:
    """Decide in the plain tier from now on. Without a compiler the process is in it for ever."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return
    _TIER.plain, _TIER.changed = True, False
    for function in _TIER.functions:
        function.__class__ = _Plain


@contextmanager
def ahead(*, compile_too: bool = True) -> Iterator[None]:
    """Use the compiled tier in this thread: to compile, or to read back, what others use after a change-over.

    Raises:
        NotKept: something is not on disk, and `compile_too` is not set.

    """
    token = _ahead.set("compile" if compile_too else "read")
    try:
        yield
    finally:
        _ahead.reset(token)


def change_over() -> None:
    """Decide in the compiled tier from now on. A decision that another thread takes meanwhile comes out the same.

    Compiled code finds other code by addresses in the books (`by_address.py`), so those are written first. A function
    that is in its plain body calls the next one in either tier.
    """
    _TIER.plain, _TIER.changed = False, True
    for act in _TIER.at_change:
        act()
    for function in _TIER.functions:
        function.__class__ = CPUDispatcher
