"""Single keys of a terminal, without Enter."""

from __future__ import annotations

import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_QUIT = ("q", "Q", "")
"""Keys that end a view; "" is the end of the input."""


@contextmanager
def single_keys() -> Iterator[None]:
    """Read keys without Enter. Ctrl-C still interrupts."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def quit_within(seconds: float) -> bool:
    """Wait for a key that ends the view. Return whether there was one within these seconds."""
    ends_at = time.monotonic() + seconds
    while (left := ends_at - time.monotonic()) > 0:
        readable, _, _ = select.select([sys.stdin], [], [], left)
        if readable and sys.stdin.read(1) in _QUIT:
            return True
    return False
