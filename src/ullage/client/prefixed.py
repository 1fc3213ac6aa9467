"""Output of many tasks on one terminal: whole lines, each after the number of its task."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from ullage.client.session_log import TaskPiece

_LONGEST = 64 * 1024
"""The most bytes of an unfinished line that are held back."""


class PrefixedOutput:
    """Prints the pieces of tasks on the standard output and error of this process, as `[12] text`.

    `label` returns what names a task between the brackets.
    """

    def __init__(self, label: Callable[[int], str] = str) -> None:
        self._label = label
        self._unfinished: dict[tuple[int, str], bytes] = {}

    def write(self, piece: TaskPiece) -> None:
        """Print the whole lines of a piece; at the end of a task its unfinished lines too."""
        if not piece.stream:
            for stream in ("stdout", "stderr"):
                if rest := self._unfinished.pop((piece.task, stream), b""):
                    self._print(piece.task, stream, rest)
            return
        key = piece.task, piece.stream
        data = self._unfinished.pop(key, b"") + piece.data
        lines, newline, rest = data.rpartition(b"\n")
        if newline:
            self._print(piece.task, piece.stream, lines)
        if len(rest) > _LONGEST:
            self._print(piece.task, piece.stream, rest)
        elif rest:
            self._unfinished[key] = rest

    def close(self) -> None:
        """Print all unfinished lines."""
        for task, _ in sorted(self._unfinished):
            self.write(TaskPiece(task, "", b""))

    def _print(self, task: int, name: str, lines: bytes) -> None:
        stream: TextIO = getattr(sys, name)
        prefix = f"[{self._label(task)}] ".encode()
        text = b"".join(b"%s%s\n" % (prefix, line) for line in lines.split(b"\n"))
        binary = getattr(stream, "buffer", None)  # a notebook has text only
        if binary is None:
            stream.write(text.decode(errors="replace"))
        else:
            stream.flush()
            binary.write(text)
        stream.flush()
