"""Messages while a program waits for a server that does not answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

GONE_S = 0.5
"""Seconds without a server after which the wait is reported."""

UNANSWERED_S = 2.0
"""Seconds without an answer to a request after which the wait is reported."""


class Silence:
    """Reports a wait for a server once, and again only after a server answered.

    An interactive program sets `show`, which is called with the message, unless the caller of `report` names another
    function. Without either nothing is reported.
    """

    show: ClassVar[Callable[[str], object] | None] = None

    def __init__(self) -> None:
        self._reported = False

    @property
    def is_shown(self) -> bool:
        """Whether a report would be shown."""
        return Silence.show is not None and not self._reported

    def end(self) -> None:
        """Note that a server answered."""
        self._reported = False

    def report(self, reason: str, left_s: float, show: Callable[[str], object] | None = None) -> None:
        """Report the reason, and that the wait lasts up to `left_s` seconds more."""
        show = show or Silence.show
        if show is None or self._reported:
            return
        self._reported = True
        with suppress(OSError):  # the terminal may be gone
            show(f"{reason}; waiting up to {max(1.0, left_s):.0f} s")
