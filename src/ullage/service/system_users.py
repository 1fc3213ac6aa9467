"""The users and groups of this machine, as the system knows them (files, LDAP, SSSD)."""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass

KEPT_S = 60.0
"""Seconds for which an answer of the system is reused: a directory service may be slow."""


@dataclass(frozen=True, slots=True)
class SystemUser:
    """A user of this machine; `groups` are the ids of all groups, the primary one among them."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @property
    def group_names(self) -> frozenset[str]:
        """The names of its groups; a group without a name is left out."""
        return frozenset(name for gid in self.groups if (name := _group_name(gid)) is not None)


class SystemUsers:
    """Looks users up. An answer is kept for a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[int | str, tuple[float, SystemUser | None]] = {}
        self._groups: dict[str, tuple[float, frozenset[str]]] = {}

    def by_uid(self, uid: int) -> SystemUser | None:
        """Return the user of an id; None if there is none."""
        return self._find(uid, lambda: pwd.getpwuid(uid))

    def by_name(self, name: str) -> SystemUser | None:
        """Return the user of a name; None if there is none."""
        return self._find(name, lambda: pwd.getpwnam(name))

    def groups_of(self, name: str) -> frozenset[str]:
        """Return the names of the groups of a user; empty if this machine has no such user."""
        found, now = self._groups.get(name), self._clock()
        if found is None or now - found[0] > KEPT_S:
            user = self.by_name(name)
            found = self._groups[name] = (now, frozenset() if user is None else user.group_names)
        _, groups = found
        return groups

    def _find(self, key: int | str, read: Callable[[], pwd.struct_passwd]) -> SystemUser | None:
        found, now = self._kept.get(key), self._clock()
        if found is None or now - found[0] > KEPT_S:
            try:
                found = now, _user(read())
            except (KeyError, ValueError):  # a name with a NUL, or an id that no user can have
                found = now, None
            self._kept[key] = found
        _, account = found
        return account


def _user(entry: pwd.struct_passwd) -> SystemUser:
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return SystemUser(
        name=entry.pw_name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(groups),
        home=entry.pw_dir,
        shell=entry.pw_shell,
    )


def _group_name(gid: int) -> str | None:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return None
