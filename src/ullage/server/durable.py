"""Waiting until the changes of a request are stored, and the progress of these changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Change:
    """The progress of a request: whether its changes are `made`, and whether all of them are `stored`."""

    def __init__(self) -> None:
        self.made = self.stored = False


_CHANGE: ContextVar[Change | None] = ContextVar("change", default=None)


@contextmanager
def watched_change() -> Iterator[Change]:
    """Yield the progress of the request that the present task answers."""
    change = Change()
    token = _CHANGE.set(change)
    try:
        yield change
    finally:
        _CHANGE.reset(token)


def note_change() -> None:
    """Note that the present request has made a change, which is not stored yet."""
    change = _CHANGE.get()
    if change is not None:
        change.made, change.stored = True, False


async def durable(use_case: Callable[..., _Result], *args: Any) -> _Result:
    """Call a use case whose last argument is a callback, and wait until its changes are stored."""
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done() -> None:
        if not stored.done():
            stored.set_result(None)

    result = use_case(*args, done)
    note_change()
    await stored
    change = _CHANGE.get()
    if change is not None:
        change.stored = True
    return result
