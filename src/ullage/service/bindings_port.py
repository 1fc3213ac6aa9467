"""The port to where bindings live, and to the applications that are bound."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ullage.core.binding.rows import Change, Ledger
from ullage.core.binding.view import TENANTS
from ullage.model.binding import Binding
from ullage.model.compute import AppKey, CardUser, ComputeNode, HostedApp, OwnerQuota, Room
from ullage.model.compute_answer import Problem


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What is there: nodes with their cards, applications, and the ids of rows by which anybody still runs.

    `bindings` are those of others, the oldest first: those in force take room as rows do, and a migration makes rows
    of them. With `strict` a binding without an owner or a namespace is not in force. `users` are pods of applications
    that hold cards.
    `problems` are what of it could not be read. `quotas` are of owners, `owner_use` is what their pods ask of nodes,
    `tenants` is how many applications may take turns on a card.
    """

    nodes: tuple[ComputeNode, ...] = ()
    apps: tuple[HostedApp, ...] = ()
    held: frozenset[str] = frozenset()
    bindings: tuple[Binding, ...] = ()
    problems: tuple[Problem, ...] = ()
    quotas: Mapping[str, OwnerQuota] = field(default_factory=dict)
    owner_use: Mapping[str, Room] = field(default_factory=dict)
    tenants: int = TENANTS
    users: tuple[CardUser, ...] = ()
    strict: bool = False


class BindingPort(Protocol):
    """Keeps the ledger of bindings, and tells applications to start and stop. All calls may be repeated."""

    async def cluster(self) -> ClusterFacts:
        """What is there now."""

    async def ledger(self) -> Ledger:
        """The ledger as it was last committed."""

    async def commit(self, change: Change, expected: int) -> None:
        """Make all of a change durable, if the ledger still has the expected version; else nothing of it.

        Raises:
            VersionChanged: it has another one.
            Unavailable: it cannot be said whether it was made; read the ledger.

        """

    async def start(self, app: AppKey, accelerator: str) -> None:
        """Let an application start, or be installed, for cards of this type ("" for none); anew if it has others now.

        Raises:
            UllageError: it was not told, or not in all its parts.

        """

    async def stop(self, app: AppKey) -> None:
        """Let an application stop.

        Raises:
            UllageError: it was not told.

        """

    async def restart(self, app: AppKey) -> None:
        """Let an application start anew, once for the cards that it has now: a repeat changes nothing.

        Raises:
            UllageError: it was not told.

        """

    async def discard(self, bindings: Collection[str]) -> None:
        """Delete bindings of others, by name; those that are gone are fine.

        Raises:
            UllageError: some of them may still be there.

        """
