"""Names and numbers in the path and the query of a request: their parsing, and their OpenAPI schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from ullage.model.error import invalid
from ullage.model.name import MAX_NAME, NAME_PATTERN, check_name
from ullage.model.past_state import DIMENSIONS, PastState
from ullage.model.session import SessionState
from ullage.service.store_port import Page

MOST_DIGITS = 15
"""Digits of the largest number, which JSON readers hold exactly in a double."""

_MOST = 10**MOST_DIGITS - 1
_NAME = {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": f"^{NAME_PATTERN}$"}
_FLAGS = {"0": False, "false": False, "1": True, "true": True}
_FLAG = {"type": "string", "enum": list(_FLAGS)}
_WORDS = {"type": "string", "pattern": "^[a-z]+(,[a-z]+)*$"}
_COUNT = {"type": "integer", "minimum": 0, "maximum": _MOST}

_SECONDS = {"type": "number", "minimum": 0}

MAX_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the path or the query: its meaning, and its schema (unless stated: a name)."""

    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: _NAME)

    def document(self, name: str, place: str) -> dict[str, Any]:
        """Return the parameter for the OpenAPI document; `place` is `path` or `query`."""
        stated = {"description": self.description, "schema": self.schema}
        return {"name": name, "in": place, "required": place == "path", **stated}


PATH = {
    "name": Parameter("the name of the application, queue or node"),
    "session": Parameter("the id of the session"),
    "task": Parameter("the number of the task in its session", {"type": "integer", "minimum": 1, "maximum": _MOST}),
    "namespace": Parameter("the namespace"),
    "key": Parameter("the key of the gang"),
    "pod": Parameter("the name of the pod"),
    "node": Parameter("the name of the node"),
    "uid": Parameter("the uid of the request"),
    "token": Parameter("the id of the token"),
}
"""Parameters of paths."""

QUERY = {
    "session": Parameter("only events of this session"),
    "uid": Parameter("only the pod of this uid"),
    "owner": Parameter("only sessions of this owner", {"type": "string"}),
    "domain": Parameter("the domain of the pod's annotations", {"type": "string"}),
    "queue": Parameter("only sessions of this queue"),
    "search": Parameter(
        "only sessions with this text, in any case, in the id, owner, queue or application", {"type": "string"}
    ),
    "sort": Parameter(
        "the order, `-` before it reverses it: created, closed, id, owner, application, queue, state, priority, held, "
        "deserved, or a state of tasks",
        {"type": "string", "pattern": "^-?[a-z]+$"},
    ),
    "offset": Parameter("how many items to leave out before the first one", _COUNT),
    "sessions": Parameter("the most sessions of an overview: first those that have executors", _COUNT),
    "resreq": Parameter("the request, such as gpu=1,vram=20g", {"type": "string"}),
    "priority": Parameter("the priority of the request", _COUNT),
    "preempt": Parameter("whether to name who would have to give way", _FLAG),
    "move": Parameter("whether to name what could move to make room", _FLAG),
    "state": Parameter(
        "only sessions in this state; in the history some of "
        f"{', '.join(state.value for state in PastState)}, with commas; elsewhere one of "
        f"{', '.join(state.value for state in SessionState)}",
        _WORDS,
    ),
    "since": Parameter("the beginning of the period, in seconds since the epoch", _SECONDS),
    "until": Parameter("the end of the period, in seconds since the epoch; unless stated now", _SECONDS),
    "step": Parameter("seconds of each step; unless stated the whole period", _SECONDS),
    "by": Parameter(f"how usage is grouped: some of {', '.join(DIMENSIONS)}, with commas", _WORDS),
    "after": Parameter("only items after this number", _COUNT),
    "limit": Parameter("the most items of the answer", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}),
    "wait": Parameter("the most seconds to wait for the first result", {"type": "number", "minimum": 0}),
    "executor": Parameter("the executor whose task waits for the results, if one does"),
    "follow": Parameter(
        "whether the answer continues until the task ends", {"type": "string", "enum": ["0", "1", "false", "true"]}
    ),
    "tail": Parameter("only the last lines of each stream, this many", _COUNT),
    "within": Parameter("only what was printed within the last seconds, this many", {"type": "number", "minimum": 0}),
    "gpu": Parameter(
        "the uuids of cards that are expected to be freed", {"type": "array", "items": {"type": "string"}}
    ),
}
"""Parameters of queries."""


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


def page_of(request: Request, default: int = 100) -> Page:
    """Return the page of the query.

    Raises:
        InvalidRequest: the cursor or the limit is out of range.

    """
    after, limit = count_of(request, "after", 0), count_of(request, "limit", default)
    if not 1 <= limit <= MAX_PAGE:
        raise invalid("limit", limit, f"1 to {MAX_PAGE} is needed")
    return Page(after, limit)


def time_of(request: Request, name: str) -> float | None:
    """Return a number of seconds from the query; None if it is not stated.

    Raises:
        InvalidRequest: it is not a number from 0 of at most 15 digits before the point.

    """
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MOST:  # also refuses nan
        raise invalid(name, text, "a number of seconds from 0 is needed")
    return value


def flag_of(request: Request, name: str) -> bool:
    """Return whether a flag of the query is set; one that is left out is not.

    Raises:
        InvalidRequest: it is neither 0, 1, false nor true.

    """
    text = request.query_params.get(name, "0")
    if text not in _FLAGS:
        raise invalid(name, text, f"write {', '.join(_FLAGS)}")
    return _FLAGS[text]


def is_count(text: str) -> bool:
    """Return whether a text is a whole number of at most 15 digits."""
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def check_query(request: Request, known: tuple[str, ...]) -> None:
    """Refuse unknown query parameters, and a second value of one that has one.

    Raises:
        InvalidRequest: a query parameter that this route does not have, or has once.

    """
    for name in request.query_params:
        if name not in known:
            raise invalid("query", name, f"this route reads {', '.join(known) or 'no query'}")
        _, *others = request.query_params.getlist(name)
        if others and QUERY[name].schema.get("type") != "array":
            raise invalid(name, others[-1], "it is given more than once; keep one")
