"""A session or one of its tasks as an argument: `ID`, `ID/N`, or `ID:INDEX` in an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ullage.model.error import invalid

if TYPE_CHECKING:
    from ullage.client.api import Api

TASK = 1
"""The number of the only task of a session."""

_TASK_FORM = "write SESSION/N with N from 1, or SESSION:INDEX for a task of an array"


class Target(NamedTuple):
    """A session, or one of its tasks: with the number `task`, or with the index `element` of an array."""

    session: str
    task: int | None
    element: int | None = None

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.session}:{self.element}"
        return self.session if self.task is None else f"{self.session}/{self.task}"

    def number(self, api: Api) -> int | None:
        """Return the number of the task; None for a whole session. The server knows the numbers of an array.

        Raises:
            InvalidRequest: the session has no array, or the array has no such index.

        """
        if self.element is None:
            return self.task
        from ullage.model.array import parse_array  # noqa: PLC0415  # most sessions have none

        array = api.session(self.session).array
        if array is None:
            raise invalid("index", str(self), f"{self.session} is no array; write {self.session}/N with N from 1")
        return parse_array(array).task_of(self.element)


def parse_target(text: str) -> Target:
    """Parse `ID`, `ID/N` or `ID:INDEX`.

    Raises:
        InvalidRequest: N is not a number from 1, or INDEX no number.

    """
    session, colon, index = text.partition(":")
    if colon:
        if not session or not (index.isascii() and index.isdecimal()):
            raise invalid("task", text, _TASK_FORM)
        return Target(session, None, int(index))
    session, slash, number = text.partition("/")
    if not slash:
        return Target(session, None)
    if not session or not (number.isascii() and number.isdecimal() and int(number)):
        raise invalid("task", text, _TASK_FORM)
    return Target(session, int(number))


def find_task(api: Api, text: str, default: int | None = None) -> tuple[str, int]:
    """Return the session and the number of the task that `ID/N` or `ID:INDEX` names; `ID` alone means task `default`.

    Raises:
        InvalidRequest: the text names no task.

    """
    target = parse_target(text)
    task = target.number(api)
    if task is None:
        task = default
    if task is None:
        raise invalid("task", text, _TASK_FORM)
    return target.session, task
