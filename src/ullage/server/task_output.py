"""The output of one task as server-sent events."""

from __future__ import annotations

import base64
from pathlib import Path

from ullage.model.quantity import format_bytes
from ullage.wire.log_start import LogStart
from ullage.wire.output_log import LIMIT, LogReader, NotALog

CHUNK = 64 * 1024
"""Bytes of one event of a log. Other requests are handled after each event."""


class TaskOutput:
    """Both output streams of one task as events, from the client's position on.

    `session` and `label` begin the position of an event: the number of the session, and which task it is of, if the
    stream has several.
    """

    def __init__(self, session: int, folder: Path, task: int, out: int = 0, *, err: int = 0, label: str = "") -> None:
        self._label = f"s{session}{label}"
        self._replaced: set[str] = set()
        self._readers = {
            "stdout": LogReader(folder, f"{task}.out", out),
            "stderr": LogReader(folder, f"{task}.err", err),
        }
        self._names = {"stdout": (folder, f"{task}.out"), "stderr": (folder, f"{task}.err")}

    def start_at(self, start: LogStart) -> None:
        """Begin with the wanted part of each stream, instead of its first byte."""
        for stream, (folder, name) in self._names.items():
            try:
                self._readers[stream] = LogReader(folder, name, start.position(folder, name))
            except NotALog:
                continue  # `read` reports it

    def stop_at_end(self) -> None:
        """Read only up to the current end."""
        for reader in self._readers.values():
            try:
                reader.stop_at_end()
            except NotALog:
                continue  # `read` reports it

    def read(self) -> list[bytes]:
        """Return the next chunk of each stream, if any."""
        events = []
        for stream, reader in self._readers.items():
            try:
                piece = reader.read(CHUNK)
            except NotALog as error:
                if stream not in self._replaced:
                    self._replaced.add(stream)
                    events.append(event("note", f"{stream} is not shown: {error}".encode()))
                continue
            if piece.skipped:
                text = f"{piece.skipped} bytes of {stream} were dropped: a log has at most {format_bytes(LIMIT)}"
                events.append(event("note", text.encode()))
            if piece.data:
                events.append(event(stream, base64.b64encode(piece.data), self._cursor()))
        return events

    def _cursor(self) -> str:
        out, err = self._readers.values()
        return f"{self._label}o{out.position}e{err.position}"


def event(name: str, line: bytes, position: str = "") -> bytes:
    """Return one server-sent event with one line of data.

    It is written here because the library searches data for ends of lines.
    """
    head = f"id: {position}\r\nevent: {name}" if position else f"event: {name}"
    return b"%s\r\ndata: %s\r\n\r\n" % (head.encode(), line)
