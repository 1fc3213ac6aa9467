"""The role that each route needs, declared beside its `@route`, and the check of a caller against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from starlette.requests import HTTPConnection

from ullage.model.allocation import Allocation
from ullage.model.error import Forbidden, InvalidRequest, UllageError
from ullage.model.event import Event
from ullage.model.identity import Identity, Role
from ullage.model.nearest import Missing
from ullage.service.service import UllageService
from ullage.service.state import ExecutorRecord, SessionRecord

Handler = TypeVar("Handler", bound=Callable[..., Any])

IDENTITY = "ullage.identity"
"""A key of the ASGI scope: the `Identity` of the caller, which the guard has proven."""

ADMITTED = "ullage.admitted"
"""A key of the ASGI scope: a function that returns whether the caller still is who it was, by the same proof."""

_ACCESS = "_access"
"""The attribute of a handler with its `Access`."""


_OF_ALL = ("node.", "quota.")
"""The beginnings of kinds of events that are of no user."""

_OWNED_FACTS = {"uid": "uid", "gang": "key"}
"""Facts of events, and the parameters of paths that name the same objects."""

_OWNED_KINDS = {"session": "session", "allocation": "uid", "gang": "key"}
"""Kinds of objects that belong to users, and the parameters of paths that name them."""


class Whose(StrEnum):
    """Whose objects a user may reach by a route; an operator reaches all."""

    ALL = "all"
    OWN = "own"
    SHOWN = "shown"
    """All, or its own, as the setting `users.reads` says."""


@dataclass(frozen=True, slots=True)
class Access:
    """The least role of a route, and of whom its session, request or gang may be."""

    role: Role
    of: Whose = Whose.ALL


def needs(role: Role, of: Whose = Whose.ALL) -> Callable[[Handler], Handler]:
    """Declare the role that the routes of a handler need. It stands below `@route`."""

    def declare(handler: Handler) -> Handler:
        setattr(handler, _ACCESS, Access(role, of))
        return handler

    return declare


def access_of(handler: Callable[..., Any], what: str) -> Access:
    """Return the declared access of a handler.

    Raises:
        TypeError: it declares none, so that the server must not start.

    """
    found = getattr(handler, _ACCESS, None)
    if found is None:
        raise TypeError(f"{what} declares no role: write @needs(Role.VIEWER), or another one, below its @route")
    access: Access = found
    return access


def caller_of(request: HTTPConnection) -> Identity:
    """Return who asks; the guard lets no request without an identity reach a handler of `@route`."""
    identity: Identity = request.scope[IDENTITY]
    return identity


class Authorizer:
    """Checks callers against the access of routes, over one service."""

    def __init__(self, service: UllageService) -> None:
        self._service, self._rules, self._system_users = service, service.access, service.system_users

    def check(self, request: HTTPConnection, access: Access) -> None:
        """Check that the caller may use a route for the object in its path.

        Raises:
            Forbidden: the role does not suffice (`role-needed`), or the object is another user's (`not-the-owner`).

        """
        caller = caller_of(request)
        if not caller.role.includes(access.role):
            where = f"{request.scope['method']} {request.url.path}"
            text = f"{where} needs the role {access.role}; you are {caller.user} with the role {caller.role}"
            raise Forbidden(text, code="role-needed", field="role")
        if access.of is Whose.ALL or caller.role.includes(Role.OPERATOR):
            return
        if access.of is Whose.SHOWN and not self._rules.hides_others(caller):
            return
        for kind, name in request.path_params.items():
            owner = self._owner(kind, name)
            if owner is not None and owner != caller.user:
                raise self._not_the_owner(caller, kind, name, owner)

    def check_shown(self, request: HTTPConnection, *sessions: str) -> None:
        """Check that the caller may read these sessions; those that do not exist are not its business.

        Raises:
            Forbidden: one is another user's (`not-the-owner`), and the caller reads its own only.

        """
        only = self.only_owner(request)
        for session in sessions:
            owner = self._owner("session", session)
            if only is not None and owner not in (None, only):
                raise self._not_the_owner(caller_of(request), "session", session, owner)

    def _not_the_owner(self, caller: Identity, kind: str, name: str, owner: str | None) -> Forbidden:
        whose = "another user" if self._rules.hides_others(caller) else owner or "nobody"
        text = f"{kind} {name} belongs to {whose}; you are {caller.user} with the role {caller.role}"
        return Forbidden(f"{text}: its owner, or the role operator, is needed", code="not-the-owner", field=kind)

    def _owner(self, kind: str, name: str) -> str | None:
        """Return the owner of what a parameter of the path names; None if there is no such object."""
        if kind == "session":
            record = self._service.state.sessions.get(name)
            return None if record is None else record.session.spec.owner
        if kind == "uid":
            return self._service.allocations.owner(name)
        return self._service.gangs.owner(name) if kind == "key" else None

    def only_owner(self, request: HTTPConnection) -> str | None:
        """Return the user whose objects alone a list may show; None for all."""
        caller = caller_of(request)
        return caller.user if self._rules.hides_others(caller) else None

    def shown_sessions(self, request: HTTPConnection) -> list[SessionRecord]:
        """Return the sessions that the caller may read."""
        only = self.only_owner(request)
        records = self._service.state.sessions.values()
        return [record for record in records if only in (None, record.session.spec.owner)]

    def shown_events(self, request: HTTPConnection, events: list[Event]) -> list[Event]:
        """Return events; of those of sessions that the caller may not read only the number, the time and the kind."""
        only = self.only_owner(request)
        if only is None:
            return events
        return [event if self._is_shown(event, only) else _without_facts(event) for event in events]

    def _is_shown(self, event: Event, only: str) -> bool:
        """Return whether a user reads an event. Of what is deleted the owner is not known any more."""
        if event.kind.startswith(_OF_ALL):
            return True
        named = {"session": event.session, **{kind: event.data.get(fact) for fact, kind in _OWNED_FACTS.items()}}
        owners = [self._owner(kind, str(name)) for kind, name in named.items() if name is not None]
        return bool(owners) and all(owner == only for owner in owners)

    def shown_executors(self, request: HTTPConnection) -> list[ExecutorRecord]:
        """Return the executors of the sessions that the caller may read, and those of none."""
        only, executors = self.only_owner(request), self._service.state.executors.values()
        return [each for each in executors if only is None or self._is_own_or_idle(each, only)]

    def _is_own_or_idle(self, executor: ExecutorRecord, only: str) -> bool:
        return executor.session is None or self._owner("session", executor.session) == only

    def shown_holders(self, request: HTTPConnection) -> frozenset[str]:
        """Return the ids of the allocations that the caller may read."""
        only, ledger = self.only_owner(request), self._service.state.fleet.ledger
        own = {each.id for each in self.shown_executors(request)}
        held = ledger.items()
        return frozenset(uid for uid, each in held if only is None or uid in own or _claimed_by(each, only))

    def shown_error(self, request: HTTPConnection, error: UllageError) -> UllageError:
        """Return an error as the caller may read it: what is meant by a name is nothing of another user."""
        if not isinstance(error, Missing) or error.kind not in _OWNED_KINDS or IDENTITY not in request.scope:
            return error
        only, kind = self.only_owner(request), _OWNED_KINDS[error.kind]
        return error if only is None else error.among(lambda name: self._owner(kind, name) == only)

    def owner_for(self, request: HTTPConnection, asked: str, client_user: str = "") -> str:
        """Return the owner of what the caller creates. `client_user` counts where the caller has no name of its own.

        Raises:
            Forbidden: another owner is asked for, and the caller may not act for others (`not-yourself`).

        """
        caller = caller_of(request)
        if caller.role.includes(Role.OPERATOR):
            return asked or (client_user if caller.nameless else "") or caller.user
        if asked in ("", caller.user):
            return caller.user
        text = f"owner: {asked!r} is not you: you are {caller.user} with the role {caller.role}"
        raise Forbidden(f"{text}; acting for others needs the role operator", code="not-yourself", field="owner")

    def check_account(self, request: HTTPConnection, owner: str) -> None:
        """Check that the work of an owner can run, if it runs as its owner.

        Raises:
            InvalidRequest: this machine has no such user (`no-such-user`).
            Forbidden: it would run as root, and the caller is no administrator (`runs-as-root`).

        """
        if not self._rules.run_as_owner:
            return
        account = self._system_users.by_name(owner)
        if account is None:
            text = f"owner: work runs as its owner, and this machine has no user {owner!r}; create the account first"
            raise InvalidRequest(text, code="no-such-user", field="owner")
        if account.uid == 0 and not caller_of(request).role.includes(Role.ADMIN):
            text = f"owner: {owner} is root, and only an administrator may have work that runs as root"
            raise Forbidden(text, code="runs-as-root", field="owner")

    def check_queue(self, request: HTTPConnection, queue: str) -> None:
        """Check that the caller may use a queue.

        Raises:
            Forbidden: the settings close it to the caller (`queue-closed`).

        """
        caller = caller_of(request)
        self._rules.check_queue(caller, self._lineage(queue), self._system_users.groups_of(caller.user))

    def _lineage(self, queue: str) -> Iterator[str]:
        queues, name = self._service.state.queues, queue
        yield name
        while name in queues:
            name = queues[name].parent
            yield name


def _claimed_by(allocation: Allocation, user: str) -> bool:
    return allocation.claim is not None and allocation.claim.owner == user


def _without_facts(event: Event) -> Event:
    return Event(event.number, event.at, event.kind, None, code=None, message="", data={})


def permitted(caller: Identity, accesses: Iterable[tuple[str, str, Access]]) -> list[str]:
    """Return the ids of the routes that a caller may use, of triples of id, method and access."""
    return sorted(
        name
        for name, method, access in accesses
        if caller.role.includes(access.role) and (method == "GET" or not caller.reading)
    )
