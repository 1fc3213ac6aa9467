"""Says that no server answers, while a program waits for one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

GONE_S = 0.5
"""Seconds without a server after which a wait for one is mentioned."""

UNANSWERED_S = 2.0
"""Seconds without an answer to a request after which the wait is mentioned."""


class Silence:
    """Mentions a wait for a server once, and again only after a server answered.

    A program that people watch sets `say`, which takes the sentence. Without it the caller of `mention` may name
    another one; else nothing is said.
    """

    say: ClassVar[Callable[[str], object] | None] = None

    def __init__(self) -> None:
        self._mentioned = False

    @property
    def is_heard(self) -> bool:
        """Whether a mention would reach somebody."""
        return Silence.say is not None and not self._mentioned

    def end(self) -> None:
        """Note that a server answered."""
        self._mentioned = False

    def mention(self, reason: str, left_s: float, say: Callable[[str], object] | None = None) -> None:
        """Say the reason, and that the wait lasts up to `left_s` seconds more."""
        say = Silence.say or say
        if say is None or self._mentioned:
            return
        self._mentioned = True
        with suppress(OSError):  # the terminal may be gone
            say(f"{reason}; waiting up to {max(1.0, left_s):.0f} s")
