"""Long pages are written, and long plans checked, in a thread, one at a time; the event loop answers meanwhile.

A page is written from immutable values or copies. So it describes one state: that at the time of its request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Result = TypeVar("_Result")

SWITCH_S = 0.001
"""Seconds after which the thread passes the interpreter to the event loop, once the thread exists."""

_WRITER = ThreadPoolExecutor(1, "pages", initializer=sys.setswitchinterval, initargs=(SWITCH_S,))
"""One thread: with each further one the event loop waits longer for the interpreter."""


async def written(write: Callable[[], _Result]) -> _Result:
    """Return what `write` returns in the thread."""
    return await asyncio.get_running_loop().run_in_executor(_WRITER, write)
