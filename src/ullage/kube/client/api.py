"""The port to the Kubernetes API: paged lists, watches, reads and writes. It has no cache and makes no decision.

Every call ends: it returns, or raises one of `ullage.kube.client.errors` within its deadline. One contract test suite
covers every adapter and every fake (`tests/kube/test_api_contract.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from ullage.kube.client.changes import Change
from ullage.kube.client.kinds import Kind
from ullage.kube.client.objects import Object

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind: of one namespace ("": all), with these label and field selectors (as text)."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


ALL = Selection()


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """A part of a list. All pages of a list show the same state: that of `version`."""

    items: tuple[T, ...]
    version: str


class EventType(StrEnum):
    """The types of watch events. A bookmark only moves the version."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One event. `item` is the last state of a deleted object, and None in a bookmark."""

    type: EventType
    version: str
    item: T | None


class KubeApi(Protocol):
    """What Ullage needs of an API server."""

    def pages(self, kind: Kind[T], select: Selection = ALL, limit: int = 500) -> AsyncGenerator[ListPage[T], None]:
        """Yield the pages of a list of the newest state: at least one page, with up to `limit` items each.

        Raises:
            Gone: the continue token has expired; the pages so far are no complete list.

        """
        ...

    def watch(self, kind: Kind[T], since: str, select: Selection = ALL) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield the events after version `since`, in order, until the server ends the stream, within minutes.

        The first event is a bookmark at `since`, when the server has accepted the watch: silence after it means that
        nothing happened. A server whose etcd sends no progress may never send another bookmark.

        Raises:
            Gone: the server no longer knows that version.
            Unreachable: the stream broke, or was silent for so long that its connection may be dead.

        """
        ...

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        """Return the newest state of one object.

        Raises:
            NotFound: there is none.

        """
        ...

    async def write(self, change: Change) -> bytes:
        """Make a change once. Return the response body, which for most changes is the new state of the object.

        Raises:
            VersionConflict: the object changed since it was read, or a pod is bound already.
            AlreadyExists: the name is taken.
            NotFound: there is none.
            BudgetExhausted: a PodDisruptionBudget does not allow an eviction now.
            Unreachable: no response came; the change may have happened.

        """
        ...
