"""The port to the Kubernetes API: lists in pages, watches, reads and writes; no cache and no decision.

Every call ends: it answers, or raises one of `ullage.kube.client.errors` within its deadline. One contract suite
holds for every adapter and every fake (`tests/kube/test_api_contract.py`).
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
    """Which objects of a kind: of one namespace ("": all), with these labels and fields (selectors as text)."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


ALL = Selection()


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list. All pages of a list show the same moment: that of `version`."""

    items: tuple[T, ...]
    version: str


class EventType(StrEnum):
    """What a watch tells; a bookmark only moves the version."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One event; `item` is the last state of what was deleted, and None in a bookmark."""

    type: EventType
    version: str
    item: T | None


class KubeApi(Protocol):
    """What Ullage needs of an API server."""

    def pages(self, kind: Kind[T], select: Selection = ALL, limit: int = 500) -> AsyncGenerator[Page[T], None]:
        """A list of the newest state, at least one page, `limit` items to a page at most.

        Raises:
            Gone: the next page is no longer kept; what was listed is no whole.

        """
        ...

    def watch(self, kind: Kind[T], since: str, select: Selection = ALL) -> AsyncGenerator[WatchEvent[T], None]:
        """What happened after version `since`, in order, until the server ends the stream, within minutes.

        The first event is a bookmark at `since`, when the server has accepted the watch: silence after it means that
        nothing happened. A server whose etcd sends no progress may never send another bookmark.

        Raises:
            Gone: the server no longer knows that version.
            Unreachable: the stream broke, or was silent for so long that its connection may be dead.

        """
        ...

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        """The newest state of one object.

        Raises:
            NotFound: there is none.

        """
        ...

    async def write(self, change: Change) -> bytes:
        """Carry out a change, once; the body of the answer, which for most is the new state of the object.

        Raises:
            VersionConflict: the object changed since it was read, or a pod is bound already.
            AlreadyExists: the name is taken.
            NotFound: there is none.
            BudgetExhausted: a budget does not allow an eviction now.
            Unreachable: no answer came; the change may have happened.

        """
        ...
