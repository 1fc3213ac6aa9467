"""Trying something on the books: whatever happens within is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ullage.core.books.fleet import Fleet


@contextmanager
def trial(fleet: Fleet) -> Iterator[None]:
    """Columns and ledger are exactly as before when it ends, also by an error."""
    mark = fleet.checkpoint()
    try:
        yield
    finally:
        fleet.rollback(mark)
