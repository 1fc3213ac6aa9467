"""The section `[users]` of the settings: who may do what on a server that several people use."""

from __future__ import annotations

from typing import Literal

import msgspec

from ullage.model.choice import parse_choice
from ullage.model.identity import Role
from ullage.service.access_rules import AccessRules, QueueUsers


class QueueUsersSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may use a queue: these users, and the members of these Unix groups."""

    users: list[str] = []
    groups: list[str] = []


class UsersSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The people of one machine.

    `roles` gives roles to users, `groups` to Unix groups: viewer, user, operator or admin. A user without an entry has
    the highest role of its groups, else `default`; `none` refuses it. With `reads` `own` the role user reads its own
    sessions and requests only. `[users.queues.NAME]` closes a queue, and those below it, to all other users.
    """

    default: str = "none"
    reads: Literal["all", "own"] = "all"
    roles: dict[str, str] = {}
    groups: dict[str, str] = {}
    queues: dict[str, QueueUsersSection] = {}

    def rules(self) -> AccessRules:
        """Return the rules.

        Raises:
            InvalidRequest: a role is not known; the setting is named.

        """
        return AccessRules(
            users=_roles("users.roles", self.roles),
            groups=_roles("users.groups", self.groups),
            default=None if self.default == "none" else parse_choice(Role, self.default, "users.default"),
            reads_own=self.reads == "own",
            queues={
                name: QueueUsers(frozenset(entry.users), frozenset(entry.groups)) for name, entry in self.queues.items()
            },
        )


def _roles(field: str, given: dict[str, str]) -> dict[str, Role]:
    return {name: parse_choice(Role, text, f"{field}.{name}") for name, text in given.items()}
