"""Which lines each test reaches."""

from __future__ import annotations

import sys
import threading
from types import CodeType, FrameType
from typing import Any


class Trace:
    """The lines of some files that ran since the trace began."""

    def __init__(self, files: frozenset[str]) -> None:
        self._files = files
        self._missing: dict[int, tuple[CodeType, set[int]]] = {}
        """By identity of a code object, the lines that did not run yet; none for one of another file."""

    def begin(self) -> None:
        """Trace this thread and those that it starts."""
        threading.settrace(self._call)
        sys.settrace(self._call)

    def end(self) -> set[str]:
        """End the trace; return what ran as `file:line`."""
        sys.settrace(None)
        entries = self._missing.copy().values()
        return {f"{code.co_filename}:{line}" for code, left in entries for line in self._lines(code) - left}

    def _lines(self, code: CodeType) -> set[int]:
        return {line for *_, line in code.co_lines() if line} if code.co_filename in self._files else set()

    def _call(self, frame: FrameType, _event: str, _value: Any) -> Any:
        code = frame.f_code
        if (entry := self._missing.get(id(code))) is None:
            entry = self._missing[id(code)] = code, self._lines(code)
        return self._line if entry[1] else None

    def _line(self, frame: FrameType, event: str, _value: Any) -> Any:
        entry = self._missing.get(id(frame.f_code))
        if entry is not None and event == "line":
            entry[1].discard(frame.f_lineno)
        return self._line if entry is not None and entry[1] else None
