"""Names and numbers in the path and the query of a request: their parsing, and their OpenAPI schemas."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from ullage.model.error import invalid
from ullage.model.name import MAX_NAME, NAME_PATTERN, check_name
from ullage.model.session import SessionState

MOST_DIGITS = 15
"""Digits of the largest number: it is exact in a double, as JSON readers have it."""

_MOST = 10**MOST_DIGITS - 1
_NAME = {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": f"^{NAME_PATTERN}$"}
_COUNT = {"type": "integer", "minimum": 0, "maximum": _MOST}
_TEXT = {"type": "string"}

PATH: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("name", "session", "namespace", "key", "pod", "node", "uid"), _NAME),
    "task": {"type": "integer", "minimum": 1, "maximum": _MOST},
}
"""Schemas of path parameters."""

QUERY: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("session", "uid"), _NAME),
    **dict.fromkeys(("owner", "domain"), _TEXT),
    "state": {"type": "string", "enum": [state.value for state in SessionState]},
    "after": _COUNT,
    "limit": {"type": "integer", "minimum": 1, "maximum": 10_000},
    "wait": {"type": "number", "minimum": 0},
    "follow": {"type": "string", "enum": ["0", "1", "false", "true"]},
    "gpu": {"type": "array", "items": _TEXT},
}
"""Schemas of query parameters."""


def session_of(request: Request) -> str:
    """Return the session in the path.

    Raises:
        InvalidRequest: it is not a valid name.

    """
    return check_name("session", request.path_params["session"])


def task_of(request: Request) -> int:
    """Return the number of the task in the path.

    Raises:
        InvalidRequest: it is not a number from 1 of at most 15 digits.

    """
    text: str = request.path_params["task"]
    if not is_count(text) or int(text) == 0:
        raise invalid("task", text, f"a number from 1 to {_MOST} is needed")
    return int(text)


def count_of(request: Request, name: str, default: int) -> int:
    """Return a whole number from the query.

    Raises:
        InvalidRequest: it is not a whole number, or has more than 15 digits.

    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not is_count(text):
        raise invalid(name, text, f"a whole number from 0 to {_MOST} is needed")
    return int(text)


def is_count(text: str) -> bool:
    """Return whether a text is a whole number of at most 15 digits."""
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def check_query(request: Request, known: tuple[str, ...]) -> None:
    """Refuse unknown query parameters.

    Raises:
        InvalidRequest: a query parameter that this route does not have.

    """
    for name in request.query_params:
        if name not in known:
            raise invalid("query", name, f"this route reads {', '.join(known) or 'no query'}")
