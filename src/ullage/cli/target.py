"""A session or one of its tasks, as people write it: `ID` or `ID/N`."""

from __future__ import annotations

from typing import NamedTuple

from ullage.model.error import invalid


class Target(NamedTuple):
    """`task` None means the session as a whole."""

    session: str
    task: int | None

    def __str__(self) -> str:
        return self.session if self.task is None else f"{self.session}/{self.task}"


def parse_target(text: str) -> Target:
    """Read `ID` or `ID/N`.

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
    """Read `ID/N`; `ID` alone means task `default` if there is one.

    Raises:
        InvalidRequest: there is no N, or it is not a number from 1.

    """
    session, task = parse_target(text)
    if task is None:
        task = default
    if task is None:
        raise invalid("task", text, "write SESSION/N with N from 1")
    return session, task
