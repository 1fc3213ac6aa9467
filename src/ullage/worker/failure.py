"""Exceptions as text for users."""

from __future__ import annotations

import traceback

MAX_MESSAGE = 64 * 1024
"""The most bytes (UTF-8) of a message; a longer one loses its middle."""


def describe(error: BaseException) -> str:
    """Return `TypeName: text`, the first line of every message about an exception."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # a user's __str__ may do anything
        text = "(its text cannot be shown)"
    return f"{name}: {text}" if text else name


def trace(error: BaseException, skip: int = 0) -> str:
    """Return the traceback as Python prints it, without the `skip` outermost frames, which are the worker's."""
    frames = error.__traceback__
    for _ in range(skip):
        if frames is None or frames.tb_next is None:
            break
        frames = frames.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # noqa: BLE001  # as in `describe`
        return "(the traceback cannot be shown)"


def message(error: BaseException, skip: int = 0) -> str:
    """Return `describe`, an empty line, and the traceback."""
    return bounded(f"{describe(error)}\n\n{trace(error, skip)}")


def bounded(text: str, limit: int = MAX_MESSAGE) -> str:
    """Return `text` in at most `limit` bytes of valid UTF-8; a longer text loses its middle."""
    data = text.encode(errors="backslashreplace")
    if len(data) <= limit:
        return data.decode()
    half = (limit - 32) // 2
    head, tail = data[:half].decode(errors="ignore"), data[-half:].decode(errors="ignore")
    return f"{head}\n... left out ...\n{tail}"
