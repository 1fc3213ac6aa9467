"""An answer waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def durable(use_case: Callable[..., _Result], *args: Any) -> _Result:
    """Call a use case that takes a callback last, and wait until what it changed is stored."""
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done() -> None:
        if not stored.done():
            stored.set_result(None)

    result = use_case(*args, done)
    await stored
    return result
