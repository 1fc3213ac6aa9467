"""Server-sent events: the messages of a response that arrives in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

COMMENT = ""
"""The event of a message that is a comment: the server is there, and has nothing to say."""


class Message(NamedTuple):
    """One event. `id` is the position to resume after it; without one, the previous id applies."""

    event: str
    data: str
    id: str | None


def read_messages(lines: Iterable[bytes]) -> Iterator[Message]:
    """Yield the messages and comments in `lines`; a message that is cut off at the end is left out."""
    event, position = "message", None
    data: list[str] = []
    for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if not line:
            if data:
                yield Message(event, "\n".join(data), position)
            event, data = "message", []
            continue
        if line.startswith(":"):
            yield Message(COMMENT, "", None)
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            event = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            position = value
