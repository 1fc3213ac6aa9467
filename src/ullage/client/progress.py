"""A bar that shows how many of many calls have ended: in a terminal, and in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

Advance = Callable[[], object]
"""Counts one more."""

_EVERY_S = 0.2
"""Seconds between two pictures of a bar in a notebook."""


@contextmanager
def shown_progress(total: int | None) -> Iterator[Advance]:
    """Show progress in the block: a bar in a notebook, or on stderr if that is a terminal. Yield what counts one more.

    The bar of a notebook is HTML of its own: it needs no widgets, and stays in the saved notebook.
    """
    if _is_notebook():
        bar = NotebookBar(total)
        try:
            yield bar.advance
        finally:
            bar.draw()
        return
    if not sys.stderr.isatty():
        yield _ignore
        return
    from rich.console import Console  # noqa: PLC0415  # slow to import, and seldom needed
    from rich.progress import MofNCompleteColumn, Progress  # noqa: PLC0415  # as above

    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)


class NotebookBar:
    """The bar in the output of a cell."""

    def __init__(self, total: int | None) -> None:
        display = import_module("IPython.display").display  # IPython is loaded already
        self._total = total
        self._done = 0
        self._began = self._drawn = time.monotonic()
        self._handle = display(self, display_id=True)

    def advance(self) -> None:
        """Count one more, and draw the bar if the last picture is old."""
        self._done += 1
        if time.monotonic() - self._drawn >= _EVERY_S:
            self.draw()

    def draw(self) -> None:
        """Draw the bar in the place of the last picture."""
        self._drawn = time.monotonic()
        self._handle.update(self)

    def __repr__(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        return f"{self._done:,}{of} in {time.monotonic() - self._began:.0f} s"

    def _repr_html_(self) -> str:
        from ullage.wire.html import bar  # noqa: PLC0415  # only notebooks need it

        return bar(self._done, self._total, repr(self))


def _is_notebook() -> bool:
    """Return whether this program is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


def _ignore() -> None:
    """Show nothing."""
