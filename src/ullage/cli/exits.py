"""Exit codes, and the text of errors.

| code | meaning |
| --- | --- |
| 0 | done |
| 1 | the answer is no (`plan`, `adjust --dry-run`); something is bad (`doctor`, `recover`); the demonstration failed |
| 2 | the command line or the request is wrong, or an object that it names does not exist |
| 69 | no server answers (EX_UNAVAILABLE) |
| 70 | a bug in Ullage (EX_SOFTWARE) |
| 74 | the output cannot be written, as on a full disk (EX_IOERR) |
| 75 | the current state refuses it, or the disk of the server is full; try again later (EX_TEMPFAIL) |
| 78 | the request can never be placed: no node can hold it, or a limit of its queue forbids it (EX_CONFIG) |
| 124 | the program of `ullage run` reached its time limit (`-t`), as with timeout(1) |
| 125 | the program did not finish: its executors were lost too often; that of `ullage exec` ended with its executor |
| 126, 127 | the program of `ullage run` or `ullage exec` cannot be run, is not found |
| 128+n | signal n ended the program or `ullage` itself: 130 after Ctrl-C, 141 for a closed output pipe |

Any other code of `ullage run`, `ullage exec` and `ullage logs -f` is that of the program. `ullage plan` and
`ullage adjust --dry-run` change nothing: they end with 0 if it would be done, and with 1 if not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ullage.model.error import (
    AlreadyExists,
    Conflict,
    DiskFull,
    InvalidRequest,
    NotFound,
    UllageError,
    Unavailable,
    Unplaceable,
)

NO = 1
FAILED = 1
USAGE = 2
UNAVAILABLE = 69
INTERNAL = 70
OUTPUT_LOST = 74
TRY_AGAIN = 75
UNPLACEABLE = 78
KILLED_BY = 128
INTERRUPTED = 130
BROKEN_PIPE = 141

_HINTS = {
    "unavailable": "`ullage up` starts a local server; ULLAGE_ENDPOINT names another one",
    "service-down": "try again when it is back (`ullage service status`); `ullage up` starts a server of your own",
    "unauthorized": "the token of a local server is in the file `token` of its home; of a shared one an administrator "
    "creates yours: `ullage token create`",
    "tasks-running": "`ullage cancel` ends running tasks too",
    "session-open": "`ullage close` closes a session, `ullage cancel` also ends its running tasks",
    "unknown-gpu": "`ullage gpus` lists the cards",
    "session-closed": "`ullage sessions` lists all sessions",
    "nothing-to-requeue": "`--cancelled` takes cancelled tasks too; what has succeeded is submitted again",
    "already-exists": "`-J NAME` in place of `-n NAME` has the id begin with it, so that it can be given again",
    "not-assumed": "`ullage allocations` shows what is assumed",
    "not-allocated": "`ullage allocations` shows what is bound; `ullage commit` binds what is assumed",
}


_LISTS = {
    "session": "`ullage sessions` lists all sessions",
    "node": "`ullage nodes` lists the nodes",
    "task": "`ullage tasks SESSION` lists the tasks",
    "uid": "`ullage allocations` lists the requests",
    "application": "`ullage apps list` lists the applications",
}
"""The verb that lists the objects of a field, for errors about missing ones."""


_ALWAYS = frozenset({"built-in"})
"""Codes of conflicts that persist in every state."""


class Exit(Exception):  # no error: the message is printed already
    """Ends the command with `code`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def code_of(error: UllageError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, Unplaceable):
        return UNPLACEABLE
    if isinstance(error, InvalidRequest | AlreadyExists) or error.code in _ALWAYS:
        return USAGE
    if isinstance(error, Conflict | DiskFull):
        return TRY_AGAIN
    return UNAVAILABLE if isinstance(error, Unavailable) else INTERNAL


def complain(message: str, hint: str | None = None) -> None:
    """Print an error and its hint on stderr."""
    print(f"ullage: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def caution(warnings: Iterable[str]) -> None:
    """Print warnings on stderr."""
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def report(error: UllageError) -> int:
    """Print an error, with its code if it depends on the state of the server. Return the exit code."""
    message = f"{error.code}: {error.message}" if isinstance(error, Conflict | Unplaceable) else error.message
    hint = _HINTS.get(error.code) or (_LISTS.get(error.field or "") if isinstance(error, NotFound) else None)
    if isinstance(error, Unplaceable):
        fits = "; ".join(error.suggestions) or "ask for less"
        hint = f"{fits}; or wait with --wait until that changes"
    complain(message, hint)
    return code_of(error)
