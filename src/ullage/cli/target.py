"""A session or one of its tasks as an argument: `ID` or `ID/N`."""

from __future__ import annotations

from typing import NamedTuple

from ullage.model.error import invalid


class Target(NamedTuple):
    """A session, or with `task` one of its tasks."""

    session: str
    task: int | None

    def __str__(self) -> str:
        return self.session if self.task is None else f"{self.session}/{self.task}"


def parse_target(text: str) -> Target:
    """Parse `ID` or `ID/N`.

    Raises:
        InvalidRequest: N is not a number from 1.

    """
    session, slash, number = text.partition("/")
    if not slash:
        return Target(session, None)
    if not session or not (number.isascii() and number.isdecimal() and int(number)):
        raise invalid("task", text, "write SESSION/N with N from 1")
    return Target(session, int(number))


def parse_task(text: str, default: int | None = None) -> tuple[str, int]:
    """Parse `ID/N`; `ID` alone means task `default`, unless that is None.

    Raises:
        InvalidRequest: N is missing, or not a number from 1.

    """
    session, task = parse_target(text)
    if task is None:
        task = default
    if task is None:
        raise invalid("task", text, "write SESSION/N with N from 1")
    return session, task
