"""Exit codes, and errors as people see them.

| code | meaning |
| --- | --- |
| 0 | done |
| 1 | failed, for a reason not listed here |
| 2 | the command line or the request is wrong, or what it names does not exist |
| 69 | no server answers (EX_UNAVAILABLE) |
| 75 | the present state refuses it; try again later (EX_TEMPFAIL) |
| 78 | no node can ever hold the request, whatever ends or is freed (EX_CONFIG) |
| 126, 127 | the program of `ullage run` cannot be run, is not found |
| 128+n | the program was ended by signal n; 130 after Ctrl-C |

Any other code of `ullage run` and `ullage logs -f` is that of the program. What only asks what would
happen, `ullage plan` and `ullage adjust --dry-run`, ends with 1 (it would), 0 (it would not) or 255 (an error).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ullage.model.error import Conflict, InvalidRequest, UllageError, Unavailable

FAILED = 1
USAGE = 2
UNAVAILABLE = 69
TRY_AGAIN = 75
UNPLACEABLE = 78
INTERRUPTED = 130
BROKEN_PIPE = 141

WOULD = 1
WOULD_NOT = 0
PLAN_FAILED = 255

_HINTS = {
    "unavailable": "`ullage up` starts a local server; ULLAGE_ENDPOINT names another one",
    "unauthorized": "the token of a local server is in the file `token` of its home",
    "tasks-running": "`ullage cancel` ends running tasks too",
    "session-closed": "`ullage sessions` lists all sessions",
    "not-assumed": "`ullage allocations` shows what is assumed",
    "not-allocated": "`ullage allocations` shows what is bound; `ullage commit` binds what is assumed",
}


class Exit(Exception):  # it is no error: the words are already on the screen
    """End with `code` now."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def code_of(error: UllageError) -> int:
    """The exit code that stands for an error."""
    if isinstance(error, InvalidRequest):
        return USAGE
    if isinstance(error, Conflict):
        return TRY_AGAIN
    return UNAVAILABLE if isinstance(error, Unavailable) else FAILED


def complain(message: str, hint: str | None = None) -> None:
    """Say what is wrong on stderr, and what may help."""
    print(f"ullage: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def caution(warnings: Iterable[str]) -> None:
    """Say on stderr what the server warns of."""
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def report(error: UllageError) -> int:
    """Show an error, and the code of one that is about the present state; its exit code."""
    message = f"{error.code}: {error.message}" if isinstance(error, Conflict) else error.message
    complain(message, _HINTS.get(error.code))
    return code_of(error)
