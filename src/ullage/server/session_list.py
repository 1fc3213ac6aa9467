"""One page of the sessions: which match a query, in which order, and how many there are.

The records are filtered and sorted before anything is copied, so a page of a long list costs little more than a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from ullage.model.error import invalid
from ullage.model.nearest import did_you_mean
from ullage.model.session import SessionState
from ullage.model.task import TaskState
from ullage.server.parameters import count_of
from ullage.server.session_facts import SessionFacts
from ullage.service.state import SessionRecord

MOST = 10_000
"""The most sessions of one page; without a limit the answer has all of them."""

Key = Callable[[SessionRecord], Any]


def _count(state: TaskState) -> Key:
    return lambda record: record.counts[state]


SORTS: Mapping[str, Key] = {
    "created": lambda record: record.session.number,
    "closed": lambda record: record.session.closed_at or 0.0,
    "id": lambda record: record.id,
    "owner": lambda record: record.session.spec.owner,
    "application": lambda record: record.session.spec.application,
    "queue": lambda record: record.session.spec.queue,
    "state": lambda record: record.session.state.value,
    "priority": lambda record: record.session.spec.priority,
    "held": lambda record: len(record.executors),
    "deserved": lambda record: record.deserved,
    **{state.value: _count(state) for state in TaskState},
}
"""What sessions are sorted by. With `-` before it the order is reversed; equals stay in the order of creation."""


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """A query. `search` is a part of the id, the owner, the queue or the application, in any case."""

    state: str | None = None
    owner: str | None = None
    queue: str | None = None
    search: str = ""
    sort: str = "created"
    offset: int = 0
    limit: int | None = None

    @classmethod
    def of(cls, request: Request) -> SessionQuery:
        """Return the query of a request.

        Raises:
            InvalidRequest: a state or an order that does not exist, or a number out of range.

        """
        given = request.query_params
        sort = given.get("sort", "created")
        _check("state", given.get("state"), [each.value for each in SessionState])
        _check("sort", sort.removeprefix("-"), SORTS)
        limit = count_of(request, "limit", MOST) if "limit" in given else None
        if limit is not None and not 1 <= limit <= MOST:
            raise invalid("limit", limit, f"1 to {MOST} is needed")
        return cls(
            state=given.get("state"),
            owner=given.get("owner"),
            queue=given.get("queue"),
            search=given.get("search", "").strip().lower(),
            sort=sort,
            offset=count_of(request, "offset", 0),
            limit=limit,
        )

    def page(self, records: Iterable[SessionRecord]) -> tuple[list[SessionRecord], int]:
        """Return the records of the page, and the number of records that match."""
        found = sorted(filter(self._matches, records), key=SORTS["created"])
        if self.sort != "created":
            found.sort(key=SORTS[self.sort.removeprefix("-")], reverse=self.sort.startswith("-"))
        end = None if self.limit is None else self.offset + self.limit
        return found[self.offset : end], len(found)

    def _matches(self, record: SessionRecord) -> bool:
        spec = record.session.spec
        if self.state is not None and record.session.state.value != self.state:
            return False
        if self.owner is not None and spec.owner != self.owner:
            return False
        if self.queue is not None and spec.queue != self.queue:
            return False
        texts = (record.id, spec.owner, spec.queue, spec.application)
        return not self.search or any(self.search in text.lower() for text in texts)


def foremost(sessions: Iterable[SessionFacts], most: int | None) -> list[SessionFacts]:
    """Return the open sessions in the order of creation; of more than `most` those with executors, then by priority."""
    found = [facts for facts in sessions if facts.open]
    if most is None or len(found) <= most:
        return found
    first = sorted(found, key=lambda facts: (not facts.executors, -facts.info.spec.priority, facts.info.number))
    return sorted(first[:most], key=lambda facts: facts.info.number)


def _check(field: str, value: str | None, known: Iterable[str]) -> None:
    if value is not None and value not in known:
        names = list(known)
        raise invalid(field, value, f"{did_you_mean(value, names)}write {', '.join(names[:-1])} or {names[-1]}")
