"""The output of all tasks of a session, each byte once, across lost connections."""

from __future__ import annotations

import base64
import re
import time
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from ullage.client.api import WHOLE_LOG, Api, LogPart
from ullage.client.stream import Message
from ullage.model.error import Unavailable

_POSITION = re.compile(r"s\d+t(\d+)o(\d+)e(\d+)", re.ASCII)
_STREAMS = ("stdout", "stderr")


class TaskPiece(NamedTuple):
    """Bytes of one of the two streams of a task; an empty `stream` says that its output is complete."""

    task: int
    stream: str
    data: bytes


class SessionLog:
    """The log of the tasks of a session with numbers above `after`; with `follow` until the session is closed.

    `on_note` gets the server's remarks on the log.
    """

    def __init__(
        self,
        api: Api,
        session: str,
        part: LogPart = WHOLE_LOG,
        *,
        follow: bool,
        after: int = 0,
        on_note: Callable[[str], object] = warnings.warn,
    ) -> None:
        self._api, self._session, self._part = api, session, part
        self._follow, self._on_note = follow, on_note
        self._seen = _Seen(after)
        self._patience = api.transport.patience(on_note)

    def __iter__(self) -> Iterator[TaskPiece]:
        """Yield each piece once as it arrives.

        Raises:
            Unavailable: no server answers.
            NotFound: the session is deleted.

        """
        part, begun = self._part, time.monotonic()
        self._patience.renew()
        while True:
            lost = Unavailable("the connection of the log was lost")
            try:
                for message in self._api.session_log(
                    self._session, part, follow=self._follow, after=self._seen.complete
                ):
                    self._patience.renew()
                    if message.event == "end":
                        return
                    yield from self._pieces(message)
            except Unavailable as error:
                lost = error
            self._patience.wait(lost)
            part = self._since(begun)

    def _since(self, begun: float) -> LogPart:
        """Return the part for a later connection: all, or what was printed since the beginning of the first one."""
        lines, within_s = self._part
        if lines is None and within_s is None:
            return WHOLE_LOG
        return LogPart(within_s=time.monotonic() - begun + (within_s or 0.0))

    def _pieces(self, message: Message) -> Iterator[TaskPiece]:
        if message.event == "note":
            self._on_note(message.data)
        elif message.event == "ended":
            for task in msgspec.json.decode(message.data, type=list[int]):
                if self._seen.end(task):
                    yield TaskPiece(task, "", b"")
        elif message.event in _STREAMS and (match := _POSITION.fullmatch(message.id or "")):
            task, *ends = map(int, match.groups())
            place = _STREAMS.index(message.event)
            data = self._seen.new(task, place, ends[place], base64.b64decode(message.data))
            if data:
                yield TaskPiece(task, message.event, data)


class _Seen:
    """The positions up to which the output of each task was seen. All tasks up to `complete` are complete."""

    def __init__(self, complete: int) -> None:
        self.complete = complete
        self._later: set[int] = set()  # complete tasks above `complete`
        self._ends: dict[int, list[int]] = {}

    def new(self, task: int, place: int, end: int, data: bytes) -> bytes:
        """Return the part of `data`, whose last byte is before position `end`, that was not seen."""
        if task <= self.complete or task in self._later:
            return b""
        ends = self._ends.setdefault(task, [0, 0])
        fresh = end - ends[place]
        ends[place] = max(ends[place], end)
        return data[max(0, len(data) - max(0, fresh)) :] if fresh > 0 else b""

    def end(self, task: int) -> bool:
        """Record that a task is complete. Return False if that was known."""
        if task <= self.complete or task in self._later:
            return False
        self._ends.pop(task, None)
        self._later.add(task)
        while self.complete + 1 in self._later:
            self.complete += 1
            self._later.discard(self.complete)
        return True
