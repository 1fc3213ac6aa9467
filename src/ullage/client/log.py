"""The output of a task, byte for byte, across lost connections."""

from __future__ import annotations

import base64
import time
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from ullage.client.api import WHOLE_LOG, Api, LogPart
from ullage.client.patience import NotAnswered, NotConnected
from ullage.model.error import Unavailable
from ullage.wire.session import TaskBody

_LASTING_S = 1.0
"""Seconds after which a connection without messages counts as successful."""


class LogPiece(NamedTuple):
    """Bytes of one of the two streams."""

    stream: str
    data: bytes


class TaskLog:
    """The log of one task. After iteration `ended` is the ended task.

    `on_note` gets the server's remarks on the log, such as how many bytes of it are no longer kept, and that the server
    is gone. `patience` says how long it waits then.
    """

    def __init__(
        self,
        api: Api,
        session: str,
        task: int,
        part: LogPart = WHOLE_LOG,
        *,
        follow: bool,
        on_note: Callable[[str], object] = warnings.warn,
    ) -> None:
        self._api = api
        self._session = session
        self._task = task
        self._part = part
        self._follow = follow
        self._on_note = on_note
        self.patience = api.transport.patience(on_note)
        self.ended: TaskBody | None = None

    def give_up(self) -> None:
        """End the iteration of another thread with an error, also while it waits for a server."""
        self._api.transport.close()

    def __iter__(self) -> Iterator[LogPiece]:
        """Yield each piece once as it arrives; with `follow` until the task ends.

        Raises:
            Unavailable: no server answers.

        """
        position: str | None = None
        self.patience.renew()
        while True:
            lost = Unavailable("the connection of the log was lost")
            begun = time.monotonic()
            try:
                for message in self._api.log(
                    self._session, self._task, self._part, follow=self._follow, position=position
                ):
                    self.patience.renew()
                    position = message.id or position
                    if message.event == "end":
                        self.ended = msgspec.json.decode(message.data, type=TaskBody)
                        return
                    if message.event == "note":
                        self._on_note(message.data)
                    if message.event in ("stdout", "stderr"):
                        yield LogPiece(message.event, base64.b64decode(message.data))
            except Unavailable as error:
                lost = error
            answered = not isinstance(lost, NotConnected | NotAnswered)
            if answered and time.monotonic() - begun >= _LASTING_S:
                self.patience.renew()  # the server answered until now, and the program printed nothing
            self.patience.wait(lost)
