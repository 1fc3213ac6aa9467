"""The operator's rules: the roles of users and groups, and which queues they may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ullage.model.error import Forbidden
from ullage.model.identity import Identity, Role


@dataclass(frozen=True, slots=True)
class QueueUsers:
    """Who may use a queue, and the queues below it: these users, and the members of these groups."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def admits(self, user: str, groups: frozenset[str]) -> bool:
        """Return whether a user is one of them."""
        return user in self.users or bool(groups & self.groups)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The roles of local users by name and by group, and the users of queues.

    `default` is the role of every other local user; None refuses them. With `reads_own` a user reads only its own
    sessions and requests. With `run_as_owner` the work of a session runs as its owner. With `plain_tokens` tokens of
    users are accepted from other machines without TLS. A queue without an entry has
    that of its parent; without any, everyone may use it.
    """

    users: Mapping[str, Role] = field(default_factory=dict)
    groups: Mapping[str, Role] = field(default_factory=dict)
    default: Role | None = None
    reads_own: bool = False
    run_as_owner: bool = False
    plain_tokens: bool = False
    queues: Mapping[str, QueueUsers] = field(default_factory=dict)

    def role_of(self, user: str, groups: frozenset[str]) -> Role | None:
        """Return the role of a local user: its own entry, else the highest of its groups, else the default."""
        if user in self.users:
            return self.users[user]
        found = [role for group, role in self.groups.items() if group in groups]
        return max(found, key=lambda role: role.rank) if found else self.default

    def hides_others(self, caller: Identity) -> bool:
        """Return whether a caller reads only what it owns."""
        return self.reads_own and caller.role is Role.USER

    def check_queue(self, caller: Identity, lineage: Iterable[str], groups: frozenset[str]) -> None:
        """Check that a caller may use a queue. `lineage` is the queue, its parent, and so on.

        Raises:
            Forbidden: it may not (`queue-closed`); an operator may use every queue.

        """
        queue, *above = lineage
        entry = next((self.queues[name] for name in (queue, *above) if name in self.queues), None)
        if entry is None or caller.role.includes(Role.OPERATOR) or entry.admits(caller.user, groups):
            return
        text = f"queue: {queue!r} is closed to {caller.user}; the setting users.queues says who may use it"
        raise Forbidden(text, code="queue-closed", field="queue")


NO_RULES = AccessRules()
"""Of a server that one person uses."""
