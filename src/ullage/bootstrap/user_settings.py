"""The section `[users]` of the settings: who may do what on a server that several people use."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from ullage.model.choice import parse_choice
from ullage.model.error import invalid
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
    sessions and requests only. With `run_as` `owner` the work of each session runs as its owner, and the server must be
    root. `socket` is the directory of a socket for all users, such as `/run/ullage`. With `plain_tokens` tokens of
    users are accepted from other machines without TLS. `[users.queues.NAME]` closes a queue, and those below it, to all
    other users.
    """

    default: str = "none"
    reads: Literal["all", "own"] = "all"
    run_as: Literal["server", "owner"] = "server"
    socket: str | None = None
    plain_tokens: bool = False
    roles: dict[str, str] = {}
    groups: dict[str, str] = {}
    queues: dict[str, QueueUsersSection] = {}

    def rules(self) -> AccessRules:
        """Return the rules.

        Raises:
            InvalidRequest: a role is not known, the server cannot run work as other users, or they cannot reach it.

        """
        if self.run_as == "owner" and os.geteuid() != 0:
            fix = 'only root may run work as its owner: start the server as root, or write "server"'
            raise invalid("users.run_as", self.run_as, fix)
        if self.run_as == "owner" and self.socket is None:
            raise invalid(
                "users.socket", None, "write the directory where work that runs as its owner reaches the server"
            )
        if self.socket is not None and not self.socket.startswith("/"):
            raise invalid("users.socket", self.socket, "write the absolute path of a directory, such as /run/ullage")
        return AccessRules(
            users=_roles("users.roles", self.roles),
            groups=_roles("users.groups", self.groups),
            default=None if self.default == "none" else parse_choice(Role, self.default, "users.default"),
            reads_own=self.reads == "own",
            plain_tokens=self.plain_tokens,
            run_as_owner=self.run_as == "owner",
            queues={
                name: QueueUsers(frozenset(entry.users), frozenset(entry.groups)) for name, entry in self.queues.items()
            },
        )


def _roles(field: str, given: dict[str, str]) -> dict[str, Role]:
    return {name: parse_choice(Role, text, f"{field}.{name}") for name, text in given.items()}
