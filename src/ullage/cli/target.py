"""A session or some of its tasks as an argument: `ID`, `ID/N`, `ID:INDEX` in an array, and ranges of both."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ullage.model.counted import counted
from ullage.model.error import InvalidRequest, invalid

if TYPE_CHECKING:
    from ullage.client.api import Api
    from ullage.model.array import Array
    from ullage.wire.session import SessionBody

TASK = 1
"""The number of the only task of a session."""

_TASK_FORM = (
    "write SESSION/N with N from 1, or SESSION:INDEX for a task of an array; several are 50-99, 3,7,10-12 or 0-90:10"
)
_OF_SLURM = re.compile(r"([^/:]+)_\[([^]]*)\]", re.ASCII)
_SHOWN = 200
_PIECES = re.compile(r"\d[\d,:-]*", re.ASCII)


class Target(NamedTuple):
    """A session, or some of its tasks: `parts` are their numbers, or `of_array` their indices."""

    session: str
    parts: tuple[int, ...] = ()
    of_array: bool = False
    text: str = ""

    def __str__(self) -> str:
        return self.text or self.session

    def numbers(self, api: Api) -> tuple[int, ...]:
        """Return the numbers of the tasks; empty for a whole session.

        Raises:
            InvalidRequest: one of them does not exist, or the session has no array.

        """
        return self.numbers_in(api.session(self.session)) if self.parts else ()

    def numbers_in(self, body: SessionBody) -> tuple[int, ...]:
        """Return the numbers of the tasks in a session; raises as `numbers` does."""
        from ullage.model.array import Array, parse_array  # noqa: PLC0415  # most sessions have none

        if not self.of_array:
            most = tasks_of(body)
            missing = tuple(part for part in self.parts if part > most)
            if missing:
                text = f"task {_short(Array(missing))} of {self.session} does not exist: it has {counted(most, 'task')}"
                raise InvalidRequest(text, field="task")
            return self.parts
        if body.array is None:
            raise invalid("index", str(self), f"{self.session} is no array; write {self.session}/N with N from 1")
        array = parse_array(body.array)
        known = frozenset(array.indices)
        missing = tuple(part for part in self.parts if part not in known)
        if missing:
            text = f"{self.session} has no index {_short(Array(missing))}: it has the indices {_short(array)}"
            raise InvalidRequest(text, field="index")
        return tuple(map(array.task_of, self.parts))

    def number(self, api: Api) -> int | None:
        """Return the number of the task; None for a whole session. The server knows the numbers of an array.

        Raises:
            InvalidRequest: there are several, the session has no array, or the array has no such index.

        """
        if not self.of_array and len(self.parts) == 1:
            return self.parts[0]  # the server refuses one that does not exist
        self.require_one()
        return next(iter(self.numbers(api)), None)

    def require_one(self) -> None:
        """Check that it does not name several tasks.

        Raises:
            InvalidRequest: it does.

        """
        if len(self.parts) > 1:
            raise invalid("task", str(self), f"it names {len(self.parts)} tasks; name one of them here")


def _short(array: Array) -> str:
    text = str(array)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def tasks_of(body: SessionBody) -> int:
    """Return how many tasks a session has."""
    return body.pending + body.running + body.succeed + body.failed + body.cancelled


def parse_target(text: str) -> Target:
    """Parse `ID`, `ID/N`, `ID:INDEX`, or ranges such as `ID:50-99` and `ID/3,7,10-12`.

    Raises:
        InvalidRequest: what follows ID is no number and no range; numbers of tasks begin with 1.

    """
    if slurm := _OF_SLURM.fullmatch(text):
        raise invalid("task", text, f"it is written {':'.join(slurm.groups())} here")
    found = re.search("[:/]", text)
    if found is None:
        return Target(text)
    session, of_array, pieces = text[: found.start()], found.group() == ":", text[found.end() :]
    if not session or not _PIECES.fullmatch(pieces):
        raise invalid("task", text, _TASK_FORM)
    from ullage.model.array import parse_indices  # noqa: PLC0415  # most sessions have none

    parts = tuple(sorted(set(parse_indices(pieces, partial(invalid, "task", text), _TASK_FORM))))
    if not of_array and parts[0] < TASK:
        raise invalid("task", text, _TASK_FORM)
    return Target(session, parts, of_array=of_array, text=text)


def find_task(api: Api, text: str) -> tuple[str, int]:
    """Return the session and the number of the task that `ID/N` or `ID:INDEX` names.

    Raises:
        InvalidRequest: the text names no task, or several.

    """
    target = parse_target(text)
    task = target.number(api)
    if task is None:
        raise invalid("task", text, _TASK_FORM)
    return target.session, task
