"""The standard input of `ullage run`: sent with `--stdin`, refused if it would be lost."""

from __future__ import annotations

import fcntl
import os
import select
import stat
import struct
import termios
from typing import NamedTuple

from ullage.model.error import InvalidRequest
from ullage.model.quantity import format_bytes

MOST_BYTES = 16 << 20
"""The most bytes of standard input that the store and the memory of the executor hold. More of it is streamed."""

_CHUNK = 1 << 20


class StandardInput(NamedTuple):
    """What was read of the standard input; the rest, if it is not all, can be streamed."""

    data: bytes
    is_all: bool

    def require_all(self) -> None:
        """Check that nothing is left to be streamed.

        Raises:
            InvalidRequest: something is (`stdin-too-large`).

        """
        if not self.is_all:
            raise InvalidRequest(
                f"the standard input has more than {format_bytes(MOST_BYTES)}: write it to a file that the program "
                "reads; `ullage run` without --array streams it",
                code="stdin-too-large",
                field="stdin",
            )


def read_input(*, send: bool) -> StandardInput | None:
    """Return the standard input with `send`, up to a little more than `MOST_BYTES`; None without.

    Raises:
        InvalidRequest: there is input that would not be sent.

    """
    if send:
        return _read_all()
    if has_input():
        raise InvalidRequest(
            "the standard input has data that the program would not get: --stdin sends it, and < /dev/null discards it",
            code="stdin-not-sent",
            field="stdin",
        )
    return None


def has_input(descriptor: int = 0) -> bool:
    """Return whether a file, a pipe or a socket has data to read now. A terminal counts as empty."""
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return os.lseek(descriptor, 0, os.SEEK_CUR) < os.fstat(descriptor).st_size
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return False
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        if not ready.poll(0):
            return False
        waiting: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
    except OSError:  # it is closed
        return False
    return waiting > 0


def _read_all(descriptor: int = 0) -> StandardInput:
    data = bytearray()
    while chunk := _read(descriptor):
        data += chunk
        if len(data) > MOST_BYTES:
            return StandardInput(bytes(data), is_all=False)
    return StandardInput(bytes(data), is_all=True)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except OSError as error:  # it is closed, or a directory
        text = f"the standard input cannot be read: {error.strerror}; leave --stdin out, or give it a file or a pipe"
        raise InvalidRequest(text, code="stdin-unreadable", field="stdin") from None
