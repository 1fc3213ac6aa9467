"""A response waits until its changes are on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class NotStored(asyncio.CancelledError):
    """A request was cancelled after its changes were made, and before they were stored."""


async def durable(use_case: Callable[..., _Result], *args: Any) -> _Result:
    """Call a use case whose last argument is a callback, and wait until its changes are stored.

    Raises:
        NotStored: the request was cancelled meanwhile.

    """
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done() -> None:
        if not stored.done():
            stored.set_result(None)

    result = use_case(*args, done)
    try:
        await stored
    except asyncio.CancelledError:
        raise NotStored from None
    return result
