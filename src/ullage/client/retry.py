"""Calls of a map that are tried again after a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ullage.model.error import UllageError, invalid

RetryOn = type[BaseException] | tuple[type[BaseException], ...]
"""The exceptions after which a call is tried again."""


class Retries(NamedTuple):
    """How often a call is tried again, and after which exceptions."""

    times: int
    on: RetryOn

    def apply(self, made: int, error: BaseException) -> bool:
        """Return whether a call that was tried again `made` times is tried once more."""
        return made < self.times and isinstance(error, self.on)


NO_RETRIES = Retries(0, ())


def check_retries(times: object, on: object) -> Retries:
    """Return the two options as one value.

    Raises:
        InvalidRequest: `retries` is no number from 0, or `retry_on` is neither an exception class nor a tuple of them.

    """
    if not isinstance(times, int) or isinstance(times, bool) or times < 0:
        raise invalid("retries", times, "a whole number from 0 is needed")
    for kind in on if isinstance(on, tuple) else (on,):
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise invalid("retry_on", on, "give exception classes, such as retry_on=(OSError,)")
    return Retries(times, on)  # type: ignore[arg-type]  # checked above


class Attempts:
    """The attempts of one call. `send` submits it again after attempt `made`."""

    def __init__(self, retries: Retries, send: Callable[[int], Any]) -> None:
        self._retries = retries
        self._send = send
        self._made = 0

    def again(self, error: BaseException) -> bool:
        """Submit the call again if `error` and the number of attempts allow it. Return whether it was."""
        if not self._retries.apply(self._made, error):
            return False
        self._made += 1
        try:
            self._send(self._made)
        except UllageError:  # the session is closed meanwhile: the failure stands
            return False
        return True
