"""The errors this layer raises, in words a person can act on."""

from __future__ import annotations

from ullage.model.error import Unavailable


def storage_failed(what: str, cause: BaseException) -> Unavailable:
    """The store cannot go on: code `storage-failed`."""
    error = Unavailable(
        f"the store failed and takes no more writes ({what}: {describe(cause)}); mend the cause, then start again:"
        " everything acknowledged so far is kept",
        code="storage-failed",
    )
    error.__cause__ = cause
    return error


def storage_unreadable(what: str, cause: BaseException) -> Unavailable:
    """A read did not succeed: code `storage-failed`."""
    return Unavailable(f"the store cannot be read ({what}: {describe(cause)})", code="storage-failed")


def storage_closed() -> Unavailable:
    """The store was closed, or not loaded yet: code `storage-closed`."""
    return Unavailable("the store is not open; nothing was written", code="storage-closed")


def storage_damaged(path: object, finding: str) -> Unavailable:
    """The file is not what it should be: code `storage-damaged`."""
    return Unavailable(
        f"{path} is damaged or is not an Ullage database ({finding}); nothing was changed: "
        "put back a copy of it, or move it away to start empty",
        code="storage-damaged",
    )


def describe(cause: BaseException) -> str:
    """What the driver said, without the statement and its parameters, which hold users' data."""
    origin = getattr(cause, "orig", None)
    return str(origin if origin is not None else cause) or type(cause).__name__
