"""The port to where bindings live, and to the applications that are bound."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ullage.binding.room import TENANTS
from ullage.binding.rows import Ledger, LedgerChange
from ullage.model.binding import Binding
from ullage.model.compute import AppKey, CardUser, ComputeNode, HostedApp, HostRoom, OwnerQuota
from ullage.model.compute_result import Problem


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The state of the cluster: nodes with their cards, applications, and the ids of rows that running pods use.

    `bindings` are those of other writers, the oldest first: those in force take room as rows do, and a migration turns
    them into rows. With `strict`, a binding without an owner or a namespace is not in force. `users` are pods of
    applications that hold cards. `problems` are objects that could not be read. `quotas` are those of owners,
    `owner_use` is what their pods request of nodes, `tenants` is how many applications may share a card in turns.
    `held_cards` are cards that any pods hold, by the books.
    """

    nodes: tuple[ComputeNode, ...] = ()
    apps: tuple[HostedApp, ...] = ()
    held: frozenset[str] = frozenset()
    bindings: tuple[Binding, ...] = ()
    problems: tuple[Problem, ...] = ()
    quotas: Mapping[str, OwnerQuota] = field(default_factory=dict)
    owner_use: Mapping[str, HostRoom] = field(default_factory=dict)
    tenants: int = TENANTS
    users: tuple[CardUser, ...] = ()
    strict: bool = False
    held_cards: frozenset[str] = frozenset()


class BindingPort(Protocol):
    """Stores the ledger of bindings, and starts and stops applications. All calls may be repeated."""

    async def cluster(self) -> ClusterFacts:
        """Return the current state."""

    async def ledger(self) -> Ledger:
        """Return the last committed ledger."""

    async def commit(self, change: LedgerChange, expected: int) -> None:
        """Make all of a change durable, if the ledger still has the expected version; else nothing of it.

        Raises:
            VersionChanged: it has another one.
            Unavailable: it cannot be said whether it was made; read the ledger.

        """

    async def start(self, app: AppKey, accelerator: str) -> None:
        """Start or install an application for cards of this type ("" for none). Restart it if its cards have changed.

        Raises:
            UllageError: not all of its parts could be started.

        """

    async def stop(self, app: AppKey) -> None:
        """Stop an application.

        Raises:
            UllageError: it could not be stopped.

        """

    async def restart(self, app: AppKey) -> None:
        """Restart an application, once for the cards that it has now: a repeat changes nothing.

        Raises:
            UllageError: it could not be restarted.

        """

    async def discard(self, bindings: Collection[str]) -> None:
        """Delete bindings of others, by name; those that are gone are fine.

        Raises:
            UllageError: some of them may still be there.

        """
