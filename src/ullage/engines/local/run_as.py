"""Executors that run as the owner of their session: the account, what its processes inherit, and its directories."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ullage.service.system_users import SystemUser, SystemUsers

UMASK = 0o022
"""The umask of an executor that runs as a user, whatever that of the server is."""

_OF_SERVER = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"})
"""Variables of the server that mean nothing to another user."""


def find_user(users: SystemUsers, user: str) -> SystemUser | None:
    """Return the account of the user of an order; None if it runs as the user of the server.

    Raises:
        ValueError: this machine has no such user.

    """
    if not user:
        return None
    account = users.by_name(user)
    if account is None:
        raise ValueError(f"this machine has no user {user!r}")
    return account


def inherited(server: Mapping[str, str], account: SystemUser | None) -> dict[str, str]:
    """Return the variables from which an executor inherits."""
    if account is None:
        return dict(server)
    own = {"HOME": account.home, "USER": account.name, "LOGNAME": account.name, "SHELL": account.shell or "/bin/sh"}
    return {name: value for name, value in server.items() if name not in _OF_SERVER} | own


def identity_order(account: SystemUser | None) -> dict[str, Any] | None:
    """Return the part of an order to the supervisor that says who the executor runs as."""
    if account is None:
        return None
    return {"uid": account.uid, "gid": account.gid, "groups": list(account.groups), "umask": UMASK}


def give(directory: Path, account: SystemUser | None) -> Path:
    """Make a directory, which nobody else can reach yet, the account's own. Return it."""
    if account is not None:
        os.chown(directory, account.uid, account.gid, follow_symlinks=False)
    return directory
