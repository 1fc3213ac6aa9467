"""Errors that leave Ullage, by the party that has to act.

`InvalidRequest`: the caller must change the request. `Conflict`: the request is well formed but the present state
refuses it. `Unavailable`: the service, or something it needs, cannot answer now. Each error has a stable kebab-case
`code`; programs compare codes, people read messages. A refusal to *place* work is not an error but a `Rejection` value
(see `model/rejection.py`).
"""

from __future__ import annotations

_SHOWN = 120
"""Characters of an offending value that a message quotes."""


class UllageError(Exception):
    """Base of all errors; `code` is stable, `field` names the offending input when there is one."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        if code is not None:
            self.code = code


class InvalidRequest(UllageError):
    """The input is wrong; the message names field, value and fix."""

    code = "invalid-request"


class NotFound(InvalidRequest):
    """The named thing does not exist."""

    code = "not-found"


class Forbidden(InvalidRequest):
    """The caller has no permission for the request."""

    code = "forbidden"


class Unplaceable(InvalidRequest):
    """The request is never satisfied, whatever ends: no node can hold it, or a limit forbids it.

    `suggestions` are requests that fit, or other changes that help.
    """

    code = "unplaceable"

    def __init__(self, message: str, suggestions: tuple[str, ...] = ()) -> None:
        super().__init__(message, field="resreq")
        self.suggestions = suggestions


class Conflict(UllageError):
    """The present state refuses the operation; nothing was changed."""

    code = "conflict"


class PlanChanged(Conflict):
    """The allocations changed so that a plan cannot be carried out any more; ask for another one."""

    code = "plan-changed"


class VersionChanged(Conflict):
    """Another writer changed the object first: read it again, and repeat the decision."""

    code = "version-changed"


class AlreadyExists(Conflict):
    """The name or id is taken."""

    code = "already-exists"


class Unavailable(UllageError):
    """The service, or something it depends on, cannot answer now."""

    code = "unavailable"


class DiskFull(Unavailable):
    """The disk of the server is full: no change is accepted until it has room."""

    code = "disk-full"


def invalid(field: str, value: object, fix: str) -> InvalidRequest:
    """Return an input error in the common form: the field, the value, and the fix."""
    shown = repr(value)
    if len(shown) > _SHOWN:
        shown = shown[: _SHOWN - 3] + "..."
    return InvalidRequest(f"{field}: {shown} is not valid: {fix}", field=field)


class InvalidAnnotation(InvalidRequest):
    """A key of a pod, or two that contradict each other, is wrong; the message names key, value and fix."""

    code = "invalid-annotation"


def invalid_annotation(key: str, value: object, fix: str) -> InvalidAnnotation:
    """Return the error about a key of a pod; `key` is the full key, with its domain."""
    return InvalidAnnotation(invalid(key, value, fix).message, field=key)
