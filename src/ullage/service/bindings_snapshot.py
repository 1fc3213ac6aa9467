"""A snapshot of the cluster and the ledger: the base of all decisions of one operation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ullage.binding.force import in_force
from ullage.binding.rows import Ledger
from ullage.binding.view import BindingInventory, BindingView
from ullage.model.binding import BindingState
from ullage.model.compute import AppKey, AppState, CardKey, ComputeCard, ComputeNode, HostedApp
from ullage.model.compute_result import Problem
from ullage.model.error import Conflict, Forbidden, NotFound
from ullage.service.bindings_port import ClusterFacts


@dataclass(frozen=True, slots=True)
class Caller:
    """The user who asks. An administrator sees the applications of all owners, and may act for them."""

    name: str
    is_admin: bool = False

    def sees(self, app: AppKey) -> bool:
        """Return whether the user may see an application and the rows of it."""
        return self.is_admin or app.owner == self.name


@dataclass(frozen=True, slots=True)
class NamedApp:
    """An application as callers name it; without an owner it is the caller's, without a namespace the only one."""

    name: str
    owner: str = ""
    namespace: str = ""


@dataclass(frozen=True)
class BindingsSnapshot:
    """The cluster and the ledger as they were read together."""

    cluster: ClusterFacts
    ledger: Ledger

    @cached_property
    def view(self) -> BindingView:
        """The base of decisions: rows and foreign bindings in force, and cards that pods hold without a binding."""
        return in_force(self.own, self.cluster.bindings, self.cluster.users, strict=self.cluster.strict)

    @cached_property
    def own(self) -> BindingView:
        """The same without foreign bindings. The ledger says how cards are shared, else their nodes do."""
        cluster, inventory = self.cluster, BindingInventory(self.cluster.nodes).shared(self.ledger.shares)
        return BindingView(inventory, self.ledger.rows, cluster.tenants, cluster.quotas, owner_use=cluster.owner_use)

    @cached_property
    def apps(self) -> dict[AppKey, HostedApp]:
        """The applications that exist."""
        return {app.key: app for app in self.cluster.apps}

    def keys(self, caller: Caller, named: NamedApp) -> list[AppKey]:
        """Return the matching applications: those that exist, and those that only have rows yet.

        Raises:
            Forbidden: they belong to another owner.

        """
        owner = named.owner or caller.name
        check_owner(caller, owner)
        known = dict.fromkeys([*self.apps, *(row.app for row in self.ledger.rows)])
        spaces = (named.namespace, "") if named.namespace else None
        return [
            key
            for key in known
            if (key.name, key.owner) == (named.name, owner) and (spaces is None or key.namespace in spaces)
        ]

    def app(self, caller: Caller, named: NamedApp) -> HostedApp:
        """Return the only matching application.

        Raises:
            Forbidden: it belongs to another owner.
            NotFound: there is none.
            Conflict: there are several.

        """
        keys = self.keys(caller, named)
        if not keys:
            raise NotFound(f"there is no application {named.name!r} of {named.owner or caller.name!r}", field="name")
        key, *others = keys
        if others:
            spaces = ", ".join(sorted(key.namespace for key in keys))
            raise Conflict(f"{named.name!r} is there in {spaces}; say the namespace", code="ambiguous", field="name")
        return self.apps.get(key) or HostedApp(key, state="")

    def judged(self, caller: Caller, named: NamedApp) -> HostedApp:
        """Return the only matching application, in order to decide on its cards.

        Raises:
            NotFound: it only has rows.
            Conflict: its requirements cannot be read. Other errors are those of `app`.

        """
        app = self.app(caller, named)
        if app.key not in self.apps:
            raise NotFound(f"{named.name!r} of {app.key.owner!r} is not installed any more", field="name")
        if app.unreadable:
            message = f"what {named.name!r} requires cannot be read, so it gets no cards and is not started: "
            raise Conflict(message + app.unreadable, code="requirements-unreadable")
        return app

    def card(self, key: CardKey) -> ComputeCard:
        """Return a card.

        Raises:
            NotFound: there is none.

        """
        card = self.view.cards.get(key)
        if card is None:
            raise NotFound(f"there is no card {key.device!r} on node {key.node!r}", field="device")
        return card

    def card_of(self, device: str) -> ComputeCard:
        """Return the card with this id, on any node.

        Raises:
            NotFound: there is none.

        """
        card = self.view.inventory.by_device.get(device)
        if card is None:
            raise NotFound(f"there is no card {device!r}", field="id")
        return card

    @cached_property
    def stopping(self) -> frozenset[AppKey]:
        """The applications that were asked to stop and still have pods."""
        return frozenset(key for key, app in self.apps.items() if app.state == AppState.STOPPING)

    def nodes(self) -> tuple[ComputeNode, ...]:
        """Return the nodes, sorted by name."""
        return tuple(self.view.by_name.values())

    def problems(self, caller: Caller) -> Iterator[Problem]:
        """Yield rows of cards that do not exist, or whose application is being stopped, as far as a caller sees them.

        An administrator also sees unreadable objects, and bindings of other writers of cards that do not exist.
        """
        if caller.is_admin:
            yield from self.cluster.problems
            devices = {key.device for key in self.view.cards}
            for each in self.cluster.bindings:
                if each.state is not BindingState.INVALID and each.uuid not in devices:
                    yield Problem(each.name, "card-gone")
        counted = {row.id for row in self.view.rows}
        for row in (row for row in self.ledger.rows if caller.sees(row.app)):
            whose = f"{row.app.name} of {row.app.owner} on {row.card.node}/{row.card.device}"
            if row.card not in self.view.cards:
                yield Problem(whose, "card-gone")
            elif row.id not in counted:
                yield Problem(whose, "more memory is bound than the card has; its pods are refused")
            if row.draining:
                yield Problem(whose, "draining")


def check_owner(caller: Caller, owner: str) -> None:
    """Check that a caller may act for an owner.

    Raises:
        Forbidden: the owner is another user, and the caller is no administrator.

    """
    if owner != caller.name and not caller.is_admin:
        raise Forbidden(f"owner: {owner!r} is not {caller.name!r}; only an administrator may act for others")
