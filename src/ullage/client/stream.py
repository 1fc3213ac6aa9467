"""Server-sent events: the messages of a response that arrives in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Message(NamedTuple):
    """One event. `id` is the position to resume after it; without one, the previous id applies."""

    event: str
    data: str
    id: str | None


def read_messages(lines: Iterable[bytes]) -> Iterator[Message]:
    """Yield the messages in `lines`, without an incomplete one at the end."""
    event, position = "message", None
    data: list[str] = []
    for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if not line:
            if data:
                yield Message(event, "\n".join(data), position)
            event, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            event = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            position = value
