"""One action for each of several names. A refusal does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ullage.cli.exits import report
from ullage.model.error import UllageError, Unavailable

N = TypeVar("N")
T = TypeVar("T")


def for_each(names: Sequence[N], act: Callable[[N], T]) -> tuple[int, list[T]]:
    """Call `act` with each name and print refusals. Return the exit code of the first one, and the results.

    Raises:
        Unavailable: the server cannot act now, the same for all names.

    """
    code, done = 0, []
    for name in names:
        try:
            done.append(act(name))
        except Unavailable:
            raise
        except UllageError as refusal:
            if len(names) > 1 and str(name) not in refusal.message:
                refusal.message = f"{name}: {refusal.message}"
            refused = report(refusal)
            code = code or refused
    return code, done
