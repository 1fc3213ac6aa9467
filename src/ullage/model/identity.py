"""Who asks: a user, a role, and the tokens that name both."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MAX_USER = 64
"""The most characters of the name of a user."""


class Role(StrEnum):
    """What a caller may do; each role may also do what the roles before it may.

    A `viewer` reads the state. A `user` has sessions and requests of its own. An `operator` changes all sessions,
    queues, applications and nodes, and acts for others. An `admin` also has tokens, and ends the server.
    """

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Return the position among the roles: 0 may do the least."""
        return list(Role).index(self)

    def includes(self, other: Role) -> bool:
        """Return whether this role may do all that `other` may."""
        return self.rank >= other.rank


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller of a request.

    `proof` says how it is known: `socket` (the kernel named the user), `token` (a token of that user), or `token file`
    (the server's own token). A `nameless` caller has a token that several people may share, so that a client may say
    for whom it asks. A `reading` one may change nothing. `expires_at` is the end of its token, in seconds since the
    epoch.
    """

    user: str
    role: Role
    proof: str
    nameless: bool = False
    reading: bool = False
    expires_at: float | None = None


OF_LINK = "ullage page"
"""The creator of tokens of links, which no user is: a name has no space."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token of a user, without its secret: `digest` is the SHA-256 of it, `page_digest` that of its page key.

    Times are seconds since the epoch; without `expires_at` it ends only when it is revoked. `created_by` is the user
    who created it. That of a link (`OF_LINK`) stands for a user of the server's machine, with the role that the user
    has there when it is used.
    """

    id: str
    user: str
    role: Role
    digest: str
    page_digest: str
    created_at: float
    expires_at: float | None = None
    created_by: str = ""
