"""A bar that shows how many of many calls have ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[], object]
"""Counts one more."""


@contextmanager
def shown_progress(total: int) -> Iterator[Advance]:
    """Show progress in the block: a bar on stderr if that is a terminal. Yield what counts one more."""
    if not sys.stderr.isatty():
        yield _ignore
        return
    from rich.console import Console  # noqa: PLC0415  # slow to import, and seldom needed
    from rich.progress import Progress  # noqa: PLC0415  # as above

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)


def _ignore() -> None:
    """Show nothing."""
